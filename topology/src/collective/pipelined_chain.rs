//! Pipelined chain: chunks are summed along the ring to one root and return in the opposite direction.
//!
//! Kumar 2018 §5.1 calls it the pipelined ring. A chunk passes p − 1 members up and p − 1 down; with enough chunks in
//! flight the latency is hidden and a member inside the chain sends 2n elements: n towards the root, n away from it.
//! It is the tree in which every member has one child, so it needs no steps of its own.

/// Children of each member: root, root + 1, … stand in a row around the ring.
pub(super) const ARITY: u32 = 1;
