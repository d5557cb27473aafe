//! Decides which samples a rank holds in memory, which of them it draws, and what a shuffle moves between ranks.
//!
//! A shuffle permutes a group's samples at random and splits them into equal parts. Every rank computes the
//! permutations by itself, from the seed and the shuffle's number, so only samples are sent (Kumar et al. 2018 §4.1).
//! Between two shuffles a rank draws its part in a random order, then in another one: it repeats no sample before it
//! has drawn all.

use std::ops::Range;

use lockstep_models::{Partition, Program, RankRange};
use lockstep_topology::{InputError, shard};

use super::Dataset;
use super::pixels::Pixels;
use crate::random::{Purpose, shuffle, stream_within};

/// The partition of a set of samples among ranks.
#[derive(Debug, Clone)]
pub struct Parts {
    partition: Partition,
    samples: u32,
    batch: u32,
    accumulate: u32,
    seed: u64,
}

/// The moves of a shuffle in a group, seen by one member. Samples of a part are numbered by their positions, before and
/// after.
pub struct Moves {
    /// The member's samples that stay: (position after, position before).
    pub kept: Vec<(u32, u32)>,
    /// The other samples, chunk by chunk.
    pub rounds: Vec<Round>,
}

/// A chunk of a shuffle.
#[derive(Default)]
pub struct Round {
    /// By pair of members, index `from · members + to`: elements of messages with the samples sent from one to the other.
    pub counts: Vec<u64>,
    /// The samples that this member sends, as positions before, in the order of destinations.
    pub sent: Vec<u32>,
    /// The new position of each sample that arrives, in the order of sources.
    pub taken: Vec<u32>,
    /// The arriving samples, as numbers in the whole set.
    pub came: Vec<u32>,
}

impl Parts {
    /// The parts of `samples` samples; `None` where every rank of the program holds all samples.
    ///
    /// # Errors
    /// Parts smaller than one batch.
    pub fn new(program: &Program, samples: u32, seed: u64) -> Result<Option<Parts>, InputError> {
        let Some(partition) = &program.partition else { return Ok(None) };
        let (batch, accumulate) = (program.batch_per_rank, program.accumulate);
        let most = partition.groups.iter().map(|group| group.count).max().unwrap_or(1);
        let least = samples / most;
        if least < batch {
            let message = format!(
                "{most} ranks that hold {samples} samples together have {least} each, less than a batch of {batch}: use \
                 more groups, a smaller batch, or more data"
            );
            return Err(InputError::flag("sampling", "partitioned", message));
        }
        Ok(Some(Parts { partition: partition.clone(), samples, batch, accumulate, seed }))
    }

    /// Bytes that each of the ranks `here`, those of this process, needs on average for its parts of `data`; none for
    /// sets that are in memory already.
    pub fn memory_each(&self, data: &Dataset, here: &[u32]) -> u64 {
        let Pixels::Encoded(samples) = &data.pixels else { return 0 };
        let (members, held) = (here.iter().map(|rank| self.group(*rank).count).min().unwrap_or(1), here.iter());
        let held: u64 = held.map(|rank| u64::from(self.partition.held_by(*rank).count)).sum();
        // On average, where the ranks hold the samples of others, or none.
        let part = (samples.bytes().div_ceil(u64::from(members)) * held).div_ceil(here.len().max(1) as u64);
        // A shuffle needs memory for samples sent and received beside the part.
        let shuffles = self.partition.shuffle_every.is_some() && members > 1;
        part + if shuffles { 2 * part.min(self.partition.chunk) } else { 0 }
    }

    /// The ranks with which `rank` shuffles.
    pub fn group(&self, rank: u32) -> RankRange {
        self.partition.groups[self.partition.group_of(rank)]
    }

    /// The number of shuffles before step `step`.
    pub fn shuffles_before(&self, step: u64) -> u64 {
        self.partition.shuffles_before(step)
    }

    /// The samples of a group after `shuffles` shuffles, in the order in which they are split into parts.
    fn order(&self, group: usize, shuffles: u64) -> Vec<u32> {
        let mut samples: Vec<u32> = (0..self.samples).collect();
        shuffle(&mut stream_within(self.seed, Purpose::Partition, shuffles, group as u64), &mut samples);
        samples
    }

    /// The place of a worker's part in the order of its group.
    fn part(&self, worker: u32) -> Range<u64> {
        let group = self.group(worker);
        shard(self.samples.into(), group.count.into(), u64::from(worker - group.first))
    }

    /// The place of what `rank` holds: its part, the parts of its node, or nothing.
    fn place(&self, rank: u32) -> Range<u64> {
        let workers = self.partition.held_by(rank);
        let end = self.part(workers.first + workers.count - 1).end;
        if workers.count == 0 { end..end } else { self.part(workers.first).start..end }
    }

    /// The samples of `rank` after `shuffles` shuffles, in order.
    pub fn held(&self, rank: u32, shuffles: u64) -> Vec<u32> {
        self.samples_at(self.place(rank), rank, shuffles)
    }

    /// The samples that the first rank of `rank`'s node holds for all its ranks, in order; none where each rank holds
    /// its own.
    pub fn of_node(&self, rank: u32, shuffles: u64) -> Vec<u32> {
        let node = self.partition.nodes.iter().find(|node| node.contains(rank));
        node.map_or_else(Vec::new, |node| self.held(node.first, shuffles))
    }

    /// The samples at `place` in the order of the group of `rank`.
    fn samples_at(&self, place: Range<u64>, rank: u32, shuffles: u64) -> Vec<u32> {
        self.order(self.partition.group_of(rank), shuffles)[place.start as usize..place.end as usize].to_vec()
    }

    /// Positions of a worker's samples of micro-batch `repetition` of step `step`, in what the rank that holds them
    /// holds.
    pub fn drawn(&self, step: u64, worker: u32, repetition: u32) -> Vec<u32> {
        let holder = self.partition.nodes.iter().find(|node| node.contains(worker)).map_or(worker, |node| node.first);
        let before = (self.part(worker).start - self.place(holder).start) as u32;
        self.drawn_of_part(step, worker, repetition).into_iter().map(|position| before + position).collect()
    }

    /// The same as positions in the worker's part.
    fn drawn_of_part(&self, step: u64, worker: u32, repetition: u32) -> Vec<u32> {
        let part = self.part(worker);
        let shuffles = self.shuffles_before(step);
        let since = step - shuffles * self.partition.shuffle_every.map_or(0, u64::from);
        let number = since * u64::from(self.accumulate) + u64::from(repetition);
        let mut positions: Vec<u32> = (0..(part.end - part.start) as u32).collect();
        // Whole batches only; the remainder is skipped until the next order.
        let batches = u64::from(positions.len() as u32 / self.batch);
        let stream = shuffles << 32 | (number / batches);
        shuffle(&mut stream_within(self.seed, Purpose::Draw, stream, worker.into()), &mut positions);
        let start = (number % batches) as usize * self.batch as usize;
        positions[start..start + self.batch as usize].to_vec()
    }

    /// The samples of a worker's micro-batch, as numbers in the whole set.
    pub fn samples(&self, step: u64, worker: u32, repetition: u32) -> Vec<u32> {
        let part = self.samples_at(self.part(worker), worker, self.shuffles_before(step));
        self.drawn_of_part(step, worker, repetition).into_iter().map(|position| part[position as usize]).collect()
    }

    /// What `rank` keeps, sends and receives when its group goes from the state after `shuffles` shuffles to the next
    /// one, in `rounds` rounds; `elements` gives the size of a sample's message.
    pub fn moves(&self, rank: u32, shuffles: u64, rounds: u32, elements: impl Fn(u32) -> u64) -> Moves {
        let number = self.partition.group_of(rank);
        let group = self.partition.groups[number];
        let (members, own) = (group.count as usize, (rank - group.first) as usize);
        let parts: Vec<_> = group.iter().map(|rank| self.place(rank)).collect();
        // The member that owns this place in the order, and its position there.
        let owner = |place: u32| {
            let member = parts.partition_point(|part| part.end <= u64::from(place));
            (member, place - parts[member].start as u32)
        };
        let mut before = vec![0u32; self.samples as usize];
        (0..).zip(self.order(number, shuffles)).for_each(|(place, sample)| before[sample as usize] = place);
        let after = self.order(number, shuffles + 1);
        // By pair, in the order of the new places: the total of samples, then how many are already assigned to a round.
        let mut all = vec![0u64; members * members];
        let moved = |place: u32, sample: u32| {
            let ((from, old), (to, new)) = (owner(before[sample as usize]), owner(place));
            (from, to, old, new)
        };
        for (place, sample) in (0..).zip(&after) {
            let (from, to, ..) = moved(place, *sample);
            all[from * members + to] += 1;
        }
        let mut given = vec![0u64; members * members];
        let round = || Round { counts: vec![0; members * members], ..Round::default() };
        let mut found = Moves { kept: Vec::new(), rounds: (0..rounds).map(|_| round()).collect() };
        // By round: what this member sends to each other member, and receives from each.
        let mut ways = vec![(vec![Vec::new(); members], vec![Vec::<(u32, u32)>::new(); members]); rounds as usize];
        for (place, sample) in (0..).zip(&after) {
            let (from, to, old, new) = moved(place, *sample);
            if from == to {
                if from == own {
                    found.kept.push((new, old));
                }
                continue;
            }
            let pair = from * members + to;
            let round = (given[pair] * u64::from(rounds) / all[pair]) as usize;
            given[pair] += 1;
            found.rounds[round].counts[pair] += elements(*sample);
            if from == own {
                ways[round].0[to].push(old);
            }
            if to == own {
                ways[round].1[from].push((new, *sample));
            }
        }
        for (round, (sent, taken)) in found.rounds.iter_mut().zip(ways) {
            round.sent = sent.concat();
            (round.taken, round.came) = taken.concat().into_iter().unzip();
        }
        found
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
        /// Each group holds each sample exactly once after any number of shuffles, and a shuffle's moves lead from one
        /// state to the next.
        #[test]
        fn a_shuffle_neither_loses_nor_duplicates_samples(
            nodes in prop::collection::vec(1u32..4, 1..5), whole: bool, samples in 60u32..200, shuffles in 0u64..5, rounds in 1u32..6,
            seed: u64,
        ) {
            let groups = if whole { nodes.len() as u32 } else { 1 };
            let parts = parts(&nodes, groups, Some(2), samples, seed);
            for group in parts.partition.groups.clone() {
                let held: Vec<Vec<u32>> = group.iter().map(|rank| parts.held(rank, shuffles)).collect();
                let mut all = held.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..samples).collect::<Vec<_>>());
                let moves: Vec<Moves> = group.iter().map(|rank| parts.moves(rank, shuffles, rounds, |_| 1)).collect();
                let members = group.count as usize;
                // Performed on numbers instead of samples.
                for to in 0..members {
                    let mut part = vec![u32::MAX; held[to].len()];
                    for (new, old) in &moves[to].kept {
                        part[*new as usize] = held[to][*old as usize];
                    }
                    for round in 0..rounds as usize {
                        let mut arrived = Vec::new();
                        for (from, (held, moves)) in held.iter().zip(&moves).enumerate() {
                            let of = &moves.rounds[round];
                            let start: u64 = of.counts[from * members..from * members + to].iter().sum();
                            let count = of.counts[from * members + to];
                            prop_assert!(from != to || count == 0, "what stays does not travel");
                            let block = &of.sent[start as usize..(start + count) as usize];
                            arrived.extend(block.iter().map(|position| held[*position as usize]));
                        }
                        let taken = &moves[to].rounds[round].taken;
                        prop_assert_eq!(&arrived, &moves[to].rounds[round].came);
                        prop_assert_eq!(arrived.len(), taken.len());
                        arrived.iter().zip(taken).for_each(|(sample, place)| part[*place as usize] = *sample);
                    }
                    prop_assert_eq!(part, parts.held(group.first + to as u32, shuffles + 1));
                }
                // Rounds are balanced: each has its share of every pair's samples, rounded.
                for pair in 0..members * members {
                    let counts: Vec<u64> = moves[0].rounds.iter().map(|round| round.counts[pair]).collect();
                    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                    prop_assert!(most - least <= 1, "{:?}", counts);
                }
            }
        }

        /// Where a node's first rank holds the samples of all its ranks, each worker draws what it would hold itself,
        /// and a shuffle's moves lead from one state to the next.
        #[test]
        fn first_ranks_hold_what_their_nodes_ranks_draw(
            nodes in prop::collection::vec(1u32..4, 1..5), whole: bool, samples in 60u32..200, step in 0u64..9, seed: u64,
        ) {
            let groups = if whole { nodes.len() as u32 } else { 1 };
            let each = parts(&nodes, groups, Some(2), samples, seed);
            let mut first = 0;
            let of_nodes = nodes.iter().map(|count| {
                first += count;
                RankRange { first: first - count, count: *count }
            });
            let by_first = Parts { partition: Partition { nodes: of_nodes.collect(), ..each.partition.clone() }, ..each };
            let shuffles = each.shuffles_before(step);
            for node in &by_first.partition.nodes {
                let held = by_first.held(node.first, shuffles);
                prop_assert_eq!(&held, &node.iter().flat_map(|rank| each.held(rank, shuffles)).collect::<Vec<_>>());
                for worker in node.iter() {
                    prop_assert_eq!(&by_first.of_node(worker, shuffles), &held);
                    let drawn: Vec<u32> = by_first.drawn(step, worker, 1).iter().map(|at| held[*at as usize]).collect();
                    prop_assert_eq!(&drawn, &each.samples(step, worker, 1));
                    prop_assert_eq!(drawn, by_first.samples(step, worker, 1));
                    prop_assert!(worker == node.first || by_first.held(worker, shuffles).is_empty());
                }
                let moves = by_first.moves(node.first, shuffles, 3, |_| 1);
                let mut part: Vec<Option<u32>> = vec![None; held.len()];
                moves.kept.iter().for_each(|(new, old)| part[*new as usize] = Some(held[*old as usize]));
                for round in &moves.rounds {
                    round.taken.iter().zip(&round.came).for_each(|(place, came)| part[*place as usize] = Some(*came));
                }
                prop_assert_eq!(part, by_first.held(node.first, shuffles + 1).into_iter().map(Some).collect::<Vec<_>>());
                for worker in node.iter().skip(1) {
                    let idle = by_first.moves(worker, shuffles, 3, |_| 1);
                    prop_assert!(idle.kept.is_empty() && idle.rounds.iter().all(|of| of.sent.len() + of.taken.len() == 0));
                }
            }
        }

        /// Between shuffles a rank draws each of its samples once before it repeats one.
        #[test]
        fn no_sample_repeats_before_all_were_drawn(ranks in 1u32..6, samples in 60u32..150, seed: u64) {
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

    /// Every node has the whole set: a shuffle only changes the order, and no sample leaves its node (Kumar et al. 2018
    /// §4.1).
    #[test]
    fn nodes_with_the_whole_set_move_nothing() {
        let parts = parts(&[1, 1], 2, Some(1), 50, 7);
        for rank in 0..2 {
            let moves = parts.moves(rank, 0, 1, |_| 1);
            assert_eq!((moves.kept.len(), moves.rounds[0].counts.as_slice()), (50, [0].as_slice()));
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
