//! Locates the blocks of an alltoallv in the sender's row and in the receiver's column.

use std::ops::Range;
use std::sync::Arc;

/// Counts of an alltoallv and the position of each block; shared by all lanes.
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

    /// The range of block `from → to` in the sender's row.
    pub(super) fn sent(&self, from: u32, to: u32) -> Range<u64> {
        let at = from as usize * self.members as usize + to as usize;
        self.sends[at]..self.sends[at] + self.counts[at]
    }

    /// The range of block `from → to` in the receiver's column.
    pub(super) fn received(&self, from: u32, to: u32) -> Range<u64> {
        let at = from as usize * self.members as usize + to as usize;
        self.receives[at]..self.receives[at] + self.counts[at]
    }
}
