//! Runs double trees over channels: two complementary binary trees between nodes, a chain in each, pipelined in chunks.
//!
//! Sanders, Speck and Träff 2009 (two-tree algorithms); NCCL's `trees.cc` and `connect.cc`. A node that is inner in one
//! tree is a leaf of the other, each of which carries half of a channel's share, so that all links work both ways: a
//! node sends and receives 2n elements at most, n on two nodes. Channel c connects to other nodes at member c of each,
//! on its own rail. One way is ⌊log2(N − 1)⌋ + 1 rounds between N nodes and s − 1 in a node of s.

use super::super::node_trees::{levels, neighbours};
use super::prelude::*;
use super::trees::{TreePosition, Trees, Ways};

pub(super) static ENTRY: Entry = Entry {
    name: "double-tree",
    parameters: &[Parameter::CHANNELS, Parameter::Protocol(Method::Tree)],
    help: "two complementary trees between nodes and a chain inside each, on that many channels; :PROTOCOL may follow",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| {
        let (group, (smallest, largest)) = (call.group.clone(), call.group.sizes());
        if smallest == 0 {
            return Err(call.refuse("every node needs a member"));
        }
        let depth = levels(group.node_count()) + largest - 1;
        let (members, trees) = (call.members(), 2 * call.algorithm.count(0));
        let place = move |member, tree| Some(place(&group, member, tree));
        Ok(Box::new(Trees {
            members,
            trees,
            depth,
            is_pipelined: true,
            in_turn: 0,
            ways: Ways::of(call.collective),
            per_flow: 2 * largest,
            place,
        }))
    },
    by_nodes: true,
    ..Entry::PLAIN
};

/// The member of a node that exchanges with other nodes on a channel.
fn leader(group: &Group, node: u32, channel: u32) -> u32 {
    let (start, size) = group.extent(node);
    start + channel % size
}

/// The position of a member in a tree: even trees are a channel's first, odd ones its second.
fn place(group: &Group, member: u32, tree: u32) -> ChainedPosition {
    let node = group.node_of(member);
    let (channel, mirrored) = (tree / 2, tree % 2 == 1);
    let (start, size) = group.extent(node);
    let at = (member - start + size - channel % size) % size;
    let along = |at: u32| start + (channel + at) % size;
    let mut below = Vec::new();
    if at + 1 < size {
        below.push(along(at + 1));
    }
    if at > 0 {
        return ChainedPosition { parent: Some(along(at - 1)), below };
    }
    let (above, children) = neighbours(node, group.node_count(), mirrored);
    below.extend(children.into_iter().map(|child| leader(group, child, channel)));
    ChainedPosition { parent: above.map(|above| leader(group, above, channel)), below }
}

/// A member's position: in its node's chain, whose head is a member of the tree between nodes.
#[derive(Debug)]
struct ChainedPosition {
    parent: Option<u32>,
    /// The chain's first.
    below: Vec<u32>,
}

impl TreePosition for ChainedPosition {
    fn parent(&self) -> Option<u32> {
        self.parent
    }

    fn children(&self) -> u32 {
        self.below.len() as u32
    }

    fn child(&self, index: u32) -> u32 {
        self.below[index as usize]
    }
}
