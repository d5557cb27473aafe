//! Hierarchical allreduce: sum in each node, any algorithm across the nodes' leaders, broadcast in each node.
//!
//! Goyal 2017 §4.1 and §4.2. In a node the members form a chain to their leader, the first of them, and back. The three
//! phases are pipelined by chunk and not separated by barriers: a lane carries its chunk through all three, and lanes
//! follow each other. A node of s members adds s − 1 rounds before and s − 1 after those of the algorithm across.

use std::sync::Arc;

use super::step::{Action, Step};

/// A member's part of a lane inside its node, round the part of its leader across nodes.
#[derive(Debug, Clone)]
pub(super) struct NodeChain {
    /// First member of each node, then the number of members.
    pub(super) starts: Arc<[u32]>,
    pub(super) member: u32,
    /// The member before it in its node, none on the leader.
    pub(super) before: bool,
    /// Whether a member of its node comes after it.
    pub(super) after: bool,
    pub(super) extent: (u64, u64),
}

impl NodeChain {
    /// Places `member` in its node: the chain, and the node's index.
    pub(super) fn new(starts: &Arc<[u32]>, member: u32, extent: (u64, u64)) -> (NodeChain, u32) {
        let node = starts.partition_point(|start| *start <= member) - 1;
        let before = member > starts[node];
        let after = member + 1 < starts[node + 1];
        (NodeChain { starts: Arc::clone(starts), member, before, after, extent }, node as u32)
    }

    /// Steps before the leaders' part, and as many after it.
    pub(super) fn len(&self) -> u32 {
        u32::from(self.before) + u32::from(self.after)
    }

    /// Step `k` of the sum towards the leader.
    pub(super) fn up(&self, k: u32) -> Step {
        let range = self.extent.0..self.extent.1;
        if self.after && k == 0 {
            return Step::new(Action::RecvSum, self.member + 1, range);
        }
        Step::new(Action::Send, self.member - 1, range)
    }

    /// Step `k` of the broadcast from the leader.
    pub(super) fn down(&self, k: u32) -> Step {
        let range = self.extent.0..self.extent.1;
        if self.before && k == 0 {
            return Step::new(Action::RecvInto, self.member - 1, range);
        }
        Step::new(Action::Send, self.member + 1, range)
    }

    /// Messages sent up and down the node.
    pub(super) fn messages(&self) -> u64 {
        if self.extent.0 == self.extent.1 { 0 } else { u64::from(self.len()) }
    }

    /// Elements sent up and down the node.
    pub(super) fn elements_sent(&self) -> u64 {
        self.messages() * (self.extent.1 - self.extent.0)
    }
}
