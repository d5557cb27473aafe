//! Runs a pipelined chain: chunks are summed along the ring to one root and return the opposite way.
//!
//! Kumar 2018 §5.1 calls it the pipelined ring. A chunk passes p − 1 members up and p − 1 down; with enough chunks in
//! flight the latency is hidden and a member inside the chain sends 2n elements: n towards the root, n away from it.
//! It is the tree in which every member has one child: root, root + 1, … in a row around the ring.

use super::k_ary_tree::Kary;
use super::prelude::*;
use super::trees::{Ways, rooted};

pub(super) static ENTRY: Entry = Entry {
    name: "pipelined-chain",
    help: "chunks are summed along the ring to one root and return in the opposite direction",
    serves: rooted,
    lanes: |call| {
        let chain = Kary { members: call.members(), arity: 1, trees: 1, root: call.root()? };
        Ok(Box::new(chain.lanes(Ways::of(call.collective))))
    },
    ..Entry::PLAIN
};
