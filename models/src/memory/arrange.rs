//! Places pieces of memory so that those with disjoint lifetimes share addresses.
//!
//! Greedy: one piece after the other, each into the smallest gap that fits between those whose lifetimes overlap
//! (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference", §5.2). The order is by size,
//! by first use or by length of life, whichever gives the smallest arena. The arena never exceeds the sum of all sizes,
//! since a piece without a gap is placed after the last one that overlaps.

use std::cmp::Reverse;

/// A piece of memory with its first and last use, as positions of tasks in their role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Its size.
    pub bytes: u64,
    /// The task that writes it first.
    pub first: usize,
    /// The task that uses it last.
    pub last: usize,
    /// The same of a second lifetime, after the first; nothing is kept between the two.
    pub again: Option<(usize, usize)>,
}

/// An offset for each piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// By piece, in bytes from the start of the arena.
    pub offsets: Vec<u64>,
    /// The arena's size.
    pub bytes: u64,
}

/// What pieces are sorted by.
type Key = fn(&Allocation) -> (Reverse<u64>, usize);

/// Places all pieces.
pub fn arrange(pieces: &[Allocation]) -> Arrangement {
    let orders: [Key; 3] = [
        |piece| (Reverse(piece.bytes), 0),
        |piece| (Reverse(0), piece.first),
        |piece| (Reverse((piece.last - piece.first) as u64), 0),
    ];
    let [by_size, by_use, by_life] = orders.map(|key| {
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|index| key(&pieces[*index]));
        in_order(pieces, order)
    });
    [by_use, by_life].into_iter().fold(by_size, |best, other| if other.bytes < best.bytes { other } else { best })
}

fn in_order(pieces: &[Allocation], order: Vec<usize>) -> Arrangement {
    let mut offsets = vec![0u64; pieces.len()];
    // By offset, to find gaps in ascending order.
    let mut placed: Vec<usize> = Vec::with_capacity(pieces.len());
    let mut bytes = 0u64;
    for index in order {
        let piece = &pieces[index];
        let (mut end, mut best) = (0u64, None);
        for other in placed.iter().copied().filter(|other| meet(piece, &pieces[*other])) {
            let gap = offsets[other].saturating_sub(end);
            if gap >= piece.bytes && best.is_none_or(|(size, _)| gap < size) {
                best = Some((gap, end));
            }
            end = end.max(offsets[other] + pieces[other].bytes);
        }
        offsets[index] = best.map_or(end, |(_, offset)| offset);
        bytes = bytes.max(offsets[index] + piece.bytes);
        let at = placed.partition_point(|other| offsets[*other] <= offsets[index]);
        placed.insert(at, index);
    }
    Arrangement { offsets, bytes }
}

/// Whether some task needs both in memory.
fn meet(a: &Allocation, b: &Allocation) -> bool {
    a.lives().any(|(first, last)| b.lives().any(|(other, end)| first <= end && other <= last))
}

impl Allocation {
    /// Its lifetimes, each with its first and last task.
    pub(super) fn lives(&self) -> impl Iterator<Item = (usize, usize)> {
        [(self.first, self.last)].into_iter().chain(self.again)
    }
}

/// The most bytes that are live at any task.
pub fn live_bytes(pieces: &[Allocation]) -> u64 {
    let live = |at: usize| {
        let there = |piece: &&Allocation| piece.lives().any(|(first, last)| first <= at && at <= last);
        pieces.iter().filter(there).map(|piece| piece.bytes).sum()
    };
    pieces.iter().flat_map(Allocation::lives).map(|(first, _)| live(first)).max().unwrap_or(0)
}
