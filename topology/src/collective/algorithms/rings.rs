//! Runs rings over channels: each carries its share of the buffer in its own order, and leaves and enters nodes on its
//! rail.
//!
//! Channel c enters a node of s members at member c and leaves it at c − 1 (mod s); every second node is traversed in
//! reverse, so that what leaves on a rail enters on the same one: with as many channels as NICs all of them work at
//! once, which one ring cannot. NCCL's `search.cc` and `connect.cc` (orders of rings between nodes). Messages and
//! elements are a ring's: 2(p − 1) rounds and 2n(p − 1)/p elements of every member. With an odd number of nodes one
//! crossing of each channel changes rails.

use std::ops::Range;
use std::sync::Arc;

use super::prelude::*;
use super::zigzag;
use crate::nccl::{NcclProtocol, Wire};

pub(super) static ENTRY: Entry = Entry {
    name: "rings",
    parameters: &[Parameter::CHANNELS, Parameter::Protocol(Method::Ring)],
    help: "a ring on each of that many channels, which leave and enter nodes on rails of their own; :PROTOCOL may follow",
    serves: |collective| {
        matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather)
    },
    lanes: |call| {
        Ok(Box::new(Rings {
            group: call.group.clone(),
            channels: call.algorithm.count(0),
            order: Order::Rails,
            reduce: *call.collective != Collective::AllGather,
            gather: *call.collective != Collective::ReduceScatter,
        }))
    },
    by_nodes: true,
    ..Entry::PLAIN
};

/// Rings along orders that a search of the cluster has found; not written on the command line, which has no cluster.
static ALONG: Entry = Entry {
    name: "rings-along",
    serves: ENTRY.serves,
    lanes: |call| {
        let orders = call.algorithm.values.iter().find_map(|value| match value {
            Value::Orders(orders) if orders.iter().all(|(order, _)| is_order(order, call.members())) => Some(orders),
            _ => None,
        });
        let orders = orders.ok_or_else(|| call.refuse("needs an order of all members for each channel"))?;
        Ok(Box::new(Rings {
            group: call.group.clone(),
            channels: orders.len() as u32,
            order: Order::Given(orders.clone()),
            reduce: *call.collective != Collective::AllGather,
            gather: *call.collective != Collective::ReduceScatter,
        }))
    },
    ..Entry::PLAIN
};

/// Whether `order` has each of `members` members once.
fn is_order(order: &[u32], members: u32) -> bool {
    let distinct: std::collections::BTreeSet<_> = order.iter().collect();
    order.len() == members as usize && distinct.len() == order.len() && order.iter().all(|member| *member < members)
}

impl Algorithm {
    /// A ring on each of some channels, along an order of all members of its own and by a flow of that number, with
    /// messages of a protocol or plain ones.
    ///
    /// ```
    /// use lockstep_topology::{Algorithm, Collective, Group, Schedule};
    /// let rings = Algorithm::rings_along(vec![(vec![0, 1, 2, 3], 0), (vec![0, 2, 1, 3], 0)], None);
    /// let schedule = Schedule::new(&Collective::AllReduce, &rings, &Group::flat(4), 64, 0).unwrap();
    /// assert_eq!((schedule.lanes(), schedule.lane(0, 1).next().unwrap().peer), (2, 2));
    /// ```
    pub fn rings_along(orders: Vec<(Vec<u32>, u32)>, protocol: Option<NcclProtocol>) -> Algorithm {
        let wire = protocol.map(|protocol| Wire { method: Method::Ring, protocol, flow: 0 });
        Algorithm::new(&ALONG, [Value::Orders(orders.into()), Value::Protocol(wire)])
    }
}

/// The orders of members on the channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// Neighbours in a node, from a member of its own on each channel.
    Rails,
    /// Orders that share few links of a node whose members are all linked with each other.
    Links,
    /// Given ones.
    Given(Arc<[(Vec<u32>, u32)]>),
}

impl Order {
    /// The number of channels that use all links, or all rails.
    pub(super) fn channels(&self, group: &Group) -> u32 {
        let (_, largest) = group.sizes();
        if group.node_count() > 1 { largest } else { (2 * ((largest - 1) / 2)).max(1) }
    }

    /// The position of `member` in the order of `channel`; with `back`, the member at the position `member`.
    fn place(&self, group: &Group, channel: u32, member: u32, back: bool) -> u32 {
        if let Order::Given(orders) = self {
            let (order, _) = &orders[channel as usize % orders.len()];
            let place = if back { None } else { order.iter().position(|other| *other == member) };
            return place.map_or_else(|| order[member as usize % order.len()], |place| place as u32);
        }
        let node = group.node_of(member);
        let (start, size) = group.extent(node);
        let (local, first) = (member - start, channel % size);
        let place = match (self, node.is_multiple_of(2)) {
            (Order::Links, _) if group.node_count() == 1 => cycle(channel, local, size, back),
            (Order::Links, true) if back => zigzag::member(first, local, size),
            (Order::Links, true) => zigzag::position(first, local, size),
            // Backwards, so that what leaves on a rail enters on the same one.
            (Order::Links, false) if back => zigzag::member(first, size - 1 - local, size),
            (Order::Links, false) => size - 1 - zigzag::position(first, local, size),
            (Order::Rails | Order::Given(_), true) if back => (local + first) % size,
            (Order::Rails | Order::Given(_), true) => (local + size - first) % size,
            // From the member before the channel's own, downwards; this mirror is its own inverse.
            (Order::Rails | Order::Given(_), false) => (first + 2 * size - 1 - local) % size,
        };
        start + place
    }
}

/// As [`Order::place`], on a cycle of `size` members: the last member, then a path of the others; every second channel
/// runs backwards.
fn cycle(channel: u32, local: u32, size: u32, back: bool) -> u32 {
    if size < 3 {
        return local;
    }
    let (path, others) = (channel / 2, size - 1);
    let turned = |at: u32| if channel.is_multiple_of(2) { at } else { (size - at) % size };
    if back {
        let at = turned(local);
        if at == 0 { others } else { zigzag::member(path, at - 1, others) }
    } else {
        turned(if local == others { 0 } else { 1 + zigzag::position(path, local, others) })
    }
}

/// A ring on each channel.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) group: Group,
    pub(super) channels: u32,
    pub(super) order: Order,
    /// Whether blocks are summed around the rings (reduce-scatter).
    pub(super) reduce: bool,
    /// Whether blocks are broadcast around the rings (allgather).
    pub(super) gather: bool,
}

impl Rings {
    /// Whether a lane has its own blocks; else it takes its part of each block, which belongs to a member.
    fn is_allreduce(&self) -> bool {
        self.reduce && self.gather
    }
}

impl Lanes for Rings {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (group, channel, members) = (self.group.clone(), split.group(index), self.group.members());
        let (reduce, gather, whole, order) = (self.reduce, self.gather, self.is_allreduce(), self.order.clone());
        let along = order.clone();
        let (extent, split) = (split.extent(index), *split);
        let block = move |group: &Group, place: u32| -> Range<u64> {
            if whole {
                let part = shard(extent.end - extent.start, members.into(), place.into());
                return extent.start + part.start..extent.start + part.end;
            }
            let owner = along.place(group, channel, place, true);
            piece(shard(split.elements, members.into(), owner.into()), split.groups * split.chunks, index)
        };
        let place = order.place(&group, channel, member, false);
        let behind = move |distance: u32| (place + members - distance % members) % members;
        let next = order.place(&group, channel, (place + 1) % members, true);
        let before = order.place(&group, channel, behind(1), true);
        let rounds = members - 1;
        Lane::new(2 * self.rounds(), move |k| {
            let (round, receives) = (k / 2, k % 2);
            let summing = reduce && round < rounds;
            let back = match (summing, reduce && gather) {
                (true, _) => round + 1,
                (false, true) => round - rounds,
                (false, false) => round,
            };
            let range = block(&group, behind(back + receives));
            match (receives, summing) {
                (0, _) => LaneStep::new(Action::Send, next, range),
                (_, true) => LaneStep::new(Action::RecvSum, before, range),
                (_, false) => LaneStep::new(Action::RecvInto, before, range),
            }
        })
    }

    fn rounds(&self) -> u32 {
        (self.group.members() - 1) * (u32::from(self.reduce) + u32::from(self.gather))
    }

    fn largest_message(&self, split: &Split) -> u64 {
        let p = u64::from(self.group.members());
        let length = if self.is_allreduce() {
            split.longest().div_ceil(p)
        } else {
            split.elements.div_ceil(p).div_ceil(split.groups * split.chunks)
        };
        if p == 1 { 0 } else { length }
    }

    /// Every second node is traversed alike. Parts of lanes are equal where all blocks are.
    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let members = u64::from(self.group.members());
        let extents = if self.is_allreduce() { (split.groups * split.chunks).max(1) } else { 1 };
        let multiple = extents.saturating_mul(members);
        let (nodes, (smallest, size)) = (self.group.node_count(), self.group.sizes());
        match smallest == size && !matches!(self.order, Order::Given(_)) {
            true if nodes == 1 && self.order == Order::Links && size > 2 => (Permutations::Identity, 1),
            true if nodes == 1 || size == 1 => (Permutations::Rotations { unit: 1 }, multiple),
            true if nodes.is_multiple_of(2) && nodes > 2 => (Permutations::Rotations { unit: 2 * size }, multiple),
            _ => (Permutations::Identity, 1),
        }
    }

    fn window(&self) -> u32 {
        self.channels.saturating_mul(2)
    }

    fn roots(&self) -> u32 {
        self.channels
    }

    /// Of the channels that enter a node at the same member, each has a flow of its own.
    fn flow(&self, channel: u32) -> u32 {
        match &self.order {
            Order::Given(orders) => orders.get(channel as usize).map_or(0, |(_, flow)| *flow),
            Order::Rails | Order::Links => channel / self.group.sizes().1.max(1),
        }
    }
}
