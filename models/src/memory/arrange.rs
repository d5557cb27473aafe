//! Where tensors lie so that those which live at different times share a place.
//!
//! Greedy: one tensor after the other, each into the smallest gap that fits between those it meets (Pisarchyk and Lee 2020,
//! "Efficient memory management for deep neural net inference", §5.2). The order is by size, by first use or by length of
//! life, whichever gives the smallest arena. Never more than all sizes added up, since a tensor without a gap lies behind
//! the last one it meets.

use std::cmp::Reverse;

use super::Tensor;

/// An offset for each tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// By tensor, in bytes from the start of the arena.
    pub offsets: Vec<u64>,
    /// The arena's size.
    pub bytes: u64,
}

/// What tensors are sorted by.
type Key = fn(&Tensor) -> (Reverse<u64>, usize);

/// Places all tensors.
pub fn arrange(tensors: &[Tensor]) -> Arrangement {
    let orders: [Key; 3] = [
        |tensor| (Reverse(tensor.bytes), 0),
        |tensor| (Reverse(0), tensor.first),
        |tensor| (Reverse((tensor.last - tensor.first) as u64), 0),
    ];
    let [by_size, by_use, by_life] = orders.map(|key| {
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|index| key(&tensors[*index]));
        in_order(tensors, order)
    });
    [by_use, by_life].into_iter().fold(by_size, |best, other| if other.bytes < best.bytes { other } else { best })
}

fn in_order(tensors: &[Tensor], order: Vec<usize>) -> Arrangement {
    let mut offsets = vec![0u64; tensors.len()];
    // By offset, so that gaps are found going up.
    let mut placed: Vec<usize> = Vec::with_capacity(tensors.len());
    let mut bytes = 0u64;
    for index in order {
        let tensor = &tensors[index];
        let (mut end, mut best) = (0u64, None);
        for other in placed.iter().copied().filter(|other| meet(tensor, &tensors[*other])) {
            let gap = offsets[other].saturating_sub(end);
            if gap >= tensor.bytes && best.is_none_or(|(size, _)| gap < size) {
                best = Some((gap, end));
            }
            end = end.max(offsets[other] + tensors[other].bytes);
        }
        offsets[index] = best.map_or(end, |(_, offset)| offset);
        bytes = bytes.max(offsets[index] + tensor.bytes);
        let at = placed.partition_point(|other| offsets[*other] <= offsets[index]);
        placed.insert(at, index);
    }
    Arrangement { offsets, bytes }
}

/// Whether some task finds both in memory.
fn meet(a: &Tensor, b: &Tensor) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// The most bytes that are live at any task.
pub fn live_bytes(tensors: &[Tensor]) -> u64 {
    let live = |at: usize| tensors.iter().filter(|t| t.first <= at && at <= t.last).map(|t| t.bytes).sum();
    tensors.iter().map(|tensor| live(tensor.first)).max().unwrap_or(0)
}
