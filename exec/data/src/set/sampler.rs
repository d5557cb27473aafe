//! Orders the samples for training: one shuffle per epoch and pool, divided among workers and micro-batches.
//!
//! A micro-batch's samples depend on its number within its global batch alone (rank · accumulate + repetition), so k
//! workers with a micro-batches each and one worker with k·a of them see the same micro-batches. With one pool this is
//! a single random shuffle per epoch, divided among all workers, as Goyal et al. 2017 §3, Remark 4 asks. With a pool
//! for each node, each node samples with a seed of its own and divides its samples among its ranks (Kumar et al. 2018
//! §3); its memory holds all samples, so a shuffle is a permutation of indices and moves no sample (§4.1).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lockstep_topology::InputError;

use crate::random::{Purpose, shuffle, stream_within};

/// Assigns samples to each worker's micro-batches; shared by the workers of a process.
///
/// Samples at the end of an epoch that do not fill a global batch are dropped in that epoch; each sample occurs at most
/// once per epoch and pool.
///
/// ```
/// # use lockstep_data::Sampler;
/// // 20 samples, micro-batches of 3, two of them on each of 3 workers: 18 a global batch, so 2 are left over.
/// let sampler = Sampler::new(20, 3, 2, &[3], 1).unwrap();
/// assert_eq!((sampler.global_batch(), sampler.batches_per_epoch()), (18, 1));
/// let mut samples = Vec::new();
/// sampler.micro_batch(0, 2, 1, &mut samples);
/// assert_eq!(samples.len(), 3);
/// ```
#[derive(Debug)]
pub struct Sampler {
    samples: u32,
    batch_per_rank: u32,
    accumulate: u32,
    /// The first worker of each pool, and the number of workers.
    starts: Vec<u32>,
    seed: u64,
    /// The orders of two epochs by pool and epoch mod 2: workers may be on both sides of an epoch's end.
    orders: Mutex<BTreeMap<(usize, u64), Order>>,
}

/// The order of one epoch.
#[derive(Debug)]
struct Order {
    epoch: u64,
    samples: Arc<[u32]>,
}

impl Sampler {
    /// A sampler over `samples` samples for workers that each take `accumulate` micro-batches of `batch_per_rank`
    /// samples per step; `pools` lists the number of workers that draw from each pool, in the order of ranks.
    ///
    /// # Errors
    /// A count of zero, or too few samples for one global batch.
    pub fn new(
        samples: usize,
        batch_per_rank: u32,
        accumulate: u32,
        pools: &[u32],
        seed: u64,
    ) -> Result<Sampler, InputError> {
        let mut starts = vec![0u32];
        for pool in pools {
            starts.push(starts[starts.len() - 1].saturating_add(*pool));
        }
        let workers = starts[pools.len()];
        let most = u32::MAX;
        let samples = u32::try_from(samples).map_err(|_| {
            InputError::flag("data", samples.to_string(), format!("more than {most} samples are too many"))
        })?;
        for (key, value) in
            [("data", samples), ("batch_per_rank", batch_per_rank), ("accumulate", accumulate), ("ranks", workers)]
        {
            if value == 0 {
                return Err(InputError::flag(key, "0", "must be at least 1"));
            }
        }
        // Three 32-bit factors fit 96 bits.
        let global = u128::from(batch_per_rank) * u128::from(accumulate) * u128::from(workers);
        if global > u128::from(samples) {
            return Err(InputError::flag(
                "batch_per_rank",
                batch_per_rank.to_string(),
                format!(
                    "a global batch takes {global} samples ({batch_per_rank} per rank × {accumulate} micro-batches × \
                     {workers} workers), but only {samples} are there to train on: use a smaller batch or more data"
                ),
            ));
        }
        Ok(Sampler { samples, batch_per_rank, accumulate, starts, seed, orders: Mutex::default() })
    }

    /// Workers of all pools.
    fn workers(&self) -> u32 {
        self.starts[self.starts.len() - 1]
    }

    /// Samples per step over all workers: kn in Goyal et al. 2017, times the micro-batches.
    pub fn global_batch(&self) -> u32 {
        self.batch_per_rank * self.accumulate * self.workers()
    }

    /// Complete global batches in an epoch, at least 1.
    pub fn batches_per_epoch(&self) -> u64 {
        u64::from(self.samples / self.global_batch())
    }

    /// Replaces `out` by the samples of micro-batch `repetition` of worker `rank` in global batch `batch`, counted
    /// since the start of training; returns the place of the first among all samples of the training.
    ///
    /// # Panics
    /// When there is no such rank or repetition.
    pub fn micro_batch(&self, batch: u64, rank: u32, repetition: u32, out: &mut Vec<u32>) -> u64 {
        assert!(rank < self.workers() && repetition < self.accumulate, "no micro-batch {repetition} of rank {rank}");
        let (epoch, of_epoch) = (batch / self.batches_per_epoch(), batch % self.batches_per_epoch());
        let pool = self.starts.partition_point(|start| *start <= rank) - 1;
        let (first, end) = (self.starts[pool], self.starts[pool + 1]);
        let of_pool = |workers: u32| workers * self.accumulate * self.batch_per_rank;
        // Below `samples`, so it fits.
        let before = of_pool(rank - first) + repetition * self.batch_per_rank;
        let start = (of_epoch as u32 * of_pool(end - first) + before) as usize;
        let order = self.order(pool, epoch);
        out.clear();
        out.extend_from_slice(&order[start..start + self.batch_per_rank as usize]);
        batch * u64::from(self.global_batch()) + u64::from(of_pool(first) + before)
    }

    /// The samples in the order that `pool` has in `epoch`.
    fn order(&self, pool: usize, epoch: u64) -> Arc<[u32]> {
        // A worker that panicked here left at worst an old order, which is still valid.
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (pool, epoch % 2);
        if let Some(order) = orders.get(&key).filter(|order| order.epoch == epoch) {
            return order.samples.clone();
        }
        let mut samples: Vec<u32> = (0..self.samples).collect();
        shuffle(&mut stream_within(self.seed, Purpose::Epoch, epoch, pool as u64), &mut samples);
        let samples: Arc<[u32]> = samples.into();
        orders.insert(key, Order { epoch, samples: samples.clone() });
        samples
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All micro-batches of global batch `batch`, in the order of ranks, then repetitions.
    fn global(sampler: &Sampler, batch: u64) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        for rank in 0..sampler.workers() {
            for repetition in 0..sampler.accumulate {
                let mut samples = vec![99];
                sampler.micro_batch(batch, rank, repetition, &mut samples);
                all.push(samples);
            }
        }
        all
    }

    proptest! {
        #[test]
        fn each_sample_occurs_once_per_epoch_for_any_number_of_workers(
            workers in 1u32..9, accumulate in 1u32..5, batch in 1u32..7, batches in 1u32..4, rest in 0u32..3,
            epoch in 0u64..5, seed: u64,
        ) {
            let global_batch = workers * accumulate * batch;
            let rest = rest.min(global_batch - 1);
            let samples = global_batch * batches + rest;
            let sampler = Sampler::new(samples as usize, batch, accumulate, &[workers], seed).unwrap();
            prop_assert_eq!(sampler.batches_per_epoch(), u64::from(batches));
            let first = epoch * u64::from(batches);
            let mut seen: Vec<u32> = (first..first + u64::from(batches)).flat_map(|b| global(&sampler, b).concat()).collect();
            seen.sort_unstable();
            let length = seen.len();
            seen.dedup();
            prop_assert_eq!(length, seen.len(), "a sample came twice");
            prop_assert_eq!(length as u32, samples - rest);
            prop_assert!(seen.iter().all(|sample| *sample < samples));
            if rest == 0 {
                prop_assert_eq!(seen, (0..samples).collect::<Vec<_>>());
            }
        }

        #[test]
        fn workers_and_accumulation_see_the_same_micro_batches(
            workers in 1u32..9, accumulate in 1u32..5, batch in 1u32..7, step in 0u64..9, seed: u64,
        ) {
            let spread = Sampler::new(1_000, batch, accumulate, &[workers], seed).unwrap();
            let alone = Sampler::new(1_000, batch, accumulate * workers, &[1], seed).unwrap();
            prop_assert_eq!(global(&spread, step), global(&alone, step));
        }
    }

    proptest! {
        /// Kumar et al. 2018, §3: each node draws as if it were alone, with its own seed, and divides the samples among
        /// its ranks.
        #[test]
        fn a_pool_draws_as_if_it_were_alone(
            pools in prop::collection::vec(1u32..5, 1..5), accumulate in 1u32..4, batch in 1u32..5, step in 0u64..40, seed: u64,
        ) {
            let workers: u32 = pools.iter().sum();
            let sampler = Sampler::new(1_000, batch, accumulate, &pools, seed).unwrap();
            let mine = global(&sampler, step);
            let mut first = 0;
            for (pool, count) in pools.iter().enumerate() {
                let slices = (count * accumulate) as usize;
                let drawn: Vec<u32> = mine[first..first + slices].concat();
                let of_epoch = step % sampler.batches_per_epoch();
                let start = of_epoch as usize * drawn.len();
                prop_assert_eq!(&drawn[..], &sampler.order(pool, step / sampler.batches_per_epoch())[start..start + drawn.len()]);
                first += slices;
            }
            prop_assert_eq!(sampler.global_batch(), workers * accumulate * batch);
            // The first pool's order is that of the single shuffle.
            let alone = Sampler::new(1_000, batch, accumulate, &[workers], seed).unwrap();
            prop_assert_eq!(sampler.order(0, 3), alone.order(0, 3));
        }
    }

    #[test]
    fn nodes_draw_different_orders_and_may_draw_equal_samples() {
        let sampler = Sampler::new(100, 5, 1, &[2, 2], 1).unwrap();
        assert_ne!(sampler.order(0, 0), sampler.order(1, 0));
        let mut seen = Vec::new();
        for step in 0..sampler.batches_per_epoch() {
            seen.extend(global(&sampler, step).concat());
        }
        // 50 of 100 samples on each of two nodes: about 25 occur twice. The chance of none is 10⁻²⁹.
        let drawn = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert!(drawn == 100 && seen.len() < 100, "{} of {drawn}", seen.len());
    }

    #[test]
    fn epochs_and_seeds_differ_and_repeat() {
        let order = |seed, batch| global(&Sampler::new(100, 100, 1, &[1], seed).unwrap(), batch);
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
        // An order does not depend on which epochs were asked for before.
        let sampler = Sampler::new(100, 100, 1, &[1], 1).unwrap();
        for batch in [5, 4, 2, 5, 0, 1, 0] {
            assert_eq!(global(&sampler, batch), order(1, batch));
        }
    }

    #[test]
    fn impossible_samplings_are_refused_with_figures() {
        for (samples, batch, accumulate, workers, message) in [
            (0, 1, 1, 1, "--data: 0: must be at least 1"),
            (1, 0, 1, 1, "--batch-per-rank: 0: must"),
            (1, 1, 0, 1, "--accumulate: 0: must"),
            (1, 1, 1, 0, "--ranks: 0: must"),
            (1_000, 64, 4, 4, "takes 1024 samples (64 per rank × 4 micro-batches × 4 workers), but only 1000"),
            (1 << 32, 1, 1, 1, "--data: 4294967296: more than 4294967295 samples are too many"),
            (u32::MAX as usize, u32::MAX, u32::MAX, u32::MAX, "use a smaller batch or more data"),
        ] {
            let error = Sampler::new(samples, batch, accumulate, &[workers], 1).unwrap_err().to_string();
            assert!(error.contains(message), "{error} lacks {message}");
        }
    }
}
