//! Runs multi-colour k-ary trees: each of k shards is summed up and broadcast down its own tree.
//!
//! Kumar 2018 §4.2 and Fig. 2. Each tree is a k-ary tree numbered breadth first with I = ⌈(N − 1)/k⌉ inner members, and
//! colour c's begins at member ⌊c·N/k⌋. Wherever k·I ≤ N the inner members of the colours are disjoint: 4 colours on 8
//! members have (0,1), (2,3), (4,5), (6,7). Elsewhere the trees are the same, rotated the same way, and neighbouring
//! colours share one inner member at most (as long as there are no more colours than members). Where they are disjoint,
//! a member sends 2n elements at most: a share up each tree, and k shares down the one tree in which it is an inner
//! member. A chunk takes 2·(⌈log_k((k − 1)·N + 1)⌉ − 1) rounds, hidden by the chunks that follow; colours do not wait
//! for each other.

use super::k_ary_tree::Kary;
use super::prelude::*;
use super::trees::Ways;

pub(super) static ENTRY: Entry = Entry {
    name: "multi-color",
    // More colours than this take longer to go through than any buffer needs.
    parameters: &[Parameter::Count {
        what: "the number of colours",
        example: 4,
        most: 4096,
        because: "each colour is a tree of its own",
    }],
    help: "that many k-ary trees, each with its share of the buffer",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| {
        let colors = call.algorithm.count(0);
        let trees = Kary { members: call.members(), arity: colors, trees: colors, root: 0 };
        Ok(Box::new(trees.lanes(Ways::of(call.collective))))
    },
    ..Entry::PLAIN
};
