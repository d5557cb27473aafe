//! Scatter and gather: the root hands every member its part, or collects the parts, with one message to or from each.
//!
//! One round; the root sends (or takes in) n(p − 1)/p elements through its own wire. A data-parallel table that moves a node's
//! whole batch through its first GPU does both in every step (Kumar et al. 2018 §4.3).

use std::ops::Range;
use std::sync::Arc;

use super::super::lanes::{Lanes, Steps};
use super::super::shard::{Split, piece, shard};
use super::super::step::{Action, Step};

/// A root and the others.
#[derive(Debug)]
pub(super) struct Rooted {
    pub(super) members: u32,
    pub(super) root: u32,
    /// From the root to all, else from all to the root.
    pub(super) scatter: bool,
}

impl Lanes for Rooted {
    fn steps(&self, member: u32, lane: u32, split: &Split) -> Arc<dyn Steps> {
        let &Rooted { members, root, scatter } = self;
        Arc::new(Parts { root, scatter, member, members, elements: split.elements, lane, lanes: split.chunks })
    }

    fn rounds(&self) -> u32 {
        u32::from(self.members > 1)
    }

    /// Longer parts are the first members'; the root keeps its own.
    fn largest_message(&self, split: &Split) -> u64 {
        let part = shard(split.elements, self.members.into(), u64::from(self.root == 0));
        if self.members == 1 { 0 } else { (part.end - part.start).div_ceil(split.chunks) }
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        elements.div_ceil(self.members.into()).div_ceil(chunk)
    }
}

/// One lane on one member: piece `lane` of `lanes` of every part, parts being even.
#[derive(Debug)]
struct Parts {
    root: u32,
    scatter: bool,
    member: u32,
    members: u32,
    elements: u64,
    lane: u32,
    lanes: u64,
}

impl Parts {
    /// The lane's piece of the part of `member`.
    fn piece(&self, member: u32) -> Range<u64> {
        piece(shard(self.elements, self.members.into(), member.into()), self.lanes, self.lane)
    }
}

impl Steps for Parts {
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
}
