//! `Group`: lists the members of a collective, and which share a node.
//!
//! Members are numbered 0.. inside the group; which rank each one is belongs to the program, not to the algorithm.

use std::sync::Arc;

/// Members of a collective, in order; consecutive ones may share a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    members: u32,
    /// First member of each node, then the number of members; absent where every member has its own node.
    starts: Option<Arc<[u32]>>,
}

impl Group {
    /// `members` members, each on its own node.
    pub fn flat(members: u32) -> Group {
        Group { members, starts: None }
    }

    /// Members on nodes: `sizes[n]` consecutive members share node `n`. The first member of a node leads it.
    pub fn nodes(sizes: &[u32]) -> Group {
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut members = 0u32;
        starts.push(0);
        for size in sizes {
            members = members.saturating_add(*size);
            starts.push(members);
        }
        Group { members, starts: Some(starts.into()) }
    }

    /// Number of members.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Number of nodes.
    pub fn node_count(&self) -> u32 {
        self.starts.as_ref().map_or(self.members, |starts| starts.len() as u32 - 1)
    }

    /// First member of each node and the end; `None` where every member has its own node.
    pub(super) fn starts(&self) -> Option<&Arc<[u32]>> {
        self.starts.as_ref()
    }

    /// The node of a member.
    pub(super) fn node_of(&self, member: u32) -> u32 {
        match &self.starts {
            Some(starts) => starts.partition_point(|start| *start <= member) as u32 - 1,
            None => member,
        }
    }

    /// The first member of a node, and how many it has.
    pub(super) fn extent(&self, node: u32) -> (u32, u32) {
        match &self.starts {
            Some(starts) => (starts[node as usize], starts[node as usize + 1] - starts[node as usize]),
            None => (node, 1),
        }
    }

    /// Members of the smallest and of the largest node; 0 and 0 without nodes.
    pub(super) fn sizes(&self) -> (u32, u32) {
        let Some(starts) = &self.starts else { return (self.members.min(1), self.members.min(1)) };
        let sizes = || starts.windows(2).map(|pair| pair[1] - pair[0]);
        (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0))
    }
}
