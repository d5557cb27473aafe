//! `ScheduleError`: describes a fault that the checker found in a schedule: member, lane, step and reason.

use std::fmt;
use std::ops::Range;

/// A schedule that does not do what its collective requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleError {
    /// The member at whose step or in whose buffer it occurs.
    pub member: u32,
    /// The lane; `None` for elements that no lane touches.
    pub lane: Option<u32>,
    /// Index of the step in the lane; `None` where the result is wrong but no single step is.
    pub step: Option<u32>,
    /// What is wrong.
    pub reason: Reason,
}

/// Why a schedule is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The range is empty, reversed or outside of the buffer.
    BadRange {
        /// The range.
        range: Range<u64>,
        /// Elements of the buffer.
        elements: u64,
    },
    /// The peer is not a member, or the member itself in an in-place collective.
    BadPeer {
        /// The peer.
        peer: u32,
    },
    /// A message does not fit its receive: another length, or (in place) another position.
    Mismatch {
        /// The sender.
        from: u32,
        /// The sender's step.
        sent_at: u32,
        /// What was sent.
        sent: Range<u64>,
        /// Where it is received.
        received: Range<u64>,
    },
    /// It sends, or adds to, elements that hold no data yet.
    NoData {
        /// First such element.
        element: u64,
    },
    /// A sum would hold a contribution twice.
    SumsTwice {
        /// First element of the sum.
        element: u64,
        /// The contributor.
        contributor: u32,
    },
    /// It writes a range that it has sent and that may not have been consumed.
    Overwrites {
        /// The step that sent it.
        sent_at: u32,
        /// The member that may still read it.
        reader: u32,
    },
    /// The message of this step is never received.
    NeverReceived {
        /// The receiver.
        to: u32,
    },
    /// Members wait for each other, or for one that has ended its lane: the chain of waits from the first.
    Deadlock {
        /// Which member waits for which; the last one waits for a member already in the chain, or for one
        /// that has ended.
        waits: Vec<Wait>,
    },
    /// The member ends without a contribution, or with none at all.
    Missing {
        /// Elements of the result.
        range: Range<u64>,
        /// The member whose contribution is missing.
        contributor: u32,
    },
    /// Two members end with sums in different reduction orders, which floating point does not make equal.
    Differs {
        /// Elements of the result.
        range: Range<u64>,
        /// The member it differs from.
        from: u32,
    },
    /// Two lanes touch the same elements.
    LanesOverlap {
        /// The other lane.
        other: u32,
        /// What both touch.
        range: Range<u64>,
    },
}

/// A member that waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The waiting member.
    pub member: u32,
    /// Its step.
    pub step: u32,
    /// The member that it waits for.
    pub peer: u32,
    /// Whether that member has ended its lane.
    pub ended: bool,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lane) = self.lane {
            write!(f, "lane {lane}, ")?;
        }
        write!(f, "member {}", self.member)?;
        if let Some(step) = self.step {
            write!(f, ", step {step}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::BadRange { range, elements } => write!(f, "range {range:?} in a buffer of {elements} elements"),
            Reason::BadPeer { peer } => write!(f, "peer {peer} cannot be the other end of its message"),
            Reason::Mismatch { from, sent_at, sent, received } => {
                write!(f, "receives {received:?} and member {from} sent {sent:?} in step {sent_at}")
            }
            Reason::NoData { element } => write!(f, "element {element} holds no data yet"),
            Reason::SumsTwice { element, contributor } => {
                write!(f, "the sum in element {element} would hold the contribution of member {contributor} twice")
            }
            Reason::Overwrites { sent_at, reader } => {
                write!(f, "overwrites what step {sent_at} sent and member {reader} may not have read")
            }
            Reason::NeverReceived { to } => write!(f, "member {to} never receives this message"),
            Reason::Deadlock { waits } => {
                f.write_str("deadlock: ")?;
                for (index, wait) in waits.iter().enumerate() {
                    let join = if index > 0 { ", which waits" } else { "waits" };
                    write!(f, "{join} in step {} for member {}", wait.step, wait.peer)?;
                    if wait.ended {
                        f.write_str(", which has ended its lane")?;
                    }
                }
                Ok(())
            }
            Reason::Missing { range, contributor } => {
                write!(f, "ends without the contribution of member {contributor} in elements {range:?}")
            }
            Reason::Differs { range, from } => {
                write!(f, "ends with other sums than member {from} in elements {range:?}")
            }
            Reason::LanesOverlap { other, range } => write!(f, "elements {range:?} are also touched by lane {other}"),
        }
    }
}

impl std::error::Error for ScheduleError {}
