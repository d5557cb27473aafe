//! Ranks by number: those of a role, and those that meet in exchanges.

use std::ops::Range;

use lockstep_topology::Group;

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

/// Ranks that meet in exchanges; member i of the group is rank `ranks.first + i`.
#[derive(Debug, Clone, PartialEq)]
pub struct RankGroup {
    /// The members.
    pub ranks: RankRange,
    /// How they lie on nodes.
    pub shape: Group,
}
