//! Defines `RankRange`: a range of ranks.

use std::ops::Range;

/// Ranks `first`, `first + 1` … `first + count − 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RankRange {
    /// The lowest rank.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl RankRange {
    /// Whether `rank` is one of them.
    pub fn contains(self, rank: u32) -> bool {
        (self.first..self.first + self.count).contains(&rank)
    }

    /// The ranks in ascending order.
    pub fn iter(self) -> Range<u32> {
        self.first..self.first + self.count
    }
}
