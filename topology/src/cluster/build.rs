//! `Builder`: adds hosts, GPUs, NICs, switches and wires one by one, and turns them into a `Cluster`.
//!
//! It does not depend on files, so a measured host, a generator and a TOML file build the same structure.

use super::fabric::{Fabric, Routing};
use super::parts::*;
use super::size::Size;
use super::wire::Wire;
use super::{Cluster, Duplex, GpuSpec, LinkKind, Protocol, Provenance, Stack};
use crate::{Bandwidth, Time};
use petgraph::graph::{DiGraph, Node, NodeIndex};
use std::sync::Arc;

/// A cluster under construction.
pub(super) struct Builder {
    cluster: Cluster,
    /// The protocol of all memories.
    memory: Arc<Protocol>,
    /// Switches that add, which become devices after all others.
    adding: Vec<(VertexId, Option<HostId>, SwitchSpec, Arc<Provenance>)>,
}

impl Builder {
    pub(super) fn new(name: &str, description: &str) -> Builder {
        Builder {
            cluster: Cluster {
                name: name.to_string(),
                description: description.to_string(),
                hosts: Vec::new(),
                devices: Vec::new(),
                links: Vec::new(),
                wires: 0,
                graph: DiGraph::new(),
                tables: Vec::new(),
                fabrics: Vec::new(),
                attached: Vec::new(),
                failed: Vec::new(),
                routing: Routing::Lowest,
                seed: 0,
                shared_cores: false,
            },
            memory: Arc::new(Stack::Memory.defaults()),
            adding: Vec::new(),
        }
    }

    /// A host with its CPU and memory; the next two vertices are `NAME.cpu` and `NAME.memory`.
    pub(super) fn host(
        &mut self,
        name: &str,
        cpu: &CpuSpec,
        message_latency: Time,
        message_bandwidth: Bandwidth,
        provenance: &Arc<Provenance>,
    ) -> HostId {
        let id = HostId(self.cluster.hosts.len() as u32);
        let device = DeviceId(self.cluster.devices.len() as u32);
        let core = self.vertex(format!("{name}.cpu"), VertexKind::Cpu(device), Some(id));
        let memory = self.vertex(format!("{name}.memory"), VertexKind::Memory, Some(id));
        let message = self.copying(core, message_latency, message_bandwidth, provenance);
        let of_memory = self.in_memory(LinkKind::HostMemory, Time::ZERO, cpu.memory_bandwidth, provenance);
        let write = self.wire(core, memory, &Wire { duplex: Duplex::Half, ..of_memory });
        let read = self.cluster.link(write).reverse;
        let peer_to_peer = PeerToPeer::Direct;
        let (name, devices, storage) = (name.to_string(), vec![device], None);
        let host = Host { id, name: name.clone(), devices, memory, peer_to_peer, storage, bounce: message };
        self.cluster.hosts.push(host);
        self.cluster.devices.push(Device {
            id: device,
            host: id,
            name: format!("{name}.cpu"),
            kind: DeviceKind::Cpu(cpu.clone()),
            provenance: provenance.clone(),
            vertex: core,
            within: vec![message, write, read],
        });
        id
    }

    /// Sets the storage rate of the host that was added last.
    pub(super) fn storage(&mut self, storage: Option<Bandwidth>) {
        let host = self.cluster.hosts.len() - 1;
        self.cluster.hosts[host].storage = storage;
    }

    /// Sets how data passes the CPU of the host that was added last, and the figures of its bounce buffer.
    pub(super) fn passing(&mut self, peer_to_peer: PeerToPeer, bounce: Option<(Time, Bandwidth)>) {
        let host = self.cluster.hosts.len() - 1;
        self.cluster.hosts[host].peer_to_peer = peer_to_peer;
        if let Some((latency, bandwidth)) = bounce {
            let cpu = &self.cluster.devices[self.cluster.hosts[host].devices[0].0 as usize];
            let (core, provenance) = (cpu.vertex, cpu.provenance.clone());
            self.cluster.hosts[host].bounce = self.copying(core, latency, bandwidth, &provenance);
        }
    }

    /// A GPU called `HOST.NAME` in the host that was added last.
    pub(super) fn gpu(&mut self, name: &str, spec: &Arc<GpuSpec>, provenance: &Arc<Provenance>) {
        let device = DeviceId(self.cluster.devices.len() as u32);
        let host = HostId(self.cluster.hosts.len() as u32 - 1);
        let name = format!("{}.{name}", self.cluster.hosts[host.0 as usize].name);
        let vertex = self.vertex(name.clone(), VertexKind::Gpu(device), Some(host));
        let copy = self.in_memory(LinkKind::DeviceMemory, Time::ZERO, spec.memory_bandwidth, provenance);
        let copy = self.one_way(vertex, vertex, &copy);
        self.cluster.hosts[host.0 as usize].devices.push(device);
        self.cluster.devices.push(Device {
            id: device,
            host,
            name,
            kind: DeviceKind::Gpu(spec.clone()),
            provenance: provenance.clone(),
            vertex,
            // A copy reads and writes the same memory.
            within: vec![copy, copy],
        });
    }

    /// Makes a switch add; switches are given in the order of their vertices.
    pub(super) fn adds(&mut self, switch: VertexId, spec: SwitchSpec, provenance: &Arc<Provenance>) {
        let host = self.vertices()[switch.0 as usize].weight.host;
        self.adding.push((switch, host, spec, provenance.clone()));
    }

    /// A NIC or switch, or the graph's side of a device.
    pub(super) fn vertex(&mut self, name: String, kind: VertexKind, host: Option<HostId>) -> VertexId {
        let id = VertexId(self.cluster.graph.node_count() as u32);
        self.cluster.graph.add_node(Vertex { id, name, kind, host });
        id
    }

    /// Both directions of a wire between two vertices; the id of the one from `from`.
    pub(super) fn wire(&mut self, from: VertexId, to: VertexId, wire: &Wire) -> LinkId {
        let there = self.one_way(from, to, wire);
        let back = self.one_way(to, from, wire);
        if wire.duplex == Duplex::Half {
            self.cluster.wires -= 1;
            self.cluster.links[back.0 as usize].wire = self.cluster.links[there.0 as usize].wire;
        }
        self.cluster.links[there.0 as usize].reverse = back;
        self.cluster.links[back.0 as usize].reverse = there;
        there
    }

    /// A full-duplex wire inside a memory.
    fn in_memory(&self, kind: LinkKind, latency: Time, bandwidth: Bandwidth, provenance: &Arc<Provenance>) -> Wire {
        let (duplex, protocol, provenance) = (Duplex::Full, self.memory.clone(), provenance.clone());
        Wire { kind, latency, bandwidth, duplex, protocol, provenance }
    }

    /// The link on which one core copies a message or a buffer, each as fast as if it were alone.
    fn copying(&mut self, core: VertexId, latency: Time, bandwidth: Bandwidth, source: &Arc<Provenance>) -> LinkId {
        let wire = self.in_memory(LinkKind::SharedMemory, latency, bandwidth, source);
        let link = self.one_way(core, core, &wire);
        self.cluster.links[link.0 as usize].sharing = Sharing::PerTransfer;
        link
    }

    /// A link on its own wire.
    fn one_way(&mut self, from: VertexId, to: VertexId, of: &Wire) -> LinkId {
        let id = LinkId(self.cluster.links.len() as u32);
        let wire = WireId(self.cluster.wires);
        self.cluster.wires += 1;
        let Wire { kind, latency, bandwidth, .. } = *of;
        let (protocol, provenance) = (of.protocol.clone(), of.provenance.clone());
        let sharing = Sharing::Shared;
        let link = Link { id, from, to, kind, latency, bandwidth, sharing, protocol, wire, reverse: id, provenance };
        self.cluster.links.push(link);
        self.cluster.graph.add_edge(NodeIndex::new(from.0 as usize), NodeIndex::new(to.0 as usize), id);
        id
    }

    /// All vertices so far, by id.
    pub(super) fn vertices(&self) -> &[Node<Vertex>] {
        self.cluster.graph.raw_nodes()
    }

    /// Names and ids of all vertices except memories, which no link of a file may name.
    pub(super) fn linked_names(&self) -> Vec<(String, u32)> {
        let linked = self.vertices().iter().filter(|vertex| vertex.weight.kind != VertexKind::Memory);
        linked.map(|vertex| (vertex.weight.name.clone(), vertex.weight.id.0)).collect()
    }

    /// The id of the link that is added next.
    pub(super) fn next_link(&self) -> LinkId {
        LinkId(self.cluster.links.len() as u32)
    }

    /// A fabric whose switches and wires have been added.
    pub(super) fn fabric(&mut self, fabric: Fabric) {
        self.cluster.fabrics.push(fabric);
    }

    /// Whether all hosts share the cores of one machine.
    pub(super) fn shared_cores(&mut self, shared: bool) {
        self.cluster.shared_cores = shared;
    }

    /// How searched routes are chosen among equals.
    pub(super) fn routing(&mut self, routing: Routing, seed: u64) {
        (self.cluster.routing, self.cluster.seed) = (routing, seed);
    }

    /// The number of things so far, and about how many bytes they take together with `more`.
    pub(super) fn size(&self, more: Size) -> Size {
        Size {
            devices: more.devices.saturating_add(self.cluster.devices.len() as u64),
            things: more.things.saturating_add(self.cluster.graph.node_count() as u64),
            wires: more.wires.saturating_add(self.cluster.links.len() as u64 / 2),
        }
    }

    /// The first device that no wire connects to the first device, with that first device.
    pub(super) fn separated(&self) -> Option<(&Device, &Device)> {
        self.cluster.separated()
    }

    /// The cluster.
    pub(super) fn finish(mut self) -> Cluster {
        self.cluster.graph.shrink_to_fit();
        let between_hosts = HostId(self.cluster.hosts.len() as u32);
        for (vertex, host, spec, provenance) in self.adding {
            let host = host.unwrap_or(between_hosts);
            let (id, name) = (DeviceId(self.cluster.devices.len() as u32), self.cluster.vertex(vertex).name.clone());
            let (kind, within) = (DeviceKind::Switch(spec), Vec::new());
            self.cluster.devices.push(Device { id, host, name, kind, provenance, vertex, within });
        }
        for (number, fabric) in self.cluster.fabrics.iter().enumerate() {
            let ports = fabric.ports.iter().zip(0..).map(|((_, vertex), port)| (*vertex, number as u32, port));
            self.cluster.attached.extend(ports);
        }
        self.cluster.attached.sort_unstable();
        self.cluster
    }
}
