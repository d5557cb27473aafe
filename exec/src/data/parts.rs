//! Which samples a rank holds in memory, which of them it draws, and what a shuffle moves from whom to whom.
//!
//! A shuffle puts a group's samples into a random order and deals it out in equal parts. Every rank finds the orders by itself, from
//! the seed and the shuffle's number, so only samples travel (Kumar et al. 2018 §4.1). Between two shuffles a rank goes through
//! its part in a random order, and through another one when it is through: it draws none twice before it has drawn all.

use lockstep_models::{Partition, Program, RankRange};
use lockstep_topology::{InputError, shard};

use super::Dataset;
use super::random::{Purpose, shuffle, stream_within};

/// The parts of a set of samples that ranks hold.
#[derive(Debug, Clone)]
pub struct Parts {
    partition: Partition,
    samples: u32,
    batch: u32,
    accumulate: u32,
    seed: u64,
}

/// What a shuffle moves in a group: `counts[from · members + to]` samples.
pub(crate) struct Moves {
    /// By pair of members.
    pub(crate) counts: Vec<u64>,
    /// What this member sends, as positions in its part, in the order of destinations.
    pub(crate) sent: Vec<u32>,
    /// Where in its new part each sample belongs that comes in, in the order of sources.
    pub(crate) places: Vec<u32>,
}

impl Parts {
    /// The parts of `samples` samples; `None` where a program's ranks all hold all of them.
    ///
    /// # Errors
    /// Parts that do not fill one batch.
    pub fn new(program: &Program, samples: u32, seed: u64) -> Result<Option<Parts>, InputError> {
        let Some(partition) = &program.partition else { return Ok(None) };
        let (batch, accumulate) = (program.batch_per_rank, program.accumulate);
        let most = partition.groups.iter().map(|group| group.count).max().unwrap_or(1);
        let least = samples / most;
        if least < batch {
            let message = format!(
                "{most} ranks that hold {samples} samples together have {least} each, less than a batch of {batch}: take \
                 more groups, a smaller batch, or more data"
            );
            return Err(InputError::flag("sampling", "partitioned", message));
        }
        Ok(Some(Parts { partition: partition.clone(), samples, batch, accumulate, seed }))
    }

    /// The ranks among which `rank` shuffles.
    pub(crate) fn group(&self, rank: u32) -> RankRange {
        self.partition.groups[self.partition.group_of(rank)]
    }

    /// How many shuffles come before step `step`.
    pub(crate) fn shuffles_before(&self, step: u64) -> u64 {
        self.partition.shuffles_before(step)
    }

    /// The samples of a group after so many shuffles, in the order in which they are dealt out.
    fn order(&self, group: usize, shuffles: u64) -> Vec<u32> {
        let mut samples: Vec<u32> = (0..self.samples).collect();
        shuffle(&mut stream_within(self.seed, Purpose::Partition, shuffles, group as u64), &mut samples);
        samples
    }

    /// What `rank` holds after so many shuffles, in order.
    pub fn held(&self, rank: u32, shuffles: u64) -> Vec<u32> {
        let number = self.partition.group_of(rank);
        let group = self.partition.groups[number];
        let part = shard(self.samples.into(), group.count.into(), u64::from(rank - group.first));
        self.order(number, shuffles)[part.start as usize..part.end as usize].to_vec()
    }

    /// Positions in the rank's part of the samples of its micro-batch `repetition` of step `step`.
    pub(crate) fn drawn(&self, step: u64, rank: u32, repetition: u32) -> Vec<u32> {
        let group = self.group(rank);
        let part = shard(self.samples.into(), group.count.into(), u64::from(rank - group.first));
        let shuffles = self.shuffles_before(step);
        let since = step - shuffles * self.partition.shuffle_every.map_or(0, u64::from);
        let number = since * u64::from(self.accumulate) + u64::from(repetition);
        let mut positions: Vec<u32> = (0..(part.end - part.start) as u32).collect();
        // Whole batches only; what is left over is left out until the next order.
        let batches = u64::from(positions.len() as u32 / self.batch);
        let stream = shuffles << 32 | (number / batches);
        shuffle(&mut stream_within(self.seed, Purpose::Draw, stream, rank.into()), &mut positions);
        let start = (number % batches) as usize * self.batch as usize;
        positions[start..start + self.batch as usize].to_vec()
    }

    /// The samples of a rank's micro-batch, as the whole set numbers them.
    pub fn samples(&self, step: u64, rank: u32, repetition: u32) -> Vec<u32> {
        let held = self.held(rank, self.shuffles_before(step));
        self.drawn(step, rank, repetition).into_iter().map(|position| held[position as usize]).collect()
    }

    /// What `rank` sends and gets when its group's samples go from where they are after `shuffles` shuffles to where they are
    /// after the next one.
    pub(crate) fn moves(&self, rank: u32, shuffles: u64) -> Moves {
        let number = self.partition.group_of(rank);
        let group = self.partition.groups[number];
        let (members, own) = (u64::from(group.count), u64::from(rank - group.first));
        let before = self.order(number, shuffles);
        // By sample: its place among all after the shuffle.
        let mut after = vec![0u32; before.len()];
        (0..).zip(self.order(number, shuffles + 1)).for_each(|(place, sample)| after[sample as usize] = place);
        let parts: Vec<_> = (0..members).map(|member| shard(self.samples.into(), members, member)).collect();
        let owner = |place: u32| parts.partition_point(|part| part.end <= u64::from(place));
        let mut counts = vec![0u64; (members * members) as usize];
        let (mut sent, mut places) = (Vec::new(), Vec::new());
        for (from, part) in parts.iter().enumerate() {
            let of_member = before[part.start as usize..part.end as usize].iter().map(|sample| after[*sample as usize]);
            // Every sender lists its samples by destination, each destination's in the order of their new places.
            let mut listed: Vec<(u32, u32)> = of_member.zip(0..).collect();
            listed.sort_unstable();
            for (place, position) in listed {
                let to = owner(place);
                counts[from * members as usize + to] += 1;
                if from as u64 == own {
                    sent.push(position);
                }
                if to as u64 == own {
                    places.push(place - parts[to].start as u32);
                }
            }
        }
        Moves { counts, sent, places }
    }
}

impl Dataset {
    /// Elements of a sample as it is packed: its image as it is stored, and its label's bits.
    pub(crate) fn packed_elements(&self) -> usize {
        self.images.len() / self.labels.len() + 1
    }

    /// Packs the samples at `positions` one behind the other.
    pub(crate) fn pack(&self, positions: &[u32], packed: &mut [f32]) {
        let each = self.packed_elements() - 1;
        for (position, sample) in positions.iter().map(|at| *at as usize).zip(packed.chunks_exact_mut(each + 1)) {
            sample[..each].copy_from_slice(&self.images[position * each..(position + 1) * each]);
            // Copies carry any bits, also those that are no number.
            sample[each] = f32::from_bits(self.labels[position]);
        }
    }

    /// Takes samples packed one behind the other in place of its own: the n-th comes to stand at `places[n]`.
    pub(crate) fn unpack(&mut self, packed: &[f32], places: &[u32]) {
        let each = self.packed_elements() - 1;
        self.images.resize(places.len() * each, 0.0);
        self.labels.resize(places.len(), 0);
        for (sample, place) in packed.chunks_exact(each + 1).zip(places.iter().map(|place| *place as usize)) {
            self.images[place * each..(place + 1) * each].copy_from_slice(&sample[..each]);
            self.labels[place] = sample[each].to_bits();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Job, Sampling};
    use proptest::prelude::*;

    use super::*;

    fn parts(nodes: &[u32], groups: u32, every: Option<u32>, samples: u32, seed: u64) -> Parts {
        let partition = Partition::new(nodes, groups, every).unwrap();
        Parts { partition, samples, batch: 3, accumulate: 2, seed }
    }

    proptest! {
        /// Each group holds each sample exactly once after any number of shuffles, and a shuffle's moves lead from the one to the
        /// other.
        #[test]
        fn a_shuffle_loses_and_doubles_nothing(
            nodes in prop::collection::vec(1u32..4, 1..5), whole: bool, samples in 60u32..200, shuffles in 0u64..5, seed: u64,
        ) {
            let groups = if whole { nodes.len() as u32 } else { 1 };
            let parts = parts(&nodes, groups, Some(2), samples, seed);
            for group in parts.partition.groups.clone() {
                let held: Vec<Vec<u32>> = group.iter().map(|rank| parts.held(rank, shuffles)).collect();
                let mut all = held.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..samples).collect::<Vec<_>>());
                let moves: Vec<Moves> = group.iter().map(|rank| parts.moves(rank, shuffles)).collect();
                let members = group.count as usize;
                // Carried out on numbers in place of samples.
                for to in 0..members {
                    let mut arrived = Vec::new();
                    for from in 0..members {
                        let start: u64 = moves[from].counts[from * members..from * members + to].iter().sum();
                        let count = moves[from].counts[from * members + to];
                        let block = &moves[from].sent[start as usize..(start + count) as usize];
                        arrived.extend(block.iter().map(|position| held[from][*position as usize]));
                    }
                    let mut part = vec![u32::MAX; arrived.len()];
                    arrived.iter().zip(&moves[to].places).for_each(|(sample, place)| part[*place as usize] = *sample);
                    prop_assert_eq!(part, parts.held(group.first + to as u32, shuffles + 1));
                }
            }
        }

        /// Between shuffles a rank draws each of its samples once before it draws one again.
        #[test]
        fn no_sample_comes_twice_before_all_have_come(ranks in 1u32..6, samples in 60u32..150, seed: u64) {
            let parts = parts(&[ranks], 1, None, samples, seed);
            for rank in 0..ranks {
                let held = parts.held(rank, 0).len() as u32;
                let batches = held / 3;
                let mut seen: Vec<u32> = (0..batches).flat_map(|n| parts.drawn(u64::from(n / 2), rank, n % 2)).collect();
                seen.sort_unstable();
                let length = seen.len();
                seen.dedup();
                prop_assert_eq!((length, seen.len()), ((batches * 3) as usize, (batches * 3) as usize));
                prop_assert!(seen.iter().all(|position| *position < held));
            }
        }
    }

    /// A set that every node holds alone: a shuffle is another order, and no sample leaves its node (Kumar et al. 2018 §4.1).
    #[test]
    fn who_holds_all_moves_nothing() {
        let parts = parts(&[1, 1], 2, Some(1), 50, 7);
        for rank in 0..2 {
            assert_eq!(parts.moves(rank, 0).counts, [50]);
            assert_ne!(parts.held(rank, 0), parts.held(rank, 1));
        }
        assert_ne!(parts.held(0, 0), parts.held(1, 0));
    }

    #[test]
    fn parts_smaller_than_a_batch_are_refused() {
        let sampling = Sampling::Partitioned { groups: 1, shuffle_every: None };
        let job = Job { sampling, ..Job::new(Arc::new(lockstep_readers::load_model("mlp").unwrap()), 4, 16) };
        let refused = Parts::new(&job.program().unwrap(), 63, 1).unwrap_err().to_string();
        assert!(refused.contains("15 each, less than a batch of 16"), "{refused}");
        assert!(Parts::new(&job.program().unwrap(), 64, 1).unwrap().is_some());
    }
}
