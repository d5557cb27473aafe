//! Rings over channels: each carries its share of the buffer round an order of its own, and leaves and enters nodes on its own rail.
//!
//! Channel c enters a node of s members at member c and leaves it at c − 1 (mod s); every second node is walked the other way round, so
//! that what leaves on a rail enters on the same one: with as many channels as NICs all of them work at once, which one ring cannot.
//! NCCL's `search.cc` and `connect.cc` (orders of rings between nodes). Messages and elements are a ring's: 2(p − 1) rounds and
//! 2n(p − 1)/p elements of every member. With an odd number of nodes one crossing of each channel changes rails.

use std::ops::Range;
use std::sync::Arc;

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "rings",
    parameters: &[Parameter::Count {
        what: "the number of channels",
        example: 4,
        most: 64,
        because: "more channels than NCCL can have",
    }],
    help: "a ring on each of that many channels, which leave and enter nodes on rails of their own",
    serves: |collective| {
        matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather)
    },
    lanes: |call| {
        let order = Order { members: call.members(), starts: call.group.starts().cloned() };
        Ok(Box::new(Rings {
            order,
            channels: call.algorithm.count(0),
            reduce: *call.collective != Collective::AllGather,
            gather: *call.collective != Collective::ReduceScatter,
        }))
    },
    by_nodes: true,
    ..Entry::PLAIN
};

/// Members on nodes, and the order in which a channel passes them.
#[derive(Debug, Clone)]
struct Order {
    members: u32,
    /// First member of each node, then the number of members; absent where every member is a node of its own.
    starts: Option<Arc<[u32]>>,
}

impl Order {
    /// The place of `member` in the order of `channel`; with `back`, the member at the place `member`.
    fn turned(&self, channel: u32, member: u32, back: bool) -> u32 {
        let Some(starts) = &self.starts else { return member };
        let node = starts.partition_point(|start| *start <= member).max(1) - 1;
        let (start, end) = (starts[node], starts.get(node + 1).copied().unwrap_or(self.members));
        let size = end - start;
        let (local, first) = (member - start, channel % size);
        let turned = match (node % 2 == 0, back) {
            (true, false) => (local + size - first) % size,
            (true, true) => (local + first) % size,
            // From the member before the channel's own, downwards; this mirror is its own inverse.
            (false, _) => (first + 2 * size - 1 - local) % size,
        };
        start + turned
    }

    /// Members of each node, where nodes are equal and there are at least two.
    fn even_nodes(&self) -> Option<(u32, u32)> {
        let starts = self.starts.as_ref()?;
        let nodes = starts.len() as u32 - 1;
        let size = starts.get(1)? - starts[0];
        (nodes > 1 && starts.windows(2).all(|pair| pair[1] - pair[0] == size)).then_some((nodes, size))
    }
}

/// A ring on each channel.
#[derive(Debug)]
struct Rings {
    order: Order,
    channels: u32,
    /// Whether blocks are summed round the rings (reduce-scatter).
    reduce: bool,
    /// Whether blocks are spread round the rings (allgather).
    gather: bool,
}

impl Rings {
    /// Whether a lane has blocks of its own; else it takes its part of each block, which belongs to a member.
    fn is_allreduce(&self) -> bool {
        self.reduce && self.gather
    }
}

impl Lanes for Rings {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (order, channel, members) = (self.order.clone(), split.group(index), self.order.members);
        let (reduce, gather, whole) = (self.reduce, self.gather, self.is_allreduce());
        let (extent, split) = (split.extent(index), *split);
        let block = move |order: &Order, place: u32| -> Range<u64> {
            if whole {
                let part = shard(extent.end - extent.start, members.into(), place.into());
                return extent.start + part.start..extent.start + part.end;
            }
            let owner = order.turned(channel, place, true);
            piece(shard(split.elements, members.into(), owner.into()), split.groups * split.chunks, index)
        };
        let place = order.turned(channel, member, false);
        let behind = move |distance: u32| (place + members - distance % members) % members;
        let next = order.turned(channel, (place + 1) % members, true);
        let before = order.turned(channel, behind(1), true);
        let rounds = members - 1;
        Lane::new(2 * self.rounds(), move |k| {
            let (round, receives) = (k / 2, k % 2);
            let summing = reduce && round < rounds;
            let back = match (summing, reduce && gather) {
                (true, _) => round + 1,
                (false, true) => round - rounds,
                (false, false) => round,
            };
            let range = block(&order, behind(back + receives));
            match (receives, summing) {
                (0, _) => LaneStep::new(Action::Send, next, range),
                (_, true) => LaneStep::new(Action::RecvSum, before, range),
                (_, false) => LaneStep::new(Action::RecvInto, before, range),
            }
        })
    }

    fn rounds(&self) -> u32 {
        (self.order.members - 1) * (u32::from(self.reduce) + u32::from(self.gather))
    }

    fn largest_message(&self, split: &Split) -> u64 {
        let p = u64::from(self.order.members);
        let length = if self.is_allreduce() {
            split.longest().div_ceil(p)
        } else {
            split.elements.div_ceil(p).div_ceil(split.groups * split.chunks)
        };
        if p == 1 { 0 } else { length }
    }

    /// Every second node is walked alike. Parts of lanes are equal where all blocks are.
    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let members = u64::from(self.order.members);
        let extents = if self.is_allreduce() { (split.groups * split.chunks).max(1) } else { 1 };
        let multiple = extents.saturating_mul(members);
        let one_node = self.order.starts.as_ref().is_some_and(|starts| starts.len() == 2);
        match self.order.even_nodes() {
            None if self.order.starts.is_none() || one_node => (Permutations::Rotations { unit: 1 }, multiple),
            Some((nodes, size)) if nodes.is_multiple_of(2) && nodes > 2 => {
                (Permutations::Rotations { unit: 2 * size }, multiple)
            }
            _ => (Permutations::Identity, 1),
        }
    }

    fn window(&self) -> u32 {
        self.channels.saturating_mul(2)
    }

    fn roots(&self) -> u32 {
        self.channels
    }
}
