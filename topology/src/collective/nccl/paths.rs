//! Finds what the wires of nodes carry of NCCL's channels, all at once: rings inside a node along the orders that
//! `orders.rs` finds, and channels between nodes by the NICs that GPUs reach at full rate.
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

/// The channels between nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outside {
    /// NICs of a node that they use.
    pub(super) nics: u32,
    /// Bytes per second.
    pub(super) rate: f64,
    /// Payload of one of them, the slowest, in bytes per second.
    pub(super) payload: f64,
}

/// A channel between nodes.
struct Channel {
    /// The member whose NIC it uses.
    entry: usize,
    flow: u32,
    /// Its NIC's link.
    nic: LinkId,
    /// Bytes per second alone.
    alone: f64,
}

/// What a route between two GPUs takes of the wires whether it takes NVLinks alone,
/// and the link by which it leaves.
fn hop(
    cluster: &Cluster,
    [from, to]: [&Device; 2],
    flow: u32,
    generation: Generation,
) -> Result<(Uses, bool, LinkId), InputError> {
    let route = cluster.route_of_flow(from.id, to.id, flow)?;
    let way = Way::new(cluster, [from, to], &route, generation);
    let mut wires: BTreeMap<u32, f64> = BTreeMap::new();
    for (link, seconds) in way.uses() {
        // What switches between hosts carry is another question (`fabric.rs`).
        let between = |vertex| cluster.vertex(vertex).host.is_none();
        if !(between(link.from) && between(link.to)) {
            *wires.entry(link.wire.0).or_default() += seconds;
        }
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
    generation: Generation,
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
        ..=SEARCHED => orders::cycles(&hops, count),
        _ => vec![(0..count).collect()],
    };
    let rate = orders::rate(&hops, &cycles);
    let pairs = narrowest(hops.values(), count.saturating_sub(1) as f64);
    let nvlink = cycles.iter().all(|cycle| {
        cycle.iter().zip(cycle.iter().cycle().skip(1)).all(|(from, to)| by_nvlink.contains(&(*from, *to)))
    });
    Ok((Inside { cycles, rate, pairs, nvlink }, hops))
}

/// The channels between the nodes `here` and `there`. `rings`, where nodes have no switch of NVLinks, are those inside
/// a node: their wires are shared with what leaves it.
///
/// # Errors
/// Members that cannot reach each other.
pub(super) fn outside(
    cluster: &Cluster,
    [here, there]: [&[&Device]; 2],
    rings: Option<(&Inside, &Hops)>,
    generation: Generation,
) -> Result<Outside, InputError> {
    let count = here.len().min(there.len());
    let mut crossings: BTreeMap<(usize, u32), [Uses; 2]> = BTreeMap::new();
    let mut channels = Vec::new();
    for entry in 0..count {
        let mut taken = BTreeSet::new();
        for flow in 0..FLOWS {
            let (forth, _, nic) = hop(cluster, [here[entry], there[entry]], flow, generation)?;
            // Flows rotate over the nearest NICs.
            if !taken.insert(nic) {
                break;
            }
            let (back, ..) = hop(cluster, [there[entry], here[entry]], flow, generation)?;
            let alone = narrowest([&forth, &back].into_iter(), 1.0);
            channels.push(Channel { entry, flow, nic, alone });
            crossings.insert((entry, flow), [forth, back]);
        }
    }
    let fastest = channels.iter().map(|channel| channel.alone).fold(0.0, f64::max);
    let rate_of = |least: f64| {
        let used: Vec<&Channel> = channels.iter().filter(|channel| channel.alone >= least).collect();
        let mut parts = 0.0;
        let mut taken: Vec<&Uses> = Vec::new();
        let cycles = rings.map_or(1, |(inside, _)| inside.cycles.len().max(1));
        for (number, channel) in
            used.iter().enumerate().flat_map(|one| (0..cycles).map(move |cycle| (one.0 + cycle, one.1)))
        {
            parts += 1.0;
            taken.extend(&crossings[&(channel.entry, channel.flow)]);
            let Some((inside, hops)) = rings else { continue };
            // All of the cycle but its hop into the entry.
            let cycle = &inside.cycles[number % cycles];
            let steps = cycle.iter().copied().zip(cycle.iter().copied().cycle().skip(1));
            taken.extend(steps.filter(|(_, to)| *to != channel.entry || count == 1).filter_map(|step| hops.get(&step)));
        }
        let nics: BTreeSet<LinkId> = used.iter().map(|channel| channel.nic).collect();
        let payload = nics.iter().map(|nic| cluster.link(*nic).payload().bytes_per_s()).fold(f64::MAX, f64::min);
        Outside { nics: nics.len() as u32, rate: narrowest(taken.into_iter(), parts), payload }
    };
    let (all, nearest) = (rate_of(0.0), rate_of(fastest * 0.99));
    Ok(if nearest.rate > all.rate * 1.001 { nearest } else { all })
}

/// The orders of `members`, by node, along each channel: every second node is traversed backwards, so that what leaves
/// on a rail enters on the same one.
pub(super) fn orders(nodes: &[Vec<u32>], cycles: &[Vec<usize>]) -> Vec<Vec<u32>> {
    let local = nodes.first().map_or(0, Vec::len);
    let entries = if nodes.len() > 1 { local } else { 1 };
    let channels = cycles.iter().flat_map(|cycle| (0..entries).map(move |entry| (cycle, entry)));
    let order = |(cycle, entry): (&Vec<usize>, usize)| {
        let node = |(number, node): (usize, &Vec<u32>)| {
            let walk: Vec<u32> = cycle.iter().cycle().skip(entry).take(local).map(|member| node[*member]).collect();
            if number % 2 == 0 { walk } else { walk.into_iter().rev().collect() }
        };
        nodes.iter().enumerate().flat_map(node).collect()
    };
    channels.map(order).collect()
}
