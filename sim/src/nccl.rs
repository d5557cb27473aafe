//! Applies NCCL's model to the ranks of a collective on a platform: its choice, and how long it runs.
//!
//! The time is that of the collective as a whole; on devices without known NCCL figures, its lanes are
//! simulated instead.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_topology::cluster::{Link, LinkId, LinkKind, Sharing, VertexKind};
use lockstep_topology::nccl::{Method, NcclAnswer, NcclCall, NcclMachine, Request, answer};
use lockstep_topology::{Collective, InputError, Rank};

use crate::platform::Platform;

/// The note where exchanges by NCCL are simulated as a ring.
pub(crate) const AS_A_RING: &str = "library:nccl: there is no model of NCCL for these devices (it needs GPUs of one generation, \
     V100 or later, with NVLink in a node), so it is predicted as one ring; an algorithm, a protocol or channels that it names \
     have no effect";

/// The note where exchanges by RCCL are simulated between other devices than AMD's GPUs.
pub(crate) const NOT_OF_AMD: &str = "library:rccl runs between AMD's GPUs, which this cluster lacks: it is predicted as rings over all links \
     of a node, as if it did";

/// NCCL's choice and time for a collective of `bytes` bytes among `ranks`, in the order of the members; `None` where
/// its figures for their devices are not known.
///
/// # Errors
/// A request that the machine or the collective does not serve, devices that cannot reach each other.
pub(crate) fn library(
    platform: &Platform<'_>,
    ranks: impl Iterator<Item = u32>,
    request: &Request,
    collective: &Collective,
    bytes: u64,
) -> Result<Option<NcclAnswer>, InputError> {
    let ranks: Vec<u32> = ranks.collect();
    let Some(first) = ranks.first().copied() else { return Ok(None) };
    let devices: Vec<_> = ranks.iter().map(|rank| platform.placement.device(Rank(*rank))).collect();
    let in_process = ranks.iter().filter(|rank| platform.hosting.share(Rank(first), Rank(**rank))).count();
    match NcclMachine::of(platform.cluster, &devices, in_process as u32)? {
        Some(machine) => answer(&machine, request, &NcclCall { collective, bytes }).map(Some),
        None => Ok(None),
    }
}

/// The most ranks whose rings are followed link by link.
const FOLLOWED: usize = 64;

/// The bytes that a call of NCCL on rings sends over each link among `members`, all of which are simulated; `None` where
/// NVLinks end in a switch, and for many ranks.
///
/// # Errors
/// Devices that cannot reach each other.
pub(crate) fn followed(
    platform: &Platform<'_>,
    members: impl Iterator<Item = u32>,
    answer: &NcclAnswer,
) -> Result<Option<BTreeMap<LinkId, f64>>, InputError> {
    let devices: Vec<_> = members.map(|rank| platform.placement.device(Rank(rank))).collect();
    if devices.len() > FOLLOWED || answer.choice.method != Method::Ring {
        return Ok(None);
    }
    let loads = NcclMachine::loads(platform.cluster, &devices)?;
    let shared = |link: &LinkId| platform.cluster.link(*link).sharing == Sharing::Shared;
    let scaled = |(link, part): (LinkId, f64)| (link, part * answer.carried.sent);
    Ok(loads.map(|loads| loads.into_iter().filter(|(link, _)| shared(link)).map(scaled).collect()))
}

/// The bytes that NCCL's call sends over the NVLinks of `ranks`, and over the networks' links of their hosts' NICs.
pub(crate) fn wires(platform: &Platform<'_>, ranks: &BTreeSet<u32>, answer: &NcclAnswer) -> BTreeMap<LinkId, f64> {
    let cluster = platform.cluster;
    let vertices: BTreeSet<u32> = ranks
        .iter()
        .map(|rank| cluster.devices()[platform.placement.device(Rank(*rank)).0 as usize].vertex.0)
        .collect();
    let hosts: BTreeSet<_> = ranks.iter().map(|rank| platform.placement.host(Rank(*rank))).collect();
    let by_nvlink = |link: &&Link| link.kind == LinkKind::NvLink && vertices.contains(&link.from.0);
    let by_nic = |link: &&Link| {
        let from = cluster.vertex(link.from);
        let leaves = matches!(link.kind, LinkKind::Ethernet | LinkKind::InfiniBand);
        leaves && from.kind == VertexKind::Nic && from.host.is_some_and(|host| hosts.contains(&host))
    };
    let mut wires = BTreeMap::new();
    // The bytes of a GPU are divided among its links by their rates.
    let mut all: BTreeMap<u32, f64> = BTreeMap::new();
    for link in cluster.links().iter().filter(by_nvlink) {
        *all.entry(link.from.0).or_default() += link.bandwidth.bytes_per_s();
    }
    for link in cluster.links().iter().filter(by_nvlink) {
        wires.insert(link.id, answer.carried.nvlink * link.bandwidth.bytes_per_s() / all[&link.from.0]);
    }
    if answer.carried.nic > 0.0 {
        wires.extend(cluster.links().iter().filter(by_nic).map(|link| (link.id, answer.carried.nic)));
    }
    wires
}
