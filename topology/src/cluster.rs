//! `Cluster`: holds hosts, devices, NICs, switches and their links as one graph with deterministic routes.
//!
//! Everything that a simulator shares among transfers is a [`Link`] with its [`WireId`], and everything that computes
//! is a [`Device`]; the TOML file, the presets and a calibrated host all become the same structure through `build.rs`.

mod build;
mod change;
mod copy;
mod crossing;
mod describe;
mod fabric;
mod fabric_stamp;
mod fabric_table;
mod file;
mod flops;
mod gpu;
mod gpu_table;
mod names;
mod one_host;
mod order;
mod parts;
mod protocol;
mod protocol_keys;
mod provenance;
mod route;
mod scale;
mod size;
mod stamp;
#[cfg(test)]
mod tests;
mod transport;
mod values;
mod wire;

use std::path::Path;

use crate::aliases::is_alike;
use crate::{DESCRIPTION, ErrorPlace, InputError, nearest, read_text};
pub use copy::HostBuffer;
pub use describe::DescriptionTable;
use fabric::Fabric;
pub use fabric::Routing;
pub use flops::{parse_flops, show_flops};
pub use gpu::{Architecture, GpuSpec, Lanes, PeakPrecision};
pub use gpu_table::{CatalogueGpu, DEFAULT_LAUNCH, catalogue};
pub use one_host::HostGpu;
use order::Order;
pub(crate) use order::parts as order_parts;
pub use order::{NetworkFigures, networks};
pub use parts::{
    CpuSpec, Device, DeviceId, DeviceKind, Duplex, Host, HostId, Link, LinkId, LinkKind, PeerToPeer, Sharing,
    SwitchSpec, Vertex, VertexId, VertexKind, WireId,
};
use petgraph::graph::{DiGraph, NodeIndex};
pub use protocol::{Burst, Incast, PIECE, Protocol, Rendezvous, Stack};
pub use provenance::{Origin, Provenance};
pub use route::Route;
pub use scale::Figure;
pub use transport::RouteTransport;

/// A cluster may have at most this many devices.
pub const MOST_DEVICES: u64 = 4_000_000;

/// The clusters that ship with the project: name and TOML text, by name.
const PRESETS: [(&str, &str); 39] = [
    ("a3-highgpu-8g", include_str!("../clusters/a3-highgpu-8g.toml")),
    ("a3-megagpu-8g", include_str!("../clusters/a3-megagpu-8g.toml")),
    ("big-basin-50gbe", include_str!("../clusters/big-basin-50gbe.toml")),
    ("dgx-2", include_str!("../clusters/dgx-2.toml")),
    ("dgx-a100", include_str!("../clusters/dgx-a100.toml")),
    ("dgx-b200", include_str!("../clusters/dgx-b200.toml")),
    ("dgx-h100", include_str!("../clusters/dgx-h100.toml")),
    ("dgx-h200", include_str!("../clusters/dgx-h200.toml")),
    ("dgx1-p100", include_str!("../clusters/dgx1-p100.toml")),
    ("dgx1-v100", include_str!("../clusters/dgx1-v100.toml")),
    ("ethernet-4", include_str!("../clusters/ethernet-4.toml")),
    ("ethernet-gpu-8", include_str!("../clusters/ethernet-gpu-8.toml")),
    ("g5.48xlarge", include_str!("../clusters/g5.48xlarge.toml")),
    ("g6.48xlarge", include_str!("../clusters/g6.48xlarge.toml")),
    ("g6e.48xlarge", include_str!("../clusters/g6e.48xlarge.toml")),
    ("gb200-nvl72", include_str!("../clusters/gb200-nvl72.toml")),
    ("gb300-nvl72", include_str!("../clusters/gb300-nvl72.toml")),
    ("k20x8-pcie2", include_str!("../clusters/k20x8-pcie2.toml")),
    ("mi300x-8", include_str!("../clusters/mi300x-8.toml")),
    ("minsky-edr", include_str!("../clusters/minsky-edr.toml")),
    ("nd-h100-v5", include_str!("../clusters/nd-h100-v5.toml")),
    ("nd-h200-v5", include_str!("../clusters/nd-h200-v5.toml")),
    ("nd40rs-v2", include_str!("../clusters/nd40rs-v2.toml")),
    ("nd96amsr-a100-v4", include_str!("../clusters/nd96amsr-a100-v4.toml")),
    ("p2.16xlarge", include_str!("../clusters/p2.16xlarge.toml")),
    ("p2.8xlarge", include_str!("../clusters/p2.8xlarge.toml")),
    ("p3.16xlarge", include_str!("../clusters/p3.16xlarge.toml")),
    ("p4d.24xlarge", include_str!("../clusters/p4d.24xlarge.toml")),
    ("p4de.24xlarge", include_str!("../clusters/p4de.24xlarge.toml")),
    ("p5.48xlarge", include_str!("../clusters/p5.48xlarge.toml")),
    ("p5en.48xlarge", include_str!("../clusters/p5en.48xlarge.toml")),
    ("p6-b200.48xlarge", include_str!("../clusters/p6-b200.48xlarge.toml")),
    ("rtx-3090-2", include_str!("../clusters/rtx-3090-2.toml")),
    ("rtx-4090-2", include_str!("../clusters/rtx-4090-2.toml")),
    ("rtx-5090-2", include_str!("../clusters/rtx-5090-2.toml")),
    ("rtx-a6000-4", include_str!("../clusters/rtx-a6000-4.toml")),
    ("titan-gemini", include_str!("../clusters/titan-gemini.toml")),
    ("titanx8-pcie3", include_str!("../clusters/titanx8-pcie3.toml")),
    ("workstation", include_str!("../clusters/workstation.toml")),
];

/// Hosts with their devices and NICs, switches, and the links between all of them.
#[derive(Debug, Clone)]
pub struct Cluster {
    name: String,
    description: String,
    hosts: Vec<Host>,
    devices: Vec<Device>,
    links: Vec<Link>,
    wires: u32,
    /// Node weights are the named things, edge weights the position in `links`; a failed link has no edge.
    graph: DiGraph<Vertex, LinkId>,
    /// What `clusters show` prints: a line per table of the file, not per host.
    tables: Vec<DescriptionTable>,
    fabrics: Vec<Fabric>,
    /// Vertices on fabrics, with the fabric and the port there, sorted.
    attached: Vec<(VertexId, u32, u32)>,
    /// Links that have no edge any more, sorted.
    failed: Vec<LinkId>,
    /// How searched routes are chosen among equals.
    routing: Routing,
    seed: u64,
    /// All hosts are on one machine, whose cores and memory each host's CPU describes.
    shared_cores: bool,
}

impl Cluster {
    /// Loads the preset called `name_or_path`, else the TOML file at that path. `:32` after it sets its number of
    /// hosts, `@infiniband-hdr` puts every NIC on that network.
    ///
    /// # Errors
    /// An unknown name (with the nearest presets), an unreadable file, and whatever [`Cluster::parse`] refuses.
    ///
    /// ```
    /// # use lockstep_topology::cluster::Cluster;
    /// assert_eq!(Cluster::load("ethernet-gpu-8").unwrap().devices().len(), 8 * (1 + 4));
    /// ```
    pub fn load(name_or_path: &str) -> Result<Cluster, InputError> {
        let (name, order) = Order::parse(name_or_path)?;
        // Errors in the ordered size or network have no place in a file.
        let asked = |error: InputError| match error.value == name_or_path && error.value != name {
            true => error.at(ErrorPlace::Flag("cluster")),
            false => error,
        };
        if let Some((name, text)) = PRESETS.iter().find(|(preset, _)| is_alike(preset, name)) {
            return stamp::parse(&format!("clusters/{name}.toml"), text, &order).map_err(asked);
        }
        if !name.ends_with(".toml") {
            let near = nearest(name, PRESETS.map(|(name, _)| name));
            let with_gpu = order::with_gpu(name, &PRESETS);
            let cure = match (with_gpu.first(), near.is_empty()) {
                (Some(first), _) => format!(
                    "{} have such GPUs: write one, with a number of hosts, e.g. {first}:8.",
                    with_gpu.join(", ")
                ),
                (None, true) => "lockstep clusters list shows those that there are.".to_owned(),
                (None, false) => format!("did you mean {}?", near.join(", ")),
            };
            let one = if name.contains(',') { "name one: lists are for sim predict and sim sweep; " } else { "" };
            let message = format!("no such cluster; {one}{cure} A file's path must end in .toml");
            return Err(InputError::flag("cluster", name_or_path, message));
        }
        match read_text(Path::new(name), DESCRIPTION) {
            Ok(text) => stamp::parse(name, &text, &order).map_err(asked),
            Err(error) => {
                let message = error.with_cure("lockstep clusters list shows those that need no file");
                Err(InputError::flag("cluster", name_or_path, message))
            }
        }
    }

    /// The cluster that `text`, the content of `file`, describes; `docs/clusters.md` explains every key.
    ///
    /// # Errors
    /// Invalid TOML, an unknown or missing key, a value out of range, a name given twice, a link to nothing, devices
    /// that cannot reach each other, no device or more than [`MOST_DEVICES`]: with file, line, value and cure.
    pub fn parse(file: &str, text: &str) -> Result<Cluster, InputError> {
        stamp::parse(file, text, &Order::default())
    }

    /// Name and TOML text of every preset, by name.
    pub fn presets() -> &'static [(&'static str, &'static str)] {
        &PRESETS
    }

    /// The cluster's name, as its file gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name with its number of hosts where it has several, and with the networks of its fabrics.
    ///
    /// ```
    /// # use lockstep_topology::Cluster;
    /// let whole = |name: &str| Cluster::load(name).unwrap().whole_name();
    /// assert_eq!(whole("dgx-h100:8"), "dgx-h100:8@infiniband-ndr");
    /// assert_eq!(whole("dgx-a100:4@infiniband-hdr"), "dgx-a100:4@infiniband-hdr");
    /// assert_eq!((whole("workstation"), whole("dgx-h100")), ("workstation".to_owned(), "dgx-h100".to_owned()));
    /// ```
    pub fn whole_name(&self) -> String {
        let hosts = if self.hosts.len() > 1 { format!(":{}", self.hosts.len()) } else { String::new() };
        let networks: Vec<&str> = self.fabrics.iter().map(|fabric| fabric.name.as_str()).collect();
        let networks = if networks.is_empty() { String::new() } else { format!("@{}", networks.join("+")) };
        format!("{}{hosts}{networks}", self.name)
    }

    /// Its description from the file; may be empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What the file asks for and has no effect.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.fabrics.iter().filter_map(Fabric::note)
    }

    /// All hosts, by id.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// All devices, by id: host by host, the CPU before the GPUs; after all of them the switches that add.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The device with this id, if there is one.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id.0 as usize)
    }

    /// The device whose cores and memory `device` uses: itself, or the first host's CPU where all hosts share the cores
    /// of one machine, as those of a lab do (`shared_cores`).
    pub fn cores_of(&self, device: &Device) -> DeviceId {
        match &device.kind {
            DeviceKind::Cpu(_) if self.shared_cores => self.hosts[0].devices[0],
            _ => device.id,
        }
    }

    /// Whether all hosts share the cores of one machine.
    pub fn shares_cores(&self) -> bool {
        self.shared_cores
    }

    /// Every direction of every wire, by id.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The link with this id.
    ///
    /// # Panics
    /// When the id comes from another cluster.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0 as usize]
    }

    /// The number of hosts that must move together for routes to move like them, and whether equal-looking devices of a
    /// host have equal routes; `None` where routes are chosen by source and destination.
    pub(crate) fn grain(&self) -> Option<(u32, bool)> {
        let searched = (self.routing == Routing::Lowest).then_some(1u32);
        let grains = self
            .fabrics
            .iter()
            .map(|fabric| fabric.grain(self.hosts.len() as u32, |port| self.vertex(port).host.map(|host| host.0)));
        // GPUs equally near to several NICs of a fabric rotate over them.
        let alike = self.fabrics.is_empty() || self.devices.len() == self.hosts.len();
        grains.fold(searched, |most, grain| most.zip(grain).map(|(a, b)| a.max(b))).map(|grain| (grain, alike))
    }

    /// How many wires there are: every [`WireId`] is below it. Links of one wire share its bandwidth.
    pub fn wires(&self) -> u32 {
        self.wires
    }

    /// All switches, those inside hosts too, by id.
    pub fn switches(&self) -> impl Iterator<Item = &Vertex> {
        self.graph.node_weights().filter(|vertex| vertex.kind == VertexKind::Switch)
    }

    /// The named thing at one end of a link.
    ///
    /// # Panics
    /// When the id comes from another cluster.
    pub fn vertex(&self, id: VertexId) -> &Vertex {
        &self.graph[NodeIndex::new(id.0 as usize)]
    }

    /// The switch at this vertex, if it adds.
    pub(crate) fn adding_at(&self, vertex: VertexId) -> Option<DeviceId> {
        // Switches that add are the last devices, in the order of their vertices.
        let first = self.devices.partition_point(|device| !matches!(device.kind, DeviceKind::Switch(_)));
        let adding = &self.devices[first..];
        adding.binary_search_by_key(&vertex, |device| device.vertex).ok().map(|position| adding[position].id)
    }

    /// The graph behind the routes: named things, and for each edge the link that it is.
    pub fn graph(&self) -> &DiGraph<Vertex, LinkId> {
        &self.graph
    }

    /// The tables of `clusters show`: hosts, GPUs and links with their parameters and the source of each figure, a row
    /// per table of the file.
    pub fn describe(&self) -> &[DescriptionTable] {
        &self.tables
    }
}
