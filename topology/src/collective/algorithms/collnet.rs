//! Sums in switches between nodes: along a chain in each node to the head of a share, then in one switch above the
//! heads of all nodes.
//!
//! NCCL's CollNet chain over InfiniBand's SHARP (`src/device/all_reduce.h`, `src/graph/connect.cc`). The buffer has a
//! share for each rail. A node's members add theirs along a chain to the head of a share, the GPU beside the rail's
//! NIC; the switch of the rail adds what the heads send once and multicasts the sum, which goes back down the chains. A
//! node of any number sends and receives n elements in all; a ring's sends 2n(p − 1)/p. Switches are the last members
//! and have no data, one for each rail; members are divided among nodes in order.

use super::prelude::*;
use super::trees::{TreePosition, Trees, Ways};

/// The number of nodes among which members are divided.
pub(super) const NODES: Parameter = Parameter::Count {
    what: "the number of nodes",
    example: 2,
    most: 1 << 20,
    because: "more nodes than a cluster has",
};
/// The number of switches that add between nodes.
pub(super) const RAILS: Parameter =
    Parameter::Count { what: "the number of rails", example: 1, most: 64, because: "more NICs than a node has" };

pub(super) static ENTRY: Entry = Entry {
    name: "collnet",
    parameters: &[NODES, RAILS],
    help: "chains in that many nodes, and a network switch on each of that many rails adds between them (SHARP)",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| {
        let nodes = Nodes::new(call)?;
        let (members, trees, depth) = (call.members(), nodes.rails, nodes.largest());
        let place = move |member, share| nodes.place(member, share);
        Ok(Box::new(Trees {
            members,
            trees,
            depth,
            is_pipelined: true,
            in_turn: nodes.nodes,
            ways: Ways::of(call.collective),
            per_flow: u32::MAX,
            place,
        }))
    },
    servers: |algorithm| algorithm.count(1),
    joins: Some(|algorithm, contributors, rail| {
        let nodes = Nodes { contributors, nodes: algorithm.count(0), rails: algorithm.count(1) };
        (0..nodes.nodes.min(contributors)).map(|node| nodes.head(node, rail)).collect()
    }),
    ..Entry::PLAIN
};

/// Members in nodes of equal size, or of one more in the first ones, and a switch after them for each rail.
#[derive(Debug, Clone, Copy)]
struct Nodes {
    contributors: u32,
    nodes: u32,
    rails: u32,
}

impl Nodes {
    /// Those of a call.
    ///
    /// # Errors
    /// Fewer members with data than nodes.
    fn new(call: &Call<'_>) -> Result<Nodes, InputError> {
        let (nodes, rails) = (call.algorithm.count(0), call.algorithm.count(1));
        match call.members().checked_sub(rails) {
            Some(contributors) if contributors >= nodes => Ok(Nodes { contributors, nodes, rails }),
            contributors => {
                let count = contributors.unwrap_or(0);
                let message = format!(
                    "{count} members with data in {nodes} nodes and {rails} switches: use at least a node each"
                );
                Err(call.refuse(message))
            }
        }
    }

    /// The first member of a node, and how many it has.
    fn extent(self, node: u32) -> (u32, u32) {
        let members = of_node(self.contributors, self.nodes, node);
        (members.start, members.len() as u32)
    }

    /// Members of the largest node.
    fn largest(self) -> u32 {
        self.contributors.div_ceil(self.nodes)
    }

    /// The member of a node that heads the share of a rail: heads are spread over the node as its NICs are.
    fn head(self, node: u32, rail: u32) -> u32 {
        let (start, size) = self.extent(node);
        start + (u64::from(rail) * u64::from(size) / u64::from(self.rails)) as u32
    }

    /// The position of a member in the tree of a share; `None` for the switches of others.
    fn place(self, member: u32, share: u32) -> Option<Link> {
        if let Some(rail) = member.checked_sub(self.contributors) {
            return (rail == share).then_some(Link::Switch { nodes: self, share });
        }
        let node = shard_of(self.contributors, self.nodes, member);
        let ((start, size), head) = (self.extent(node), self.head(node, share));
        let at = (member + size - head) % size;
        let along = |at: u32| start + (head - start + at) % size;
        let parent = if at == 0 { self.contributors + share } else { along(at - 1) };
        Some(Link::Member { parent, below: (at + 1 < size).then(|| along(at + 1)) })
    }
}

/// A member's position in the tree of a share.
#[derive(Debug)]
enum Link {
    /// In the chain of a node, which ends at the switch.
    Member { parent: u32, below: Option<u32> },
    /// Above the heads of all nodes.
    Switch { nodes: Nodes, share: u32 },
}

impl TreePosition for Link {
    fn parent(&self) -> Option<u32> {
        if let Link::Member { parent, .. } = self { Some(*parent) } else { None }
    }

    fn children(&self) -> u32 {
        match self {
            Link::Member { below, .. } => u32::from(below.is_some()),
            Link::Switch { nodes, .. } => nodes.nodes,
        }
    }

    fn child(&self, index: u32) -> u32 {
        match self {
            Link::Member { parent, below } => below.unwrap_or(*parent),
            Link::Switch { nodes, share } => nodes.head(index, *share),
        }
    }

    /// All nodes are equal, and get the sum in their order.
    fn served(&self, index: u32) -> u32 {
        self.child(index)
    }

    fn contributes(&self) -> bool {
        matches!(self, Link::Member { .. })
    }
}
