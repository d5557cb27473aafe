//! Defines the parts of a cluster: hosts, devices, links and the vertices of their graph, as plain data.
//!
//! Ids are positions in the cluster's lists, so that per-device and per-wire state elsewhere is a plain vector.

use super::{GpuSpec, Protocol, Provenance};
use crate::{Bandwidth, Bytes, Time};
use std::sync::Arc;

/// A host: position in [`Cluster::hosts`](super::Cluster::hosts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A device: position in [`Cluster::devices`](super::Cluster::devices).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// One direction of a wire: position in [`Cluster::links`](super::Cluster::links).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A capacity that links share: both directions of a half-duplex wire have the same, each of a full-duplex one its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireId(pub u32);

/// A named thing that links join: a device, a host's memory, a NIC or a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VertexId(pub u32);

/// A machine with one memory and one CPU, and perhaps GPUs and NICs.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Position in the list of hosts.
    pub id: HostId,
    /// E.g. `node3`.
    pub name: String,
    /// Its devices: the CPU, then the GPUs.
    pub devices: Vec<DeviceId>,
    /// Its memory.
    pub memory: VertexId,
    /// How data passes from one of its buses to another.
    pub peer_to_peer: PeerToPeer,
    /// Bytes per second that its storage can write; `None`: unknown.
    pub storage: Option<Bandwidth>,
    /// The link that a copy through a bounce buffer crosses besides writing and reading the memory.
    pub(super) bounce: LinkId,
}

/// How data from a GPU passes the CPU of its host on the way to another device or a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PeerToPeer {
    /// From bus to bus.
    #[default]
    Direct,
    /// It is written to the host's memory and read from there.
    HostMemory,
}

crate::named!(PeerToPeer, "way between buses": Direct = "direct", HostMemory = "host-memory");

/// Something that computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Position in the list of devices.
    pub id: DeviceId,
    /// The host it sits in; of a switch between hosts, one past the last host.
    pub host: HostId,
    /// E.g. `node0.cpu`, `node0.gpu1`.
    pub name: String,
    /// Its kind, with its figures.
    pub kind: DeviceKind,
    /// The source of those figures.
    pub provenance: Arc<Provenance>,
    /// Its vertex in the graph.
    pub vertex: VertexId,
    /// The links that data crosses from one rank on this device to another, in order.
    pub(super) within: Vec<LinkId>,
}

/// A CPU, a GPU or a switch that adds, with its figures.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceKind {
    /// All cores of a host.
    Cpu(CpuSpec),
    /// One accelerator.
    Gpu(Arc<GpuSpec>),
    /// A switch that adds what it is sent and multicasts the sum (NVSwitch of Hopper and later, InfiniBand with SHARP).
    Switch(SwitchSpec),
}

/// A switch that adds.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchSpec {
    /// Bytes that it receives and adds per second, of all its ports together.
    pub sums: Bandwidth,
    /// The kind of its ports: it adds as fast as they deliver.
    pub links: LinkKind,
}

/// All cores of a host, which share its memory bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuSpec {
    /// Cores that run at full speed side by side.
    pub cores: u32,
    /// Peak single-precision FLOP/s of one core.
    pub flops_per_core_s: f64,
    /// Bytes read or written per second by all cores together.
    pub memory_bandwidth: Bandwidth,
    /// Size of the host's memory.
    pub memory: Bytes,
    /// The longer wait of a message whose receiver shares its core, for each other rank on that core: ranks that wait
    /// run in turn.
    pub message_wake: Time,
}

/// One direction of a wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Position in the list of links.
    pub id: LinkId,
    /// Where data enters.
    pub from: VertexId,
    /// Where it leaves.
    pub to: VertexId,
    /// What the wire is.
    pub kind: LinkKind,
    /// From the first byte's entering to its leaving.
    pub latency: Time,
    /// Bytes per second at the line rate, headers included.
    pub bandwidth: Bandwidth,
    /// Whether transfers share that bandwidth or each may have it whole.
    pub sharing: Sharing,
    /// The cost of messages on it besides their bytes at the line rate.
    pub protocol: Arc<Protocol>,
    /// The wire whose capacity it uses; equal for the directions of a half-duplex wire.
    pub wire: WireId,
    /// The other direction; itself where there is none.
    pub reverse: LinkId,
    /// The source of its figures.
    pub provenance: Arc<Provenance>,
}

/// How transfers on a link divide its bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// All transfers on the wire together have it: a cable, a bus, a memory.
    Shared,
    /// Each transfer may have it whole: the rate at which one core moves one message.
    PerTransfer,
}

/// One named thing of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vertex {
    /// Position in the graph.
    pub id: VertexId,
    /// E.g. `node0.eth0`, `switch`.
    pub name: String,
    /// What it is.
    pub kind: VertexKind,
    /// The host it belongs to; `None` for a switch between hosts.
    pub host: Option<HostId>,
}

/// What a vertex of the graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VertexKind {
    /// The CPU of a host: also the bridge between its memory, its GPUs and its NICs.
    Cpu(DeviceId),
    /// A GPU; data ends here and is not passed on.
    Gpu(DeviceId),
    /// A host's memory; data ends here and is not passed on.
    Memory,
    /// A network interface of a host.
    Nic,
    /// A switch, between hosts or (PCIe, NVSwitch) inside one.
    Switch,
}

/// The kind of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// Ethernet, NIC to switch or NIC to NIC.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
    /// NVLink, GPU to GPU, CPU or NVSwitch.
    NvLink,
    /// PCI Express.
    Pcie,
    /// The interconnect between the sockets of a host: QPI, UPI, HyperTransport, xGMI, X-bus.
    HostBridge,
    /// Cray Gemini, NIC to router or router to router.
    Gemini,
    /// The passing of one message between ranks of a host.
    SharedMemory,
    /// Reading and writing a host's memory.
    HostMemory,
    /// Reading and writing a GPU's own memory.
    DeviceMemory,
    /// From one GPU's memory to another's, over any links, as it was measured.
    Peer,
}

crate::named!(LinkKind, "kind of link":
    Ethernet = "ethernet", InfiniBand = "infiniband", NvLink = "nvlink", Pcie = "pcie", HostBridge = "host-bridge", Gemini = "gemini",
    SharedMemory = "shared-memory", HostMemory = "host-memory"; DeviceMemory = "device-memory", Peer = "peer");

/// Whether a wire carries both directions at full speed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Duplex {
    /// Each direction has the bandwidth for itself.
    #[default]
    Full,
    /// The directions share it.
    Half,
}

crate::named!(Duplex, "duplex": Full = "full", Half = "half");
