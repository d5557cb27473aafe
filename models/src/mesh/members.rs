//! Names ranks: `RankRange`, a range of them, and `Members`, those of a group: at equal distances along the axes that it
//! extends over, and dedicated servers.

use std::ops::Range;
use std::sync::Arc;

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

/// Ranks that take part in an exchange, in the order of their member numbers; dedicated servers come last.
///
/// ```
/// # use lockstep_models::Members;
/// let with_servers = Members::range(0, 4).and_servers(8, 2);
/// assert_eq!(with_servers.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8, 9]);
/// assert_eq!((with_servers.count(), with_servers.member(9), with_servers.member(5)), (6, Some(5), None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Members {
    first: u32,
    /// Members along the innermost axis, and the distance between them.
    inner: (u32, u32),
    /// The same along outer axes, inner ones first.
    outer: Vec<(u32, u32)>,
    servers: RankRange,
    /// All of them in ascending order, where they are not at equal distances.
    listed: Option<Arc<[u32]>>,
}

impl Members {
    /// `count` ranks from `first` on.
    pub fn range(first: u32, count: u32) -> Members {
        let servers = RankRange { first: 0, count: 0 };
        Members { first, inner: (count, 1), outer: Vec::new(), servers, listed: None }
    }

    /// These ranks, in ascending order.
    pub(crate) fn listed(ranks: Vec<u32>) -> Members {
        let first = ranks.first().copied().unwrap_or(0);
        Members { listed: Some(ranks.into()), ..Members::range(first, 0) }
    }

    /// Two ranks, the lower one first.
    pub(crate) fn two(low: u32, high: u32) -> Members {
        Members { inner: (2, high - low), ..Members::range(low, 1) }
    }

    /// Whether they are consecutive.
    pub fn is_range(&self) -> bool {
        self.inner.1 == 1 && self.outer.is_empty() && self.servers.count == 0 && self.listed.is_none()
    }

    /// With `count` dedicated servers from rank `first` on.
    pub fn and_servers(self, first: u32, count: u32) -> Members {
        Members { servers: RankRange { first, count }, ..self }
    }

    /// From `first` on along axes of these sizes and distances, outer ones first.
    pub(crate) fn along(first: u32, axes: impl DoubleEndedIterator<Item = (u32, u32)>) -> Members {
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (size, stride) in axes.rev().filter(|(size, _)| *size > 1) {
            match merged.last_mut() {
                Some((inner, distance)) if *inner * *distance == stride => *inner *= size,
                _ => merged.push((size, stride)),
            }
        }
        let inner = if merged.is_empty() { (1, 1) } else { merged.remove(0) };
        Members { inner, outer: merged, ..Members::range(first, 1) }
    }

    /// How many, servers included.
    pub fn count(&self) -> u32 {
        self.workers() + self.servers.count
    }

    fn workers(&self) -> u32 {
        let all = || self.outer.iter().fold(self.inner.0, |count, (size, _)| count * size);
        self.listed.as_ref().map_or_else(all, |ranks| ranks.len() as u32)
    }

    /// The lowest rank.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The rank that is `member`; there are [`Members::count`].
    #[inline]
    pub fn rank(&self, member: u32) -> u32 {
        let (count, stride) = self.inner;
        if member < count { self.first + member * stride } else { self.rank_apart(member) }
    }

    fn rank_apart(&self, member: u32) -> u32 {
        let (count, stride) = self.inner;
        let workers = self.workers();
        if member >= workers {
            return self.servers.first + (member - workers);
        }
        if let Some(ranks) = &self.listed {
            return ranks[member as usize];
        }
        let (mut rank, mut left) = (self.first + member % count * stride, member / count);
        for (size, stride) in &self.outer {
            rank += left % size * stride;
            left /= size;
        }
        rank
    }

    /// The member number of a rank; `None` where it does not belong to the group.
    #[inline]
    pub fn member(&self, rank: u32) -> Option<u32> {
        // Most groups are a range of ranks, and simulations call this for each message.
        match rank.wrapping_sub(self.first) {
            member if member < self.inner.0 && self.inner.1 == 1 => Some(member),
            _ => self.member_apart(rank),
        }
    }

    fn member_apart(&self, rank: u32) -> Option<u32> {
        if self.servers.contains(rank) {
            return Some(self.workers() + rank - self.servers.first);
        }
        if let Some(ranks) = &self.listed {
            return ranks.binary_search(&rank).ok().map(|member| member as u32);
        }
        let (mut left, mut member) = (rank.checked_sub(self.first)?, 0);
        let mut below = self.workers();
        for (size, stride) in self.outer.iter().rev().chain([&self.inner]) {
            below /= size;
            member += left / stride * below;
            if left / stride >= *size {
                return None;
            }
            left %= stride;
        }
        (left == 0).then_some(member)
    }

    /// Whether a rank belongs to the group.
    pub fn contains(&self, rank: u32) -> bool {
        self.member(rank).is_some()
    }

    /// The ranks in the order of their member numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.count()).map(|member| self.rank(member))
    }
}
