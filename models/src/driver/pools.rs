//! Divides the micro-batches of learners that claim them into pools, one for each process, and says who prepares which.
//!
//! A pool's batches are taken in order by whichever of its learners is free (Koliousis et al. 2019, §4.3). They are
//! prepared in that order too, into a ring with room for some batches a learner (§4.5): of k learners the j-th prepares
//! the pool's batches j, j + k, j + 2k, …

/// The pools of micro-batches that ranks share: the ranks of a process wait for, and take those of, each other and no others.
///
/// ```
/// # use lockstep_models::Pools;
/// // Three ranks with two batches each an iteration; ranks 0 and 2 share a process and take batches 0, 1, 4 and 5.
/// let pools = Pools::new(3, 2, |rank| rank % 2);
/// assert_eq!([0, 1, 2, 3].map(|place| pools.batch(0, place)), [0, 1, 4, 5]);
/// // Of these, rank 2 prepares the second and the fourth; batch 5 of the second iteration is its fourth one.
/// assert_eq!((pools.preparer(0, 1), pools.preparer(1, 5)), ((2, 0), (2, 3)));
/// assert_eq!(pools.prepared(2, 3), (1, 5));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pools {
    /// By rank: its pool, and its place among the pool's ranks.
    of: Vec<(u32, u32)>,
    /// By pool: its ranks.
    ranks: Vec<Vec<u32>>,
    /// Micro-batches of each rank in an iteration.
    each: u32,
}

impl Pools {
    /// The pools of `workers` ranks with `each` micro-batches an iteration, one for each process; `process` says which
    /// a rank belongs to.
    pub fn new(workers: u32, each: u32, process: impl Fn(u32) -> u32) -> Pools {
        let mut processes: Vec<u32> = (0..workers).map(&process).collect();
        processes.sort_unstable();
        processes.dedup();
        let (mut of, mut ranks) = (Vec::new(), vec![Vec::new(); processes.len()]);
        for rank in 0..workers {
            let pool = processes.partition_point(|other| *other < process(rank));
            of.push((pool as u32, ranks[pool].len() as u32));
            ranks[pool].push(rank);
        }
        Pools { of, ranks, each }
    }

    /// The pool of a rank.
    pub fn of(&self, rank: u32) -> u32 {
        self.of[rank as usize].0
    }

    /// Number of pools.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Whether several ranks are each alone in a pool, so that none shares batches or waits for another.
    pub fn are_of_one(&self) -> bool {
        self.count() > 1 && self.ranks.iter().all(|ranks| ranks.len() == 1)
    }

    /// Micro-batches of each rank in an iteration.
    pub fn each(&self) -> u32 {
        self.each
    }

    /// The ranks of a pool, in order.
    pub fn ranks(&self, pool: u32) -> &[u32] {
        &self.ranks[pool as usize]
    }

    /// The micro-batch that is taken as number `place` of a pool in an iteration, as a number within the iteration's
    /// global batch.
    pub fn batch(&self, pool: u32, place: u32) -> u32 {
        self.ranks(pool)[(place / self.each) as usize] * self.each + place % self.each
    }

    /// The rank that prepares a micro-batch of an iteration, and how many it has prepared before since the run began.
    pub fn preparer(&self, iteration: u32, batch: u32) -> (u32, u64) {
        let (pool, owner) = self.of[(batch / self.each) as usize];
        let (place, ranks) = (owner * self.each + batch % self.each, self.ranks(pool));
        let [number, rank] = [place / ranks.len() as u32, place % ranks.len() as u32];
        (ranks[rank as usize], u64::from(iteration) * u64::from(self.each) + u64::from(number))
    }

    /// The iteration and the micro-batch that `rank` prepares when it has prepared `number` before.
    pub fn prepared(&self, rank: u32, number: u64) -> (u32, u32) {
        let (pool, index) = self.of[rank as usize];
        let [iteration, round] = [number / u64::from(self.each), number % u64::from(self.each)].map(|n| n as u32);
        (iteration, self.batch(pool, round * self.ranks(pool).len() as u32 + index))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each batch is prepared once, by a rank of its pool, and the ranks of a pool take turns.
        #[test]
        fn each_batch_is_prepared_once(workers in 1u32..9, each in 1u32..5, processes in 1u32..4) {
            let pools = Pools::new(workers, each, |rank| rank % processes);
            for pool in 0..pools.count() as u32 {
                for iteration in 0..3 {
                    for place in 0..pools.ranks(pool).len() as u32 * each {
                        let batch = pools.batch(pool, place);
                        let (rank, number) = pools.preparer(iteration, batch);
                        prop_assert_eq!(pools.of(rank), pool);
                        prop_assert_eq!(rank, pools.ranks(pool)[place as usize % pools.ranks(pool).len()]);
                        prop_assert_eq!(pools.prepared(rank, number), (iteration, batch));
                    }
                }
            }
            let all = (0..workers).flat_map(|rank| (0..u64::from(3 * each)).map(move |number| (rank, number)));
            let mut prepared: Vec<(u32, u32)> = all.map(|(rank, number)| pools.prepared(rank, number)).collect();
            prepared.sort_unstable();
            prop_assert!(prepared.into_iter().eq((0..3).flat_map(|i| (0..workers * each).map(move |batch| (i, batch)))));
        }
    }
}
