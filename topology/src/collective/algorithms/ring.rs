//! Runs the ring (bucket) algorithm: each block travels around the ring, once summed and once broadcast.
//!
//! p − 1 steps each way, so 2(p − 1) for an allreduce, with 2n(p − 1)/p elements sent per member: the least there is,
//! at a latency that grows with p. Goyal 2017 §4.1 ("bucket"); Patarasuk and Yuan 2009. Block b starts at member b + 1
//! and ends summed at member b, so a reduce-scatter leaves every member its own shard.

use std::ops::Range;

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "ring",
    help: "each shard travels round the ring, once to be summed and once to be spread",
    serves: |collective| {
        matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather)
    },
    lanes: |call| {
        Ok(Box::new(Ring {
            members: call.members(),
            reduce: *call.collective != Collective::AllGather,
            gather: *call.collective != Collective::ReduceScatter,
        }))
    },
    ..Entry::PLAIN
};

impl Algorithm {
    /// `ring`.
    pub fn ring() -> Algorithm {
        Algorithm::new(&ENTRY, [])
    }
}

/// A ring of members.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) members: u32,
    /// Whether blocks are summed around the ring (reduce-scatter).
    pub(super) reduce: bool,
    /// Whether blocks are broadcast around the ring (allgather).
    pub(super) gather: bool,
}

impl Ring {
    /// Whether a lane has its own blocks; else it takes its part of each block, which belongs to a member.
    fn is_allreduce(&self) -> bool {
        self.reduce && self.gather
    }
}

impl Lanes for Ring {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let &Ring { members, reduce, gather } = self;
        let blocks = if self.is_allreduce() {
            Blocks::new(split.extent(index), members, 0, 1)
        } else {
            Blocks::new(0..split.elements, members, index, split.chunks)
        };
        let next = if member + 1 == members { 0 } else { member + 1 };
        // A phase sends every block but one: the one summed last here, or the one which the next member has
        // from the start.
        let reduced = reduce.then(|| blocks.but(member, members));
        let gathered = gather.then(|| blocks.but(next, members));
        let sent = reduced.into_iter().chain(gathered).sum();
        let behind = move |distance: u32| {
            // distance is at most p, so that one correction is enough
            let ahead = member + members - distance;
            if ahead >= members { ahead - members } else { ahead }
        };
        let step = move |k: u32| {
            let (round, receives) = (k / 2, k % 2);
            let summing = reduce && round < members - 1;
            // reduce: block i − 1 − s goes out in round s; gather: block i − s
            let back = match (summing, reduce) {
                (true, _) => round + 1,
                (false, true) => round - (members - 1),
                (false, false) => round,
            };
            let block = blocks.range(behind(back + receives));
            match (receives, summing) {
                (0, _) => LaneStep::new(Action::Send, next, block),
                (_, true) => LaneStep::new(Action::RecvSum, behind(1), block),
                (_, false) => LaneStep::new(Action::RecvInto, behind(1), block),
            }
        };
        Lane::new(2 * self.rounds(), step).sending(sent)
    }

    fn rounds(&self) -> u32 {
        (self.members - 1) * (u32::from(self.reduce) + u32::from(self.gather))
    }

    fn largest_message(&self, split: &Split) -> u64 {
        let p = u64::from(self.members);
        let length = if self.is_allreduce() {
            split.longest().div_ceil(p)
        } else {
            split.elements.div_ceil(p).div_ceil(split.chunks)
        };
        if self.members == 1 { 0 } else { length }
    }

    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let extents = if self.is_allreduce() { split.chunks.max(1) } else { 1 };
        (Permutations::Rotations { unit: 1 }, extents.saturating_mul(self.members.into()))
    }

    fn pipeline(&self, split: &Split) -> Option<Vec<PipelinePhase>> {
        let p = u64::from(self.members);
        let (elements, longer) = (split.elements / p, (split.elements % p) as u32);
        let phase = |action, back| PipelinePhase { rounds: self.members - 1, action, elements, longer, back };
        // Block b starts at member b + 1 and ends summed at member b, from where it is broadcast.
        let phases = [self.reduce.then(|| phase(Action::RecvSum, 2)), self.gather.then(|| phase(Action::RecvInto, 1))];
        (elements > 0).then(|| phases.into_iter().flatten().collect())
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        let chunks = elements.div_ceil(chunk);
        // more lanes than elements in a block would be idle
        if self.is_allreduce() { chunks } else { chunks.min(elements.div_ceil(self.members.into())) }
    }
}

/// The blocks of one lane: the part `lane` of `lanes` of each of `members` even blocks of an extent.
#[derive(Debug)]
struct Blocks {
    start: u64,
    cut: Cut,
    /// The lane's part of a block of the usual length, and of one that is an element longer.
    parts: [(u64, u64); 2],
}

impl Blocks {
    /// Blocks over `extent`; `lane` of `lanes` takes its part of each.
    fn new(extent: Range<u64>, members: u32, lane: u32, lanes: u64) -> Blocks {
        let cut = Cut::new(extent.end - extent.start, u64::from(members));
        let part = |length| {
            let range = shard(length, lanes, u64::from(lane));
            (range.start, range.end)
        };
        Blocks { start: extent.start, cut, parts: [part(cut.short()), part(cut.short() + 1)] }
    }

    /// The lane's elements of block `index`.
    fn range(&self, index: u32) -> Range<u64> {
        let index = u64::from(index);
        let block = self.start + self.cut.start(index);
        let (start, end) = self.parts[usize::from(index < self.cut.remainder)];
        block + start..block + end
    }

    /// The elements sent with all blocks but `index`, of `members` blocks.
    fn but(&self, index: u32, members: u32) -> Sent {
        let [short, long] = self.parts.map(|(start, end)| Sent::message(end - start));
        let is_long = u64::from(u64::from(index) < self.cut.remainder);
        let (longs, all) = (self.cut.remainder - is_long, u64::from(members) - 1);
        [short.times(all - longs), long.times(longs)].into_iter().sum()
    }
}
