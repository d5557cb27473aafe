//! Determines which samples a rank takes through layers at once, and whose losses it computes.

use crate::{Axis, PassRanks, Piece, Program};

impl Program {
    /// The samples that `rank` takes in a pass through shared layers, by their source; without a pass, the micro-batch
    /// of `source`.
    pub fn pieces(&self, pass: Option<u32>, rank: u32, source: u32) -> Vec<Piece> {
        let (Some(pass), Some(sharding)) = (pass, &self.sharding) else {
            return vec![Piece { worker: source, first: 0, count: self.batch_per_rank }];
        };
        // Ranks along other axes have different samples.
        let first = if sharding.axis == Axis::Tensor { self.source(rank) } else { 0 };
        sharding.passes[pass as usize].iter().map(|piece| Piece { worker: first + piece.worker, ..*piece }).collect()
    }

    /// Whether the first rank of each node computes the losses of all its workers, so that each worker's are found
    /// among the losses of single samples.
    pub fn takes_losses_by_node(&self) -> bool {
        self.sharding.as_ref().is_some_and(|sharding| sharding.pass_ranks == PassRanks::FirstOfNode)
    }

    /// How many workers' losses `rank` computes: its own, or those of its node where the node's first rank
    /// computes all.
    pub fn losses_of(&self, rank: u32) -> usize {
        self.sharding.as_ref().map_or(1, |sharding| sharding.losses_of(rank))
    }

    /// How many ranks compute the loss of the samples of one pass through shared layers, each for all of them.
    pub fn ranks_of_pass(&self) -> u32 {
        self.sharding.as_ref().map_or(1, |sharding| sharding.ranks)
    }
}
