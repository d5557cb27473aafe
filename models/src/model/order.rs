//! Sorts topologically: keeps the order of the file where it is topological, and names a cycle where no order exists.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use petgraph::Direction::{Incoming, Outgoing};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// Node indices of `graph` such that each edge points forwards, the smallest possible index first.
///
/// # Errors
/// The nodes of one cycle in the direction of its edges, beginning with the smallest.
pub(super) fn order<N>(graph: &DiGraph<N, ()>) -> Result<Vec<usize>, Vec<usize>> {
    let mut missing: Vec<usize> =
        graph.node_indices().map(|node| graph.neighbors_directed(node, Incoming).count()).collect();
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..missing.len()).filter(|node| missing[*node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for next in graph.neighbors_directed(NodeIndex::new(node), Outgoing) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                ready.push(Reverse(next.index()));
            }
        }
    }
    if order.len() == missing.len() { Ok(order) } else { Err(cycle(graph)) }
}

/// A cycle of a graph that has one.
fn cycle<N>(graph: &DiGraph<N, ()>) -> Vec<usize> {
    let knots = tarjan_scc(graph).into_iter().map(|knot| {
        let mut members: Vec<usize> = knot.iter().map(|node| node.index()).collect();
        members.sort_unstable();
        members
    });
    let is_knot = |members: &Vec<usize>| {
        members.len() > 1 || graph.contains_edge(NodeIndex::new(members[0]), NodeIndex::new(members[0]))
    };
    let Some(members) = knots.filter(is_knot).min() else { return Vec::new() };
    // Inside a strongly connected component every node has a successor, so the walk must return to a visited node.
    let mut path = vec![members[0]];
    loop {
        let last = NodeIndex::new(path[path.len() - 1]);
        let inside = graph.neighbors_directed(last, Outgoing).map(NodeIndex::index);
        let Some(next) = inside.filter(|node| members.binary_search(node).is_ok()).min() else { return path };
        if let Some(start) = path.iter().position(|node| *node == next) {
            let mut found = path.split_off(start);
            let least = found.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(place, _)| place);
            found.rotate_left(least);
            return found;
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(u32, u32)]) -> DiGraph<(), ()> {
        let mut graph = DiGraph::new();
        (0..nodes).for_each(|_| {
            graph.add_node(());
        });
        for (from, to) in edges {
            graph.add_edge(NodeIndex::from(*from), NodeIndex::from(*to), ());
        }
        graph
    }

    #[test]
    fn the_file_order_is_kept_where_possible() {
        assert_eq!(order(&graph(4, &[(0, 1), (0, 2), (1, 3), (2, 3)])), Ok(vec![0, 1, 2, 3]));
        // 1 waits for 3; 2 need not wait.
        assert_eq!(order(&graph(4, &[(0, 2), (0, 3), (3, 1)])), Ok(vec![0, 2, 3, 1]));
    }

    #[test]
    fn the_error_names_the_cycle_and_nothing_else() {
        assert_eq!(order(&graph(5, &[(0, 1), (1, 3), (3, 2), (2, 1), (2, 4)])), Err(vec![1, 3, 2]));
        assert_eq!(order(&graph(3, &[(0, 1), (1, 1), (1, 2)])), Err(vec![1]));
        // From the smallest node 1 the walk enters the cycle 2 → 3 through an edge; either loop found is a true one.
        let tangled = graph(4, &[(1, 2), (2, 3), (3, 2), (3, 1)]);
        let found = order(&tangled).expect_err("cyclic");
        for (place, node) in found.iter().enumerate() {
            let next = found[(place + 1) % found.len()];
            assert!(tangled.contains_edge(NodeIndex::new(*node), NodeIndex::new(next)), "{found:?}");
        }
    }
}
