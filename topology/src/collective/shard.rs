//! Splits a buffer evenly, and into lanes.
//!
//! Remainders go to the first parts, so that sizes differ by at most one and the first part is always a largest one.

use std::ops::Range;

/// Part `index` of `elements` split evenly into `parts`, remainders to the first parts; an index past the last part, or
/// no parts at all, gives an empty range at the end.
///
/// ```
/// # use lockstep_topology::shard;
/// assert_eq!((0..3).map(|i| shard(7, 3, i)).collect::<Vec<_>>(), [0..3, 3..5, 5..7]);
/// ```
pub fn shard(elements: u64, parts: u64, index: u64) -> Range<u64> {
    if index >= parts {
        return elements..elements;
    }
    Cut::new(elements, parts).range(index)
}

/// The members of a node where `members` are divided among `nodes` in order.
pub(super) fn of_node(members: u32, nodes: u32, node: u32) -> Range<u32> {
    let part = shard(members.into(), nodes.into(), node.into());
    part.start as u32..part.end as u32
}

/// The part that holds element `at` of `elements` split evenly into `parts`, as [`shard`] does.
pub(super) fn shard_of(elements: u32, parts: u32, at: u32) -> u32 {
    let (short, longer) = (elements / parts, elements % parts);
    let in_longer = longer * (short + 1);
    if at < in_longer { at / (short + 1) } else { longer + (at - in_longer) / short }
}

/// Piece `lane` of a part that is split evenly among `lanes`.
pub(super) fn piece(part: Range<u64>, lanes: u64, lane: u32) -> Range<u64> {
    let piece = shard(part.end - part.start, lanes, lane.into());
    part.start + piece.start..part.start + piece.end
}

/// An even split with its division done once: a ring asks for a range at every step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    quotient: u64,
    pub(super) remainder: u64,
}

impl Cut {
    /// `elements` in `parts` (positive).
    pub(super) fn new(elements: u64, parts: u64) -> Cut {
        Cut { quotient: elements / parts, remainder: elements % parts }
    }

    /// The start of part `index`.
    pub(super) fn start(&self, index: u64) -> u64 {
        index * self.quotient + index.min(self.remainder)
    }

    /// Part `index`, which is below the number of parts.
    pub(super) fn range(&self, index: u64) -> Range<u64> {
        self.start(index)..self.start(index + 1)
    }

    /// Length of the parts from the remainder on.
    pub(super) fn short(&self) -> u64 {
        self.quotient
    }
}

/// A buffer cut into lanes: into `groups` shards (colours, servers), and each of them into `chunks`.
///
/// Lane `chunk · groups + group`, so that all groups progress together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    pub(super) elements: u64,
    pub(super) groups: u64,
    pub(super) chunks: u64,
}

impl Split {
    /// The group of a lane.
    pub(super) fn group(&self, lane: u32) -> u32 {
        (u64::from(lane) % self.groups) as u32
    }

    /// The elements of a lane; those of lane 0 are the most.
    pub(super) fn extent(&self, lane: u32) -> Range<u64> {
        let lane = u64::from(lane);
        let whole = shard(self.elements, self.groups, lane % self.groups);
        let part = shard(whole.end - whole.start, self.chunks, lane / self.groups);
        whole.start + part.start..whole.start + part.end
    }

    /// Elements of the longest lane.
    pub(super) fn longest(&self) -> u64 {
        let extent = self.extent(0);
        extent.end - extent.start
    }
}
