//! `LaneStep`: describes a step of a lane: a message posted or awaited.
//!
//! Small and `Copy`, because a ring of 4,096 members pulls thirty million of them.

use std::ops::Range;

/// What a step does with its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Posts the range to the peer without waiting.
    Send,
    /// Waits for the peer's message and puts it in the range.
    RecvInto,
    /// Waits for the peer's message and adds it to the range.
    RecvSum,
}

/// One step of a lane on one member; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneStep {
    /// Send, receive, or receive and add.
    pub action: Action,
    /// Index of the other member in the group.
    pub peer: u32,
    /// First element of the range in the collective's buffer.
    pub start: u64,
    /// End of the range (exclusive), in elements.
    pub end: u64,
}

impl LaneStep {
    /// A step over `range`.
    pub(super) fn new(action: Action, peer: u32, range: Range<u64>) -> LaneStep {
        LaneStep { action, peer, start: range.start, end: range.end }
    }

    /// Elements moved.
    pub fn elements(&self) -> u64 {
        self.end - self.start
    }

    /// The elements it reads (send) or writes (receives).
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}
