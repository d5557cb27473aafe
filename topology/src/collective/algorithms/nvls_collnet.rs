//! Sums in the switches of several nodes, and in switches between them.
//!
//! NCCL's NVLS with SHARP (`src/transport/nvls.cc`, `coll_net.cc`): the switch of a node hands a head the sum of its
//! share, the head sends it to the switch of its rail, which adds what all nodes send and multicasts it, and each head
//! stores the result back to all of its node. n(1 + 1/s) elements up a member's own links in a node of s; a node of any
//! number sends n.

use super::nvls::Nvls;
use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "nvls-collnet",
    parameters: &[super::collnet::NODES, super::collnet::RAILS],
    help: "the switches of that many nodes add, and one on each of that many rails adds between nodes (SHARP)",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| Ok(Box::new(Nvls::new(call, call.algorithm.count(0), call.algorithm.count(1))?)),
    servers: |algorithm| algorithm.count(0).saturating_add(algorithm.count(1)),
    joins: Some(|algorithm, contributors, switch| {
        let (nodes, rails) = (algorithm.count(0), algorithm.count(1));
        match switch.checked_sub(nodes) {
            None => of_node(contributors, nodes, switch).collect(),
            // The first of the rail's heads in each node, beside whose NIC it is.
            Some(rail) => (0..nodes)
                .filter_map(|node| {
                    let mut members = of_node(contributors, nodes, node);
                    let head = head(members.len(), rails, rail);
                    members.nth(head)
                })
                .collect(),
        }
    }),
    ..Entry::PLAIN
};

/// The first member of a node of `size` whose share rail `rail` of `rails` adds.
fn head(size: usize, rails: u32, rail: u32) -> usize {
    (rail as usize * size).div_ceil(rails as usize)
}
