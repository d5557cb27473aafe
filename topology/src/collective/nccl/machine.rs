//! `Machine`: reduces a cluster to what NCCL's search sees: GPUs by node, their NVLinks, and the NICs of a node.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::NodeIndex;

use super::constants::Hop;
use super::orders::Hops;
use super::paths::{self, Channel, Inside, Outside};
use super::{FabricShare, Generation, pace};
use crate::cluster::{Cluster, Device, DeviceId, DeviceKind, GpuSpec, HostId, LinkId, LinkKind, Stack, VertexKind};
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

/// The members of a ring in its order, and the number of its flow between nodes.
pub type RingOrder = (Vec<u32>, u32);

/// GPUs of one generation on equal nodes, a rank on each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NcclMachine {
    /// The number of GPUs.
    pub ranks: u32,
    /// NVLink domains, which may be larger than hosts; else hosts.
    pub nodes: u32,
    /// The generation of the GPUs.
    pub generation: Generation,
    /// Line rate of a GPU's links to the others of its node that rings use, in one direction, in NVLinks' terms: all
    /// NVLinks to a switch, else what reaches the rate of the rings that are found; `None` for a single GPU a node.
    pub nvlink: Option<Bandwidth>,
    /// The same for sends to all others of the node at once.
    pub pairs: Option<Bandwidth>,
    /// Whether rings take other links than NVLinks inside a node.
    pub by_pcie: bool,
    /// Whether they end in a switch that sums (NVSwitch of Hopper and later).
    pub nvswitch: bool,
    /// NICs of a node that its ranks use.
    pub nics: u32,
    /// Payload of one of them in one direction, or less where another wire on the way is narrower; `None` on one node.
    pub nic: Option<Bandwidth>,
    /// From a GPU to one of another node, the latency of the links alone.
    pub latency: Time,
    /// The network between nodes.
    pub network: Network,
    /// The share of the NICs' rate that it carries.
    pub fabric: FabricShare,
    /// The share of what rings carry that a GPU sends inside its node: where they leave it evenly (n − 1)/n of n GPUs, all
    /// of it where one never leaves; 1 on one node.
    pub stays: f64,
    /// Ranks in each process: 1, or those of a host where one process launches for all of them.
    pub per_process: u32,
}

impl NcclMachine {
    /// The machine that NCCL sees in `devices` of `cluster`, a rank on each in this order; `None` for a single rank,
    /// where a device is no GPU of a known generation, for several generations, and ranks that share a GPU.
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
        let shapes = shapes(cluster, &nodes);
        let mut rings = Vec::new();
        let (mut pairs, mut by_pcie) = (nvlink, false);
        if !nvswitch && largest > 1 {
            (nvlink, pairs) = (f64::MAX, f64::MAX);
            for shape in &shapes {
                let (inside, hops) = paths::inside(cluster, shape, Some(generation))?;
                if shape.len() > 1 {
                    let share = pace::ring_share(generation);
                    nvlink = nvlink.min(inside.rate / share);
                    pairs = pairs.min(inside.pairs / share);
                    by_pcie |= !inside.nvlink;
                }
                rings.push((inside, hops));
            }
        }
        let first = nodes.values().next().map_or(&[][..], Vec::as_slice);
        let last = nodes.values().next_back().map_or(&[][..], Vec::as_slice);
        let rate = |bytes: f64| Bandwidth::new(bytes).filter(|_| largest > 1);
        let mut machine = NcclMachine {
            ranks: devices.len() as u32,
            nodes: nodes.len() as u32,
            generation,
            nvlink: rate(nvlink),
            pairs: rate(pairs),
            by_pcie,
            nvswitch,
            nics: 0,
            nic: None,
            latency: Time::ZERO,
            network: Network::Rdma,
            fabric: FabricShare::FULL,
            stays: 1.0,
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
            machine.connect(cluster, &nodes, &shapes, &rings)?;
            let hosts: BTreeMap<HostId, u32> = (0..)
                .zip(nodes.values())
                .flat_map(|(node, of)| of.iter().map(move |device| (device.host, node)))
                .collect();
            machine.fabric = FabricShare::of(cluster, &hosts, machine.nodes, machine.nics);
        }
        Ok(Some(machine))
    }

    /// The order of `devices`, by their positions, on each channel of rings that the search finds, and the number of
    /// its flow between nodes ([`Cluster::route_of_flow`]); `None` as in [`NcclMachine::of`], and where nodes have unlike numbers of ranks.
    ///
    /// ```
    /// use lockstep_topology::{Cluster, nccl::NcclMachine};
    /// let cluster = Cluster::load("dgx1-v100").unwrap();
    /// let gpus: Vec<_> = cluster.devices()[1..9].iter().map(|gpu| gpu.id).collect();
    /// let rings = NcclMachine::orders(&cluster, &gpus).unwrap().unwrap();
    /// // Three cycles in both directions use all six NVLinks of each GPU.
    /// assert_eq!(rings.len(), 6);
    /// ```
    ///
    /// # Errors
    /// GPUs that cannot reach each other.
    pub fn orders(cluster: &Cluster, devices: &[DeviceId]) -> Result<Option<Vec<RingOrder>>, InputError> {
        let Some(machine) = NcclMachine::of(cluster, devices, 1)? else { return Ok(None) };
        let own: BTreeSet<DeviceId> = devices.iter().copied().collect();
        let mut nodes: BTreeMap<Domain, Vec<u32>> = BTreeMap::new();
        for (number, id) in (0..).zip(devices) {
            let device = &cluster.devices()[id.0 as usize];
            let switch = links(cluster, device, &own).switch;
            nodes.entry(switch.map_or(Domain::Host(device.host), Domain::Switch)).or_default().push(number);
        }
        let nodes: Vec<Vec<u32>> = nodes.into_values().collect();
        if nodes.iter().any(|node| node.len() != nodes[0].len()) {
            return Ok(None);
        }
        let gpus = |node: &Vec<u32>| -> Vec<&Device> {
            node.iter().map(|number| &cluster.devices()[devices[*number as usize].0 as usize]).collect()
        };
        let first = gpus(&nodes[0]);
        let rings = match machine.nvswitch {
            true => None,
            false => Some(paths::inside(cluster, &first, Some(machine.generation))?),
        };
        let rings = rings.as_ref().map(|(inside, hops)| (inside, hops));
        let natural = vec![(0..first.len()).collect()];
        let cycles = rings.map_or(&natural, |(inside, _)| &inside.cycles);
        let channels = match nodes.get(1) {
            Some(second) => {
                let rings = (rings, nodes.len() % 2 == 1);
                paths::outside(cluster, [&first, &gpus(second)], rings, Some(machine.generation))?.1
            }
            None => (0..cycles.len()).map(Channel::inside).collect(),
        };
        let flows = channels.iter().map(|channel| channel.flow);
        Ok(Some(paths::orders(&nodes, cycles, &channels).into_iter().zip(flows).collect()))
    }

    /// The bytes on each link for each byte that all `devices` send round the rings of [`NcclMachine::orders`]; `None` as
    /// there, and where NVLinks end in a switch.
    ///
    /// # Errors
    /// GPUs that cannot reach each other.
    pub fn loads(cluster: &Cluster, devices: &[DeviceId]) -> Result<Option<BTreeMap<LinkId, f64>>, InputError> {
        let switched = NcclMachine::of(cluster, devices, 1)?.is_none_or(|machine| machine.nvswitch);
        let Some(orders) = NcclMachine::orders(cluster, devices)?.filter(|_| !switched) else { return Ok(None) };
        let (mut loads, part) = (BTreeMap::new(), 1.0 / orders.len() as f64);
        for (order, flow) in &orders {
            for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
                let route = cluster.route_of_flow(devices[*from as usize], devices[*to as usize], *flow)?;
                route.links.iter().for_each(|link| *loads.entry(*link).or_insert(0.0) += part);
            }
        }
        Ok(Some(loads))
    }

    /// Sets the NICs of a node and what they carry: the least of the nodes that are unlike.
    fn connect(
        &mut self,
        cluster: &Cluster,
        nodes: &BTreeMap<Domain, Vec<&Device>>,
        shapes: &[&[&Device]],
        rings: &[(Inside, Hops)],
    ) -> Result<(), InputError> {
        let all: Vec<&[&Device]> = nodes.values().map(Vec::as_slice).collect();
        let mut least: Option<Outside> = None;
        for (number, shape) in shapes.iter().enumerate() {
            let there = all.iter().find(|node| node[0].id != shape[0].id).copied().unwrap_or(shape);
            let inside = rings.get(number).map(|(inside, hops)| (inside, hops));
            let odd = all.len() % 2 == 1;
            let (found, _) = paths::outside(cluster, [shape, there], (inside, odd), Some(self.generation))?;
            least = Some(least.filter(|least| least.rate <= found.rate).unwrap_or(found));
        }
        if let Some(Outside { nics, rate, payload, stays }) = least {
            (self.nics, self.stays) = (nics.max(1), stays);
            let each = rate / pace::nic_share(self.generation) / f64::from(self.nics);
            // Without the rounding of an exact quotient, where NICs are the narrowest.
            self.nic = Bandwidth::new(if (each / payload - 1.0).abs() < 1e-6 { payload } else { each });
        }
        Ok(())
    }

    /// Ranks of a node, rounded up where nodes differ.
    pub fn per_node(&self) -> u32 {
        self.ranks.div_ceil(self.nodes.max(1))
    }

    /// The kind of hops inside a node.
    pub(super) fn hop(&self) -> Hop {
        if self.by_pcie { Hop::Pcie } else { Hop::NvLink }
    }

    /// NVLinks' line rate of a GPU in GB/s, 0 without.
    pub(super) fn line(&self) -> f64 {
        self.nvlink.map_or(0.0, |rate| rate.bytes_per_s() * 1e-9)
    }

    /// The same for sends to all others of a node.
    pub(super) fn line_of_pairs(&self) -> f64 {
        self.pairs.map_or(0.0, |rate| rate.bytes_per_s() * 1e-9)
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

/// A node of each kind: by the number of its members, and by the links of the things of their hosts.
fn shapes<'a>(cluster: &Cluster, nodes: &'a BTreeMap<Domain, Vec<&'a Device>>) -> Vec<&'a [&'a Device]> {
    let mut parts: BTreeMap<HostId, Vec<(u32, u32, u64)>> = BTreeMap::new();
    let graph = cluster.graph();
    for index in graph.node_indices() {
        let Some(host) = graph[index].host else { continue };
        let Some(of) = cluster.hosts().get(host.0 as usize) else { continue };
        // Numbers from the first thing of the host; a network's end counts alike everywhere.
        let first = of.memory.0;
        let links = graph.edges(index).map(|edge| cluster.link(*edge.weight())).map(|link| {
            let inner = cluster.vertex(link.to).host == Some(host);
            let to = if inner { link.to.0.wrapping_sub(first) } else { u32::MAX };
            (link.from.0.wrapping_sub(first), to, link.bandwidth.bytes_per_s().to_bits())
        });
        parts.entry(host).or_default().extend(links);
    }
    let mut seen = BTreeSet::new();
    let shape = |node: &Vec<&Device>| {
        let places = node.iter().map(|device| {
            let host = &cluster.hosts()[device.host.0 as usize];
            device.vertex.0.wrapping_sub(host.memory.0)
        });
        let hosts: BTreeSet<HostId> = node.iter().map(|device| device.host).collect();
        (places.collect::<Vec<_>>(), hosts.iter().map(|host| parts.get(host).cloned()).collect::<Vec<_>>())
    };
    nodes.values().filter(|node| seen.insert(shape(node))).map(Vec::as_slice).collect()
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
