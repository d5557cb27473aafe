//! Hierarchical allreduce: sum in each node, any algorithm across the nodes' leaders, broadcast in each node.
//!
//! Goyal 2017 §4.1 and §4.2. In a node the members form a chain to their leader, the first of them, and back. The three
//! phases are pipelined by chunk and not separated by barriers: a lane carries its chunk through all three, and lanes
//! follow each other. A node of s members adds s − 1 rounds before and s − 1 after those of the algorithm across.
//!
//! Buffers of less than 256 KiB, which latency and not bandwidth holds up, take a star instead: everybody hands its part to
//! the leader, which sums, and gets the result back from it, one round each way. (The paper's small buffers go through the
//! host's memory, where the CPU sums; here the leader stands for it.)
//!
//! Where the members of a node hold one contribution in common, the sum in the node falls away: leaders contribute for theirs.

use std::sync::Arc;

use super::step::{Action, Step};

/// Buffers of fewer bytes take the star inside nodes (Goyal 2017 §4.1: "256 KB or more" go by NCCL's rings).
pub(super) const SMALL_BYTES: u64 = 256 * 1024;

/// A member's part of a lane inside its node, round the part of its leader across nodes.
#[derive(Debug, Clone)]
pub(super) struct InNode {
    /// First member of each node, then the number of members.
    pub(super) starts: Arc<[u32]>,
    pub(super) member: u32,
    /// Members of its node before it, and behind it.
    before: u32,
    behind: u32,
    star: bool,
    /// Whether the node's members contribute each for themselves.
    sums: bool,
    pub(super) extent: (u64, u64),
}

impl InNode {
    /// Places `member` in its node, and tells the node's index.
    pub(super) fn new(
        starts: &Arc<[u32]>,
        (star, sums): (bool, bool),
        member: u32,
        extent: (u64, u64),
    ) -> (InNode, u32) {
        let node = starts.partition_point(|start| *start <= member) - 1;
        let (before, behind) = (member - starts[node], starts[node + 1] - 1 - member);
        (InNode { starts: Arc::clone(starts), member, before, behind, star, sums, extent }, node as u32)
    }

    /// Whether it takes part across nodes.
    pub(super) fn leads(&self) -> bool {
        self.before == 0
    }

    /// Steps before the leaders' part.
    pub(super) fn ups(&self) -> u32 {
        if self.sums { self.downs() } else { 0 }
    }

    /// Steps after it.
    pub(super) fn downs(&self) -> u32 {
        match (self.star, self.leads()) {
            (true, true) => self.behind,
            (true, false) => 1,
            (false, _) => self.before.min(1) + self.behind.min(1),
        }
    }

    /// Step `k` of the sum towards the leader.
    pub(super) fn up(&self, k: u32) -> Step {
        let range = self.extent.0..self.extent.1;
        match (self.star, self.leads()) {
            (true, true) => Step::new(Action::RecvSum, self.member + 1 + k, range),
            (true, false) => Step::new(Action::Send, self.member - self.before, range),
            (false, _) if self.behind > 0 && k == 0 => Step::new(Action::RecvSum, self.member + 1, range),
            (false, _) => Step::new(Action::Send, self.member - 1, range),
        }
    }

    /// Step `k` of the broadcast from the leader.
    pub(super) fn down(&self, k: u32) -> Step {
        let range = self.extent.0..self.extent.1;
        match (self.star, self.leads()) {
            (true, true) => Step::new(Action::Send, self.member + 1 + k, range),
            (true, false) => Step::new(Action::RecvInto, self.member - self.before, range),
            (false, false) if k == 0 => Step::new(Action::RecvInto, self.member - 1, range),
            (false, _) => Step::new(Action::Send, self.member + 1, range),
        }
    }

    /// Messages sent up and down the node.
    pub(super) fn messages(&self) -> u64 {
        let up = if self.sums { self.before.min(1) } else { 0 };
        let down = match (self.star, self.leads()) {
            (true, true) => self.behind,
            (true, false) => 0,
            (false, _) => self.behind.min(1),
        };
        if self.extent.0 == self.extent.1 { 0 } else { u64::from(up + down) }
    }

    /// Elements sent up and down the node.
    pub(super) fn elements_sent(&self) -> u64 {
        self.messages() * (self.extent.1 - self.extent.0)
    }
}
