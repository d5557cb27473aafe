//! Finds what the wires of nodes carry of NCCL's channels, all at once: rings inside a node along the orders that
//! `orders.rs` finds, and channels between nodes by the NICs that GPUs reach at full rate.
//!
//! Without a generation, copies reach all that the wires carry: so it is between GPUs that NCCL does not know.
//!
//! A rate is bytes per second that each member sends round all rings together, in equal parts: the narrowest wire's,
//! whose capacity is its payload times the share that NCCL's copies reach (`way.rs`). The lanes of `rings:c:simple`
//! load the same wires by the same shares.

use std::collections::{BTreeMap, BTreeSet};

use super::Generation;
use super::orders::{self, Hops, Uses, narrowest};
use super::way::Way;
use crate::InputError;
use crate::cluster::{Cluster, Device, LinkId};

/// Flows of a pair of GPUs that are tried, to find NICs that are equally near.
const FLOWS: u32 = 16;

/// Channels of which some may be left out.
const FEW: usize = 24;

/// GPUs of a node whose orders are searched; more are taken in their own order.
const SEARCHED: usize = 16;

/// The rings inside a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Inside {
    /// Orders of the members.
    pub(super) cycles: Vec<Vec<usize>>,
    /// Bytes per second.
    pub(super) rate: f64,
    /// Bytes per second that a member sends to all others at once, in equal parts.
    pub(super) pairs: f64,
    /// Whether the rings take NVLinks alone.
    pub(super) nvlink: bool,
}

/// What the channels between nodes reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outside {
    /// NICs of a node that they use.
    pub(super) nics: u32,
    /// Bytes per second.
    pub(super) rate: f64,
    /// Payload of one of them, the slowest, in bytes per second.
    pub(super) payload: f64,
    /// The most channels that a member sends on inside the node, as a share of all.
    pub(super) stays: f64,
}

/// A channel of rings between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Channel {
    /// Which of the orders inside a node.
    cycle: usize,
    /// The member that enters every second node, and leaves the others.
    entry: usize,
    /// The number of its flow, by which it takes one of the nearest NICs.
    pub(super) flow: u32,
}

impl Channel {
    /// A channel that stays in a node.
    pub(super) fn inside(cycle: usize) -> Channel {
        Channel { cycle, entry: 0, flow: 0 }
    }
}

/// What a route between two GPUs takes of the wires whether it takes NVLinks alone,
/// and the link by which it leaves.
fn hop(
    cluster: &Cluster,
    [from, to]: [&Device; 2],
    flow: u32,
    generation: Option<Generation>,
) -> Result<(Uses, bool, LinkId), InputError> {
    let route = cluster.route_of_flow(from.id, to.id, flow)?;
    let way = Way::new(cluster, [from, to], &route, generation);
    let mut wires: BTreeMap<u64, f64> = BTreeMap::new();
    for (link, seconds) in way.uses() {
        // What switches between hosts carry is another question (`fabric.rs`).
        let between = |vertex| cluster.vertex(vertex).host.is_none();
        if !(between(link.from) && between(link.to)) {
            *wires.entry(link.wire.0.into()).or_default() += seconds;
        }
    }
    // The limit of copies between two GPUs of a host is like a wire of their own.
    if let Some(cap) = route.transport.cap.filter(|_| from.host == to.host) {
        wires.insert(1 << 63 | u64::from(from.id.0) << 31 | u64::from(to.id.0), 1.0 / cap.bytes_per_s());
    }
    Ok((wires.into_iter().collect(), way.is_nvlink(), route.transport.sender))
}

/// The rings among the `members` of a node without a switch of NVLinks.
///
/// # Errors
/// Members that cannot reach each other.
pub(super) fn inside(
    cluster: &Cluster,
    members: &[&Device],
    generation: Option<Generation>,
) -> Result<(Inside, Hops), InputError> {
    let (mut hops, mut by_nvlink) = (Hops::new(), BTreeSet::new());
    let count = members.len();
    let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to))).filter(|(from, to)| from != to);
    for (from, to) in all {
        let (uses, nvlink, _) = hop(cluster, [members[from], members[to]], 0, generation)?;
        hops.insert((from, to), uses);
        if nvlink {
            by_nvlink.insert((from, to));
        }
    }
    let cycles = match count {
        ..=SEARCHED => {
            // RCCL's rings leave the links between GPUs only where these have no way through all of them.
            let only = generation.is_none().then(|| hops.iter().filter(|(pair, _)| by_nvlink.contains(*pair)));
            let linked = only.and_then(|of| orders::cycles_of(&of.map(|(k, v)| (*k, v.clone())).collect(), count));
            linked.unwrap_or_else(|| orders::cycles(&hops, count))
        }
        _ => vec![(0..count).collect()],
    };
    let rate = orders::rate(&hops, &cycles);
    let pairs = narrowest(hops.values(), count.saturating_sub(1) as f64);
    let nvlink = cycles.iter().all(|cycle| {
        cycle.iter().zip(cycle.iter().cycle().skip(1)).all(|(from, to)| by_nvlink.contains(&(*from, *to)))
    });
    Ok((Inside { cycles, rate, pairs, nvlink }, hops))
}

/// What the channels of two nodes take of the wires.
struct Crossings {
    /// By member and flow: from the first node to the second and back, the NIC's link, and bytes per second alone.
    of: BTreeMap<(usize, u32), ([Uses; 2], LinkId, f64)>,
    /// By the members that leave and enter and the flow, where one channel closes over an odd number of nodes, so that it
    /// enters the first at another member than it leaves the last: the same.
    closing: BTreeMap<(usize, usize, u32), [Uses; 2]>,
}

impl Crossings {
    fn find(
        cluster: &Cluster,
        [here, there]: [&[&Device]; 2],
        generation: Option<Generation>,
    ) -> Result<Crossings, InputError> {
        let mut of = BTreeMap::new();
        for entry in 0..here.len().min(there.len()) {
            let mut taken = BTreeSet::new();
            for flow in 0..FLOWS {
                let (forth, _, nic) = hop(cluster, [here[entry], there[entry]], flow, generation)?;
                // Flows rotate over the nearest NICs.
                if !taken.insert(nic) {
                    break;
                }
                let (back, ..) = hop(cluster, [there[entry], here[entry]], flow, generation)?;
                let alone = narrowest([&forth, &back].into_iter(), 1.0);
                of.insert((entry, flow), ([forth, back], nic, alone));
            }
        }
        Ok(Crossings { of, closing: BTreeMap::new() })
    }

    /// Adds what closes channels that leave at the first of `ends` and enter at the second, where the network has a way.
    fn close(
        &mut self,
        cluster: &Cluster,
        [here, there]: [&[&Device]; 2],
        ends: impl Iterator<Item = (usize, usize)>,
        generation: Option<Generation>,
    ) {
        let flows: Vec<(usize, u32)> = self.of.keys().copied().collect();
        for (exit, entry) in ends {
            for (_, flow) in flows.iter().filter(|(member, _)| *member == entry) {
                let way = |from, to| hop(cluster, [from, to], *flow, generation).map(|(uses, ..)| uses);
                if let (Ok(forth), Ok(back)) = (way(here[exit], there[entry]), way(there[exit], here[entry])) {
                    self.closing.insert((exit, entry, *flow), [forth, back]);
                }
            }
        }
    }

    /// The crossing of a member by the flow of a channel: there may be fewer NICs near it than flows.
    fn at(&self, member: usize, flow: u32) -> Option<&([Uses; 2], LinkId, f64)> {
        let flows = self.of.range((member, 0)..(member + 1, 0)).count() as u32;
        self.of.get(&(member, flow % flows.max(1)))
    }
}

/// Where a node is in the rings of an odd number of nodes.
#[derive(Debug, Clone, Copy)]
enum Node {
    Inner,
    /// Channels close into it.
    First,
    /// They close from it.
    Last,
}

/// The channels between the nodes `here` and `there`, which may be of an odd number. `rings`, where nodes have no switch of
/// NVLinks, are those inside a node: their wires are shared with what leaves it.
///
/// # Errors
/// Members that cannot reach each other.
pub(super) fn outside(
    cluster: &Cluster,
    nodes: [&[&Device]; 2],
    (rings, odd): (Option<(&Inside, &Hops)>, bool),
    generation: Option<Generation>,
) -> Result<(Outside, Vec<Channel>), InputError> {
    let count = nodes[0].len().min(nodes[1].len());
    let mut crossings = Crossings::find(cluster, nodes, generation)?;
    let natural = vec![(0..count).collect::<Vec<usize>>()];
    let cycles = rings.map_or(&natural, |(inside, _)| &inside.cycles);
    if odd {
        let ends = |cycle: &Vec<usize>| -> Vec<(usize, usize)> {
            cycle.iter().copied().zip(cycle.iter().copied().cycle().skip(1)).collect()
        };
        crossings.close(cluster, nodes, cycles.iter().flat_map(ends), generation);
    }
    let taken = |channel: &Channel, node: Node| {
        let cycle = &cycles[channel.cycle];
        let at = cycle.iter().position(|member| *member == channel.entry).unwrap_or(0);
        let exit = cycle[(at + cycle.len() - 1) % cycle.len()];
        let closing = crossings.closing.get(&(exit, channel.entry, channel.flow));
        // A ring passes the first node forwards and the second one backwards.
        let forth = match node {
            Node::Last => closing.map(|uses| &uses[0]),
            _ => crossings.at(exit, channel.flow).map(|(uses, ..)| &uses[0]),
        };
        let back = match node {
            Node::First => closing.map(|uses| &uses[1]),
            _ => crossings.at(channel.entry, channel.flow).map(|(uses, ..)| &uses[1]),
        };
        let steps = cycle.iter().copied().zip(cycle.iter().copied().cycle().skip(1));
        let steps = steps.filter(move |(_, to)| *to != channel.entry);
        let inner = rings.into_iter().flat_map(move |(_, hops)| steps.clone().filter_map(|step| hops.get(&step)));
        inner.chain(forth).chain(back).collect::<Vec<_>>()
    };
    let rate = |channels: &[Channel]| {
        let at = |node| narrowest(channels.iter().flat_map(|channel| taken(channel, node)), channels.len() as f64);
        if odd { at(Node::Inner).min(at(Node::First)).min(at(Node::Last)) } else { at(Node::Inner) }
    };
    let all = |least: f64| -> Vec<Channel> {
        let near = crossings.of.iter().filter(|(_, (.., alone))| *alone >= least);
        near.flat_map(|((entry, flow), _)| (0..cycles.len()).map(|cycle| Channel { cycle, entry: *entry, flow: *flow }))
            .collect()
    };
    let fastest = crossings.of.values().map(|(.., alone)| *alone).fold(0.0, f64::max);
    let (every, nearest) = (all(0.0), all(fastest * 0.99));
    let channels = if rate(&nearest) > rate(&every) * 1.001 { nearest } else { every };
    let nics: BTreeMap<LinkId, f64> = crossings.of.values().map(|(_, nic, alone)| (*nic, *alone)).collect();
    let (best, channels) = without_slow_channels(channels, nics.values().sum(), rate);
    let used: BTreeSet<LinkId> = channels
        .iter()
        .filter_map(|channel| crossings.at(channel.entry, channel.flow).map(|(_, nic, _)| *nic))
        .collect();
    let payload = used.iter().map(|nic| cluster.link(*nic).payload().bytes_per_s()).fold(f64::MAX, f64::min);
    // A member leaves the node on the channels that the next one of the order enters.
    let entered = |member: usize| channels.iter().filter(|channel| channel.entry == member).count();
    let fewest = (0..count).map(entered).min().unwrap_or(0);
    let stays = 1.0 - fewest as f64 / channels.len().max(1) as f64;
    Ok((Outside { nics: used.len() as u32, rate: best, payload, stays }, channels))
}

/// The channels with the highest `rate`, found by leaving one out as long as that raises it. What the NICs carry together
/// is the `most`: fewer channels may be nearer to it where NICs are unlike.
fn without_slow_channels(
    mut channels: Vec<Channel>,
    most: f64,
    rate: impl Fn(&[Channel]) -> f64,
) -> (f64, Vec<Channel>) {
    let mut best = rate(&channels);
    while best < most * 0.995 && (2..=FEW).contains(&channels.len()) {
        let without = |index: usize| {
            let mut fewer = channels.clone();
            fewer.remove(index);
            (rate(&fewer), fewer)
        };
        let fewer = (0..channels.len()).map(without).reduce(|one, other| if other.0 > one.0 { other } else { one });
        match fewer {
            Some((found, fewer)) if found > best * 1.001 => (best, channels) = (found, fewer),
            _ => break,
        }
    }
    (best, channels)
}

/// The orders of members, by node, along each channel: every second node is traversed backwards, so that what leaves on
/// a rail enters on the same one.
pub(super) fn orders(nodes: &[Vec<u32>], cycles: &[Vec<usize>], channels: &[Channel]) -> Vec<Vec<u32>> {
    let order = |channel: &Channel| {
        let cycle = &cycles[channel.cycle];
        let at = cycle.iter().position(|member| *member == channel.entry).unwrap_or(0);
        let node = |(number, node): (usize, &Vec<u32>)| {
            let walk: Vec<u32> = cycle.iter().cycle().skip(at).take(cycle.len()).map(|member| node[*member]).collect();
            if number % 2 == 0 { walk } else { walk.into_iter().rev().collect() }
        };
        nodes.iter().enumerate().flat_map(node).collect()
    };
    channels.iter().map(order).collect()
}
