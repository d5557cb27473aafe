//! Which samples a rank holds in memory, which of them it draws, and what a shuffle moves from whom to whom.
//!
//! A shuffle puts a group's samples into a random order and deals it out in equal parts. Every rank finds the orders by itself, from
//! the seed and the shuffle's number, so only samples travel (Kumar et al. 2018 §4.1). Between two shuffles a rank goes through
//! its part in a random order, and through another one when it is through: it draws none twice before it has drawn all.

use std::sync::Arc;

use lockstep_models::{Partition, Program, RankRange};
use lockstep_topology::{InputError, shard};

use super::Dataset;
use super::pixels::Pixels;
use super::random::{Purpose, shuffle, stream_within};
use crate::room::check_buffers;

/// The parts of a set of samples that ranks hold.
#[derive(Debug, Clone)]
pub struct Parts {
    partition: Partition,
    samples: u32,
    batch: u32,
    accumulate: u32,
    seed: u64,
}

/// What a shuffle moves in a group.
pub(crate) struct Moves {
    /// By pair of members, `from · members + to`: fp32 elements of the samples that go from the one to the other.
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

    /// Refuses parts of a packed set that the ranks `here`, those of this process, would hold together where they take more memory than
    /// the host has left. What is in memory already takes none.
    ///
    /// # Errors
    /// The estimate, and what there is.
    pub(crate) fn check_room(&self, data: &Dataset, here: &[u32]) -> Result<(), InputError> {
        let Pixels::Encoded(samples) = &data.pixels else { return Ok(()) };
        let members = here.iter().map(|rank| self.group(*rank).count).min().unwrap_or(1);
        // What goes and what comes in a shuffle is there beside the part.
        let shuffles = if self.partition.shuffle_every.is_some() && members > 1 { 3 } else { 1 };
        let each = u128::from(samples.bytes().div_ceil(u64::from(members)) * shuffles);
        let cure = "let more ranks hold the set together (fewer groups, more hosts), or take one-shuffle, which leaves it in its file";
        check_buffers("sampling", "partitioned", here.len() as u64, each, cure)
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
    /// after the next one; `elements` of a sample travel.
    pub(crate) fn moves(&self, rank: u32, shuffles: u64, elements: impl Fn(u32) -> u64) -> Moves {
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
                counts[from * members as usize + to] += elements(before[part.start as usize + position as usize]);
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
    /// Elements of a message that carries this sample: its image and its label's bits; of packed sets its length, its label, and
    /// its bytes as they are packed, four in an element.
    pub(crate) fn message_elements(&self, sample: u32) -> u64 {
        match &self.pixels {
            Pixels::Values(_) => self.shape.elements() + 1,
            Pixels::Encoded(samples) => 2 + samples.length(sample).div_ceil(4) as u64,
        }
    }

    /// The same on average over all samples, rounded up.
    pub(crate) fn mean_message_elements(&self) -> u64 {
        let all: u64 = (0..self.len() as u32).map(|sample| self.message_elements(sample)).sum();
        all.div_ceil(self.len() as u64)
    }

    /// Packs the samples at `positions` one behind the other.
    ///
    /// # Errors
    /// Packed samples that are damaged.
    pub(crate) fn pack(&self, positions: &[u32], message: &mut [f32]) -> Result<(), InputError> {
        let mut rest = message;
        for position in positions {
            let label = self.labels[*position as usize];
            let sample;
            (sample, rest) = rest.split_at_mut(self.message_elements(*position) as usize);
            // Copies carry any bits, also those that are no number.
            match &self.pixels {
                Pixels::Values(values) => {
                    let each = sample.len() - 1;
                    sample[..each].copy_from_slice(&values[*position as usize * each..][..each]);
                    sample[each] = f32::from_bits(label);
                }
                Pixels::Encoded(samples) => {
                    let bytes = samples.sample(*position)?;
                    (sample[0], sample[1]) = (f32::from_bits(bytes.len() as u32), f32::from_bits(label));
                    for (element, bytes) in sample[2..].iter_mut().zip(bytes.chunks(4)) {
                        let mut four = [0; 4];
                        four[..bytes.len()].copy_from_slice(bytes);
                        *element = f32::from_bits(u32::from_le_bytes(four));
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes samples packed one behind the other in place of its own: the n-th comes to stand at `places[n]`.
    pub(crate) fn unpack(&mut self, message: &[f32], places: &[u32]) {
        self.labels.resize(places.len(), 0);
        match &mut self.pixels {
            Pixels::Values(values) => {
                let each = self.shape.elements() as usize;
                values.resize(places.len() * each, 0.0);
                for (sample, place) in message.chunks_exact(each + 1).zip(places.iter().map(|place| *place as usize)) {
                    values[place * each..(place + 1) * each].copy_from_slice(&sample[..each]);
                    self.labels[place] = sample[each].to_bits();
                }
            }
            Pixels::Encoded(samples) => {
                // All samples are in the message, so what was here need not stay.
                *samples = Arc::new(samples.replaced(Vec::new(), vec![0]));
                // By place: where the sample is in the message, and its length.
                let mut found = vec![(0, 0); places.len()];
                let mut at = 0;
                for place in places.iter().map(|place| *place as usize) {
                    let length = message[at].to_bits() as usize;
                    self.labels[place] = message[at + 1].to_bits();
                    found[place] = (at + 2, length);
                    at += 2 + length.div_ceil(4);
                }
                let (mut bytes, mut ends) =
                    (Vec::with_capacity(found.iter().map(|(_, length)| length + 3).sum()), vec![0]);
                for (at, length) in found {
                    let begin = bytes.len();
                    let elements = &message[at..at + length.div_ceil(4)];
                    bytes.extend(elements.iter().flat_map(|element| element.to_bits().to_le_bytes()));
                    bytes.truncate(begin + length);
                    ends.push(begin + length);
                }
                *samples = Arc::new(samples.replaced(bytes, ends));
            }
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
                let moves: Vec<Moves> = group.iter().map(|rank| parts.moves(rank, shuffles, |_| 1)).collect();
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
            assert_eq!(parts.moves(rank, 0, |_| 1).counts, [50]);
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
