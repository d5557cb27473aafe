//! Scatter and gather: the root hands every member its part, or collects the parts, with one message to or from each.
//!
//! One round; the root sends (or takes in) n(p − 1)/p elements through its own wire. A data-parallel table that moves a node's
//! whole batch through its first GPU does both in every step (Kumar et al. 2018 §4.3).

use std::ops::Range;

use super::kernel::Steps;
use super::shard::{piece, shard};
use super::step::{Action, Step};

/// One lane on one member: piece `lane` of `lanes` of every part, parts being even.
#[derive(Debug, Clone)]
pub(super) struct Rooted {
    pub(super) root: u32,
    /// From the root to all, else from all to the root.
    pub(super) scatter: bool,
    pub(super) member: u32,
    pub(super) members: u32,
    pub(super) elements: u64,
    pub(super) lane: u32,
    pub(super) lanes: u64,
}

impl Rooted {
    /// The lane's piece of the part of `member`.
    fn piece(&self, member: u32) -> Range<u64> {
        piece(shard(self.elements, self.members.into(), member.into()), self.lanes, self.lane)
    }

    /// Sum over the messages sent of `count(length)`.
    fn sent(&self, count: impl Fn(u64) -> u64) -> u64 {
        let of = |member: u32| {
            let piece = self.piece(member);
            count(piece.end - piece.start)
        };
        match (self.scatter, self.member == self.root) {
            (true, true) => (0..self.members).filter(|other| *other != self.root).map(of).sum(),
            (false, false) => of(self.member),
            _ => 0,
        }
    }
}

impl Steps for Rooted {
    fn len(&self) -> u32 {
        if self.member == self.root { self.members - 1 } else { 1 }
    }

    /// The root goes round the others, the nearest first.
    fn step(&self, k: u32) -> Step {
        let (peer, part) = match self.member == self.root {
            true => {
                let other = (self.root + k + 1) % self.members;
                (other, other)
            }
            false => (self.root, self.member),
        };
        let sends = (self.member == self.root) == self.scatter;
        Step::new(if sends { Action::Send } else { Action::RecvInto }, peer, self.piece(part))
    }

    fn messages(&self) -> u64 {
        self.sent(|length| u64::from(length > 0))
    }

    fn elements_sent(&self) -> u64 {
        self.sent(|length| length)
    }
}
