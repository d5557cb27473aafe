//! Scatters and gathers: the root sends every member its part, or collects the parts, one message per member.
//!
//! One round; the root sends (or receives) n(p − 1)/p elements through its own wire. A data-parallel table that moves a
//! node's whole batch through its first GPU does both in every step (Kumar et al. 2018 §4.3).

use std::ops::Range;
use std::sync::Arc;

use super::prelude::*;

/// A root and the others.
#[derive(Debug)]
pub(super) struct Rooted {
    pub(super) members: u32,
    pub(super) root: u32,
    /// From the root to all, else from all to the root.
    pub(super) scatter: bool,
    /// The start of each part, and the end, if not all are even.
    pub(super) starts: Option<Arc<[u64]>>,
}

/// The part of a member.
fn part(members: u32, starts: Option<&[u64]>, elements: u64, member: u32) -> Range<u64> {
    match starts {
        None => shard(elements, members.into(), member.into()),
        Some(starts) => starts[member as usize]..starts[member as usize + 1],
    }
}

impl Rooted {
    /// Elements of the longest part that is sent: longer even ones are the first members', and the root keeps its own.
    fn longest(&self, elements: u64) -> u64 {
        let &Rooted { members, root, .. } = self;
        let length = |member| {
            let part = part(members, self.starts.as_deref(), elements, member);
            part.end - part.start
        };
        match &self.starts {
            _ if members == 1 => 0,
            None => length(u32::from(root == 0)),
            Some(_) => (0..members).filter(|member| *member != root).map(length).max().unwrap_or(0),
        }
    }
}

impl Lanes for Rooted {
    /// The root exchanges with the others in order, nearest first.
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (&Rooted { members, root, scatter, .. }, &Split { elements, chunks, .. }) = (self, split);
        let starts = self.starts.clone();
        let is_root = member == root;
        let action = if is_root == scatter { Action::Send } else { Action::RecvInto };
        Lane::new(if is_root { members - 1 } else { 1 }, move |k| {
            let other = (root + k + 1) % members;
            let (peer, owner) = if is_root { (other, other) } else { (root, member) };
            LaneStep::new(action, peer, piece(part(members, starts.as_deref(), elements, owner), chunks, index))
        })
    }

    fn rounds(&self) -> u32 {
        u32::from(self.members > 1)
    }

    fn largest_message(&self, split: &Split) -> u64 {
        self.longest(split.elements).div_ceil(split.chunks)
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        match &self.starts {
            None => elements.div_ceil(self.members.into()),
            Some(_) => self.longest(elements),
        }
        .div_ceil(chunk)
    }
}
