//! Builds two complementary binary trees between nodes: a node that is inner in one is a leaf of the other.
//!
//! Sanders, Speck and Träff 2009 (two-tree algorithms); NCCL's `trees.cc`.

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
