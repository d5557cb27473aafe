//! Runs double trees over channels: two complementary binary trees between nodes, a chain in each, pipelined in chunks.
//!
//! Sanders, Speck and Träff 2009 (two-tree algorithms); NCCL's `trees.cc` and `connect.cc`. A node that is inner in one
//! tree is a leaf of the other, each of which carries half of a channel's share, so that all links work both ways: a
//! node sends and receives 2n elements at most, n on two nodes. Channel c connects to other nodes at member c of each,
//! on its own rail. One way is ⌊log2(N − 1)⌋ + 1 rounds between N nodes and s − 1 in a node of s.

use super::prelude::*;
use super::trees::{Place, Trees, Ways};

pub(super) static ENTRY: Entry = Entry {
    name: "double-tree",
    parameters: &[
        Parameter::Count {
            what: "the number of channels",
            example: 4,
            most: 64,
            because: "more channels than NCCL can have",
        },
        Parameter::Protocol(Method::Tree),
    ],
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
fn place(group: &Group, member: u32, tree: u32) -> ChainedPlace {
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
        return ChainedPlace { parent: Some(along(at - 1)), below };
    }
    let (above, children) = neighbours(node, group.node_count(), mirrored);
    below.extend(children.into_iter().map(|child| leader(group, child, channel)));
    ChainedPlace { parent: above.map(|above| leader(group, above, channel)), below }
}

/// The node above and those below in the first of two complementary trees, or in the second, `mirrored` one.
pub(super) fn neighbours(node: u32, nodes: u32, mirrored: bool) -> (Option<u32>, Vec<u32>) {
    // The second tree is the first one with nodes counted from the end, or where their number is odd from
    // the second on.
    let turned = |node: u32, back: bool| match (mirrored, nodes.is_multiple_of(2), back) {
        (false, ..) => node,
        (true, true, _) => nodes - 1 - node,
        (true, false, false) => (node + nodes - 1) % nodes,
        (true, false, true) => (node + 1) % nodes,
    };
    let number = turned(node, false);
    let below = children(number, nodes).map(|child| turned(child, true)).collect();
    (parent(number, nodes).map(|above| turned(above, true)), below)
}

/// Rounds of one way between `nodes`: those of node 1, whose every step upwards doubles it.
pub(super) fn levels(nodes: u32) -> u32 {
    if nodes > 1 { (nodes - 1).ilog2() + 1 } else { 0 }
}

/// The node above in the in-order tree, whose root is 0: a node's level is that of its lowest bit.
fn parent(node: u32, nodes: u32) -> Option<u32> {
    let bit = node & node.wrapping_neg();
    let without = node.checked_sub(bit).filter(|_| node > 0)?;
    let up = u64::from(without) | (u64::from(bit) << 1);
    Some(if up < u64::from(nodes) { up as u32 } else { without })
}

/// The nodes below, one on each side: half of its lowest bit away, or nearer where there is no such node.
fn children(node: u32, nodes: u32) -> impl Iterator<Item = u32> {
    let half = match node {
        0 if nodes > 1 => 1 << (nodes - 1).ilog2(),
        0 => 0,
        _ => (node & node.wrapping_neg()) / 2,
    };
    let mut above = half;
    while above > 0 && u64::from(node) + u64::from(above) >= u64::from(nodes) {
        above /= 2;
    }
    let before = (node > 0 && half > 0).then(|| node - half);
    before.into_iter().chain((above > 0).then(|| node + above))
}

/// A member's position: in its node's chain, whose head is a member of the tree between nodes.
#[derive(Debug)]
struct ChainedPlace {
    parent: Option<u32>,
    /// The chain's first.
    below: Vec<u32>,
}

impl Place for ChainedPlace {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_but_the_root_is_a_child_of_its_parent_and_leaves_of_one_tree_are_inner_in_the_other() {
        for nodes in 1..=65 {
            let mut below = vec![Vec::new(); nodes as usize];
            for node in 0..nodes {
                below[node as usize].extend(children(node, nodes));
                let climb = std::iter::successors(Some(node), |node| parent(*node, nodes)).count() as u32 - 1;
                assert!(climb <= levels(nodes) && (node != 1 || climb == levels(nodes)), "{node} of {nodes}");
            }
            let mut all: Vec<(u32, u32)> = (0..nodes).filter_map(|node| Some((parent(node, nodes)?, node))).collect();
            let mut listed: Vec<(u32, u32)> =
                (0..).zip(&below).flat_map(|(above, list)| list.iter().map(move |child| (above, *child))).collect();
            all.sort_unstable();
            listed.sort_unstable();
            assert_eq!(all, listed, "{nodes} nodes");
            // Counted from the end, where their number is even.
            let is_leaf = |node: u32| below[node as usize].is_empty();
            if nodes % 2 == 0 {
                assert!((0..nodes).all(|node| is_leaf(node) != is_leaf(nodes - 1 - node)), "{nodes} nodes");
            }
        }
    }
}
