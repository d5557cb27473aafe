//! Ring (bucket) algorithm: each block travels round the ring, once to be summed and once to be spread.
//!
//! p − 1 steps each way, so 2(p − 1) for an allreduce, with 2n(p − 1)/p elements sent per member: the least there is, at
//! a latency that grows with p. Goyal 2017 §4.1 ("bucket"); Patarasuk and Yuan 2009. Block b starts at member b + 1 and
//! ends summed at member b, so a reduce-scatter leaves every member its own shard.

use std::ops::Range;

use super::kernel::Steps;
use super::shard::{Cut, shard};
use super::step::{Action, Step};

/// The blocks of one lane: the part `lane` of `lanes` of each of `members` even blocks of an extent.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    start: u64,
    cut: Cut,
    /// The lane's part of a block of the usual length, and of one that is an element longer.
    parts: [(u64, u64); 2],
}

impl Blocks {
    /// Blocks over `extent`; `lane` of `lanes` takes its part of each.
    pub(super) fn new(extent: Range<u64>, members: u32, lane: u32, lanes: u64) -> Blocks {
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

    /// Sum of `count(length)` over all blocks, of which there are `members`.
    fn total(&self, members: u32, count: impl Fn(u64) -> u64) -> u64 {
        let [short, long] = self.parts.map(|(start, end)| count(end - start));
        (u64::from(members) - self.cut.remainder) * short + self.cut.remainder * long
    }
}

/// One lane of a ring on one member.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    pub(super) member: u32,
    pub(super) members: u32,
    /// Whether blocks are summed round the ring (reduce-scatter).
    pub(super) reduce: bool,
    /// Whether blocks are spread round the ring (allgather).
    pub(super) gather: bool,
    pub(super) blocks: Blocks,
}

impl Ring {
    /// The block `distance` members back.
    fn behind(&self, distance: u32) -> u32 {
        // distance is at most p, so that one correction is enough
        let ahead = self.member + self.members - distance;
        if ahead >= self.members { ahead - self.members } else { ahead }
    }

    /// Sum over the messages sent of `count(length)`: a phase sends every block but one.
    fn sent(&self, count: impl Fn(u64) -> u64 + Copy) -> u64 {
        if self.members < 2 {
            return 0;
        }
        let all = self.blocks.total(self.members, count);
        let of = |block: Range<u64>| count(block.end - block.start);
        let own = if self.reduce { all - of(self.blocks.range(self.member)) } else { 0 };
        let next = if self.member + 1 == self.members { 0 } else { self.member + 1 };
        own + if self.gather { all - of(self.blocks.range(next)) } else { 0 }
    }
}

impl Steps for Ring {
    fn len(&self) -> u32 {
        2 * (self.members - 1) * (u32::from(self.reduce) + u32::from(self.gather))
    }

    fn step(&self, k: u32) -> Step {
        let (round, receives) = (k / 2, k % 2);
        let summing = self.reduce && round < self.members - 1;
        // reduce: block i − 1 − s goes out in round s; gather: block i − s
        let back = match (summing, self.reduce) {
            (true, _) => round + 1,
            (false, true) => round - (self.members - 1),
            (false, false) => round,
        };
        let block = self.blocks.range(self.behind(back + receives));
        match (receives, summing) {
            (0, _) => Step::new(Action::Send, if self.member + 1 == self.members { 0 } else { self.member + 1 }, block),
            (_, true) => Step::new(Action::RecvSum, self.behind(1), block),
            (_, false) => Step::new(Action::RecvInto, self.behind(1), block),
        }
    }

    fn messages(&self) -> u64 {
        self.sent(|length| u64::from(length > 0))
    }

    fn elements_sent(&self) -> u64 {
        self.sent(|length| length)
    }
}
