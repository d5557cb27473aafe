//! `Machine`: reduces a cluster to what NCCL's search sees: GPUs by node, their NVLinks, and the NICs of a node.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::NodeIndex;

use super::{FabricShare, Generation};
use crate::cluster::{Cluster, Device, DeviceId, DeviceKind, GpuSpec, HostId, LinkKind, Stack, VertexKind};
use crate::{Bandwidth, InputError, Time};

/// How nodes reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// InfiniBand verbs, or RDMA over converged Ethernet.
    Rdma,
    /// AWS's Elastic Fabric Adapter, which does not keep messages in order: no LL128 over it.
    Efa,
    /// TCP or anything else that passes the hosts' processors.
    Sockets,
}

/// GPUs of one generation on equal nodes, a rank on each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NcclMachine {
    /// The number of GPUs.
    pub ranks: u32,
    /// NVLink domains, which may be larger than hosts; else hosts.
    pub nodes: u32,
    /// The generation of the GPUs.
    pub generation: Generation,
    /// Line rate of a GPU's NVLinks to the others of its node, in one direction; `None` for a single GPU a node.
    pub nvlink: Option<Bandwidth>,
    /// Whether they end in a switch that sums (NVSwitch of Hopper and later).
    pub nvswitch: bool,
    /// NICs of a node that its ranks use.
    pub nics: u32,
    /// Payload of one of them in one direction; `None` on one node.
    pub nic: Option<Bandwidth>,
    /// From a GPU to one of another node, the latency of the links alone.
    pub latency: Time,
    /// The network between nodes.
    pub network: Network,
    /// The share of the NICs' rate that it carries.
    pub fabric: FabricShare,
    /// Ranks in each process: 1, or those of a host where one process launches for all of them.
    pub per_process: u32,
}

impl NcclMachine {
    /// The machine that NCCL sees in `devices` of `cluster`, a rank on each in this order; `None` for a single rank,
    /// where a device is no GPU of a known generation, for several generations, ranks that share a GPU, and GPUs of a
    /// node without NVLink.
    ///
    /// # Errors
    /// GPUs that cannot reach each other.
    pub fn of(cluster: &Cluster, devices: &[DeviceId], per_process: u32) -> Result<Option<NcclMachine>, InputError> {
        let members: Option<Vec<(&Device, &GpuSpec)>> = devices.iter().map(|id| gpu(cluster, *id)).collect();
        let Some(members) = members.filter(|members| members.len() > 1) else { return Ok(None) };
        let Some(generation) = Generation::of(members[0].1) else { return Ok(None) };
        let own: BTreeSet<DeviceId> = devices.iter().copied().collect();
        if own.len() < devices.len() || members.iter().any(|(_, gpu)| Generation::of(gpu) != Some(generation)) {
            return Ok(None);
        }
        let mut nodes: BTreeMap<Domain, Vec<&Device>> = BTreeMap::new();
        let (mut nvlink, mut nvswitch) = (f64::MAX, true);
        for (device, _) in &members {
            let links = links(cluster, device, &own);
            nvlink = nvlink.min(links.rate);
            nvswitch &= links.switch.is_some();
            nodes.entry(links.switch.map_or(Domain::Host(device.host), Domain::Switch)).or_default().push(*device);
        }
        let largest = nodes.values().map(Vec::len).max().unwrap_or(0);
        if largest > 1 && nvlink <= 0.0 {
            return Ok(None);
        }
        let first = nodes.values().next().map_or(&[][..], Vec::as_slice);
        let last = nodes.values().next_back().map_or(&[][..], Vec::as_slice);
        let mut machine = NcclMachine {
            ranks: devices.len() as u32,
            nodes: nodes.len() as u32,
            generation,
            nvlink: Bandwidth::new(nvlink).filter(|_| largest > 1),
            nvswitch,
            nics: 0,
            nic: None,
            latency: Time::ZERO,
            network: Network::Rdma,
            fabric: FabricShare::FULL,
            per_process: per_process.clamp(1, largest.max(1) as u32),
        };
        if let (true, Some(from), Some(to)) = (nodes.len() > 1, first.first(), last.first()) {
            let route = cluster.route(from.id, to.id)?;
            machine.latency = route.latency;
            machine.network = match route.transport.protocol.stack {
                Stack::InfiniBand | Stack::Roce => Network::Rdma,
                Stack::Efa => Network::Efa,
                _ => Network::Sockets,
            };
            let (nics, rate) = nics(cluster, first);
            machine.nics = nics.max(1);
            machine.nic = if nics == 0 { Some(route.transport.rate) } else { rate };
            let hosts: BTreeMap<HostId, u32> = (0..)
                .zip(nodes.values())
                .flat_map(|(node, of)| of.iter().map(move |device| (device.host, node)))
                .collect();
            machine.fabric = FabricShare::of(cluster, &hosts, machine.nodes, machine.nics);
        }
        Ok(Some(machine))
    }

    /// Ranks of a node, rounded up where nodes differ.
    pub fn per_node(&self) -> u32 {
        self.ranks.div_ceil(self.nodes.max(1))
    }

    /// NVLinks' line rate of a GPU in GB/s, 0 without.
    pub(super) fn line(&self) -> f64 {
        self.nvlink.map_or(0.0, |rate| rate.bytes_per_s() * 1e-9)
    }

    /// Payload of all NICs of a node in GB/s in one direction; infinite on one node.
    pub(super) fn outward(&self) -> f64 {
        self.nic.map_or(f64::INFINITY, |rate| f64::from(self.nics) * rate.bytes_per_s() * 1e-9)
    }
}

/// What connects the GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Domain {
    Host(HostId),
    Switch(usize),
}

/// A GPU's NVLinks to others of the group.
struct NvLinks {
    /// Bytes per second.
    rate: f64,
    /// The switch where they end.
    switch: Option<usize>,
}

fn gpu(cluster: &Cluster, id: DeviceId) -> Option<(&Device, &GpuSpec)> {
    let device = cluster.device(id)?;
    match &device.kind {
        DeviceKind::Gpu(gpu) => Some((device, gpu)),
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
    }
}

fn links(cluster: &Cluster, device: &Device, own: &BTreeSet<DeviceId>) -> NvLinks {
    let mut links = NvLinks { rate: 0.0, switch: None };
    let graph = cluster.graph();
    for edge in graph.edges(NodeIndex::new(device.vertex.0 as usize)) {
        let link = cluster.link(*edge.weight());
        if link.kind != LinkKind::NvLink {
            continue;
        }
        match cluster.vertex(link.to).kind {
            VertexKind::Switch => {
                links.rate += link.bandwidth.bytes_per_s();
                links.switch.get_or_insert(link.to.0 as usize);
            }
            VertexKind::Gpu(other) if own.contains(&other) => links.rate += link.bandwidth.bytes_per_s(),
            _ => {}
        }
    }
    links
}

/// The NICs that the ranks `on` a node use, and the payload of the slowest: all of them where all GPUs of their hosts
/// take part, else the same share of them.
fn nics(cluster: &Cluster, on: &[&Device]) -> (u32, Option<Bandwidth>) {
    let hosts: BTreeSet<HostId> = on.iter().map(|device| device.host).collect();
    let (mut nics, mut slowest): (u32, Option<Bandwidth>) = (0, None);
    let graph = cluster.graph();
    for index in graph.node_indices() {
        let vertex = &graph[index];
        if vertex.kind != VertexKind::Nic || vertex.host.is_none_or(|host| !hosts.contains(&host)) {
            continue;
        }
        let outward = graph.edges(index).map(|edge| cluster.link(*edge.weight()));
        let networks = outward.filter(|link| matches!(link.kind, LinkKind::Ethernet | LinkKind::InfiniBand));
        let rate =
            networks.map(crate::cluster::Link::payload).reduce(|one, other| if one > other { one } else { other });
        if let Some(rate) = rate {
            nics += 1;
            slowest = Some(slowest.map_or(rate, |least| if rate < least { rate } else { least }));
        }
    }
    let is_gpu = |id: &&DeviceId| matches!(cluster.device(**id).map(|of| &of.kind), Some(DeviceKind::Gpu(_)));
    let all: usize =
        hosts.iter().map(|host| cluster.hosts()[host.0 as usize].devices.iter().filter(is_gpu).count()).sum();
    let used = (u64::from(nics) * on.len() as u64).div_ceil(all.max(1) as u64);
    (used as u32, slowest)
}
