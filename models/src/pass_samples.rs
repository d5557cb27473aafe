//! Says which samples a rank takes through layers at once, and whose losses it computes.

use crate::{Axis, Piece, Program};

impl Program {
    /// The samples that `rank` takes in a pass through shared layers, by who draws them; without a pass, the micro-batch that
    /// `source` draws.
    pub fn pieces(&self, pass: Option<u32>, rank: u32, source: u32) -> Vec<Piece> {
        let (Some(pass), Some(sharding)) = (pass, &self.sharding) else {
            return vec![Piece { worker: source, first: 0, count: self.batch_per_rank }];
        };
        // Ranks along other axes have samples of their own.
        let first = if sharding.axis == Axis::Tensor { self.source(rank) } else { 0 };
        sharding.passes[pass as usize].iter().map(|piece| Piece { worker: first + piece.worker, ..*piece }).collect()
    }

    /// Whether the first rank of each node takes the losses of all its workers, so that losses of single samples tell the workers' apart.
    pub fn takes_losses_by_node(&self) -> bool {
        self.sharding.as_ref().is_some_and(|sharding| sharding.by_node())
    }

    /// How many workers' losses `rank` takes: its own, or those of its node where the node's first rank takes all.
    pub fn losses_of(&self, rank: u32) -> usize {
        match self.sharding.as_ref().filter(|sharding| sharding.by_node()) {
            Some(sharding) => sharding.passes.iter().find(|pass| pass[0].worker == rank).map_or(0, Vec::len),
            None => 1,
        }
    }

    /// How many ranks compute the loss of the samples of one pass through shared layers, each of all of them.
    pub fn ranks_of_pass(&self) -> u32 {
        self.sharding.as_ref().map_or(1, |sharding| sharding.ranks)
    }
}
