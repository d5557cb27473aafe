//! Scatter and gather: the root hands every member its part, or collects the parts, with one message to or from each.
//!
//! One round; the root sends (or takes in) n(p − 1)/p elements through its own wire. A data-parallel table that moves a node's
//! whole batch through its first GPU does both in every step (Kumar et al. 2018 §4.3).

use super::prelude::*;

/// A root and the others.
#[derive(Debug)]
pub(super) struct Rooted {
    pub(super) members: u32,
    pub(super) root: u32,
    /// From the root to all, else from all to the root.
    pub(super) scatter: bool,
}

impl Lanes for Rooted {
    /// The root goes round the others, the nearest first.
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (&Rooted { members, root, scatter }, &Split { elements, chunks, .. }) = (self, split);
        let is_root = member == root;
        let action = if is_root == scatter { Action::Send } else { Action::RecvInto };
        Lane::new(if is_root { members - 1 } else { 1 }, move |k| {
            let other = (root + k + 1) % members;
            let (peer, part) = if is_root { (other, other) } else { (root, member) };
            LaneStep::new(action, peer, piece(shard(elements, members.into(), part.into()), chunks, index))
        })
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
