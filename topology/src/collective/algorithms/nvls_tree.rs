//! Sums in the switches of several nodes, and over a double tree between the heads of each share.
//!
//! NCCL's NVLS tree (2.18 and later): a node's switch hands a head the sum of its share, heads of the same share on
//! other nodes are two complementary trees, as in `double_tree.rs`, and each stores the result back to all of its node.
//! n(1 + 1/s) elements up a member's own links in a node of s; a node sends n between two nodes, 2n among more.

use super::nvls::Nvls;
use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "nvls-tree",
    parameters: &[Parameter::Count {
        what: "the number of nodes",
        example: 2,
        most: 1 << 20,
        because: "more nodes than a cluster has",
    }],
    help: "the switches of that many nodes add, and double trees join them",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| Ok(Box::new(Nvls::new(call, call.algorithm.count(0), 0)?)),
    servers: |algorithm| algorithm.count(0),
    joins: Some(|algorithm, contributors, node| of_node(contributors, algorithm.count(0), node).collect()),
    ..Entry::PLAIN
};
