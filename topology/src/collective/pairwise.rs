//! Pairwise alltoallv: step s exchanges with the members at distance s, the own block at distance 0.
//!
//! p − 1 rounds and a message to itself; each member sends its row of counts. Thakur 2005 §3.3 (long messages). Send
//! ranges index the sender's row (blocks by destination), receive ranges the receiver's column (blocks by source).

use std::ops::Range;
use std::sync::Arc;

use super::kernel::Steps;
use super::shard::shard;
use super::step::{Action, Step};

/// Counts of an alltoallv and where each block stands; shared by all lanes.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) members: u32,
    counts: Arc<[u64]>,
    /// Start of block `from → to` in the sender's row.
    sends: Box<[u64]>,
    /// Start of block `from → to` in the receiver's column.
    receives: Box<[u64]>,
    /// Elements of the largest block.
    pub(super) largest: u64,
    /// Elements of the longest row or column.
    pub(super) longest: u64,
}

impl Blocks {
    /// Blocks from `counts[from · members + to]`; `None` if their sum overflows.
    pub(super) fn new(members: u32, counts: &Arc<[u64]>) -> Option<Blocks> {
        let p = members as usize;
        let (mut sends, mut receives, mut columns) = (vec![0; p * p], vec![0; p * p], vec![0u64; p]);
        let mut longest = 0;
        for from in 0..p {
            let mut row = 0u64;
            for to in 0..p {
                let (at, count) = (from * p + to, counts[from * p + to]);
                (sends[at], receives[at]) = (row, columns[to]);
                row = row.checked_add(count)?;
                columns[to] = columns[to].checked_add(count)?;
            }
            longest = longest.max(row);
        }
        longest = columns.iter().copied().fold(longest, u64::max);
        let largest = counts.iter().copied().max().unwrap_or(0);
        let (sends, receives) = (sends.into(), receives.into());
        Some(Blocks { members, counts: Arc::clone(counts), sends, receives, largest, longest })
    }

    /// Whether all blocks are equally long.
    pub(super) fn even(&self) -> bool {
        self.counts.iter().all(|count| *count == self.counts[0])
    }

    /// Where block `from → to` stands in the sender's row.
    pub(super) fn sent(&self, from: u32, to: u32) -> Range<u64> {
        let at = from as usize * self.members as usize + to as usize;
        self.sends[at]..self.sends[at] + self.counts[at]
    }

    /// Where block `from → to` stands in the receiver's column.
    pub(super) fn received(&self, from: u32, to: u32) -> Range<u64> {
        let at = from as usize * self.members as usize + to as usize;
        self.receives[at]..self.receives[at] + self.counts[at]
    }
}

/// One lane of a pairwise exchange on one member: part `lane` of `lanes` of each block.
#[derive(Debug, Clone)]
pub(super) struct Pairwise {
    pub(super) blocks: Arc<Blocks>,
    pub(super) member: u32,
    pub(super) lane: u32,
    pub(super) lanes: u64,
}

impl Pairwise {
    /// The lane's part of a block.
    fn part(&self, block: Range<u64>) -> Range<u64> {
        let part = shard(block.end - block.start, self.lanes, u64::from(self.lane));
        block.start + part.start..block.start + part.end
    }

    /// Sum over the messages sent of `count(length)`, the one to itself included.
    fn sent(&self, count: impl Fn(u64) -> u64) -> u64 {
        let row = (0..self.blocks.members).map(|to| self.part(self.blocks.sent(self.member, to)));
        row.map(|part| count(part.end - part.start)).sum()
    }
}

impl Steps for Pairwise {
    fn len(&self) -> u32 {
        2 * self.blocks.members
    }

    fn step(&self, k: u32) -> Step {
        let (distance, members) = (k / 2, self.blocks.members);
        let at = |ahead: u32| if ahead >= members { ahead - members } else { ahead };
        if k.is_multiple_of(2) {
            let to = at(self.member + distance);
            return Step::new(Action::Send, to, self.part(self.blocks.sent(self.member, to)));
        }
        let from = at(self.member + members - distance);
        Step::new(Action::RecvInto, from, self.part(self.blocks.received(from, self.member)))
    }

    fn messages(&self) -> u64 {
        self.sent(|length| u64::from(length > 0))
    }

    fn elements_sent(&self) -> u64 {
        self.sent(|length| length)
    }
}
