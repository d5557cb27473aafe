//! Direct exchange: every part goes straight to its owner, which adds it up, and from the owner straight to everybody.
//!
//! One round each way: p − 1 messages of other members' parts to be summed, p − 1 of the own part to be spread. With even
//! parts that is n(p − 1)/p elements each way, as a ring sends; Krizhevsky 2014 §4.1 synchronises weights so. Parts may be of
//! any size: with all elements in one part it is his one-to-all broadcast and its reverse (§4, scheme (b)).

use std::ops::Range;
use std::sync::Arc;

use super::kernel::Steps;
use super::shard::{piece, shard};
use super::step::{Action, Step};

/// Which part of a buffer belongs to which member.
#[derive(Debug, Clone)]
pub(super) enum Parts {
    /// Evenly, remainders to the first members.
    Even {
        /// Where the elements begin in the buffer.
        start: u64,
        /// How many are divided.
        elements: u64,
    },
    /// By counts: where each part starts, and the end.
    Counted(Arc<[u64]>),
}

impl Parts {
    /// Parts of these sizes; `None` if their sum overflows.
    pub(super) fn counted(counts: &[u64]) -> Option<Parts> {
        let mut starts = Vec::with_capacity(counts.len() + 1);
        let mut end = 0u64;
        starts.push(end);
        for count in counts {
            end = end.checked_add(*count)?;
            starts.push(end);
        }
        Some(Parts::Counted(starts.into()))
    }

    /// Elements of all parts.
    pub(super) fn elements(&self) -> u64 {
        match self {
            Parts::Even { elements, .. } => *elements,
            Parts::Counted(starts) => starts[starts.len() - 1],
        }
    }

    /// The part of `member`.
    pub(super) fn of(&self, member: u32, members: u32) -> Range<u64> {
        match self {
            Parts::Even { start, elements } => {
                let part = shard(*elements, members.into(), member.into());
                start + part.start..start + part.end
            }
            Parts::Counted(starts) => starts[member as usize]..starts[member as usize + 1],
        }
    }

    /// Elements of the largest part.
    pub(super) fn largest(&self, members: u32) -> u64 {
        match self {
            Parts::Even { elements, .. } => elements.div_ceil(u64::from(members)),
            Parts::Counted(starts) => starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0),
        }
    }

    /// Whether all parts are equally long.
    pub(super) fn even(&self, members: u32) -> bool {
        self.largest(members).checked_mul(members.into()) == Some(self.elements())
    }
}

/// Which ways parts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways {
    /// To their owners, to be summed.
    pub(super) reduce: bool,
    /// From their owners to all.
    pub(super) gather: bool,
}

/// One lane on one member: piece `lane` of `lanes` of every part.
#[derive(Debug, Clone)]
pub(super) struct Direct {
    pub(super) parts: Parts,
    pub(super) ways: Ways,
    pub(super) member: u32,
    pub(super) members: u32,
    pub(super) lane: u32,
    pub(super) lanes: u64,
}

impl Direct {
    /// The lane's piece of the part of `member`.
    fn piece(&self, member: u32) -> Range<u64> {
        piece(self.parts.of(member, self.members), self.lanes, self.lane)
    }

    /// Sum over the messages sent of `count(length)`.
    fn sent(&self, count: impl Fn(u64) -> u64) -> u64 {
        let of = |member: u32| {
            let piece = self.piece(member);
            count(piece.end - piece.start)
        };
        let others = (0..self.members).filter(|other| *other != self.member);
        let reduced = if self.ways.reduce { others.map(of).sum() } else { 0 };
        reduced + if self.ways.gather { u64::from(self.members - 1) * of(self.member) } else { 0 }
    }
}

impl Steps for Direct {
    fn len(&self) -> u32 {
        2 * (self.members - 1) * (u32::from(self.ways.reduce) + u32::from(self.ways.gather))
    }

    /// A way's sends come before its receives, to and from ever more distant members.
    fn step(&self, k: u32) -> Step {
        let others = self.members - 1;
        let (way, place) = (k / (2 * others), k % (2 * others));
        let reduces = self.ways.reduce && way == 0;
        let distance = place % others + 1;
        if place < others {
            let to = (self.member + distance) % self.members;
            return Step::new(Action::Send, to, self.piece(if reduces { to } else { self.member }));
        }
        let from = (self.member + self.members - distance) % self.members;
        match reduces {
            true => Step::new(Action::RecvSum, from, self.piece(self.member)),
            false => Step::new(Action::RecvInto, from, self.piece(from)),
        }
    }

    fn messages(&self) -> u64 {
        self.sent(|length| u64::from(length > 0))
    }

    fn elements_sent(&self) -> u64 {
        self.sent(|length| length)
    }
}
