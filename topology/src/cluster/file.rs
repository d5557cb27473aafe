//! Reads the tables of a cluster file as plain values: every figure is read and checked separately, and nothing is
//! built yet.
//!
//! Sources of figures are inherited inwards: file, host, then the table of the CPU, GPU or link.

use super::fabric::Routing;
use super::fabric_table::{FabricTable, fabric_keys, read_fabric, seed_is_read};
use super::gpu_table::{CatalogueGpu, GPU, catalogue, host_gpu};
use super::values::{memory, name, provenance};
use super::wire::{Wire, link_keys, wire};
use super::{
    CpuSpec, GpuSpec, LinkKind, MOST_DEVICES, Origin, PeerToPeer, Provenance, SwitchSpec, VertexKind, parse_flops,
    protocol_keys,
};
use crate::document::{Document, Entry, Table, TextSpot};
use crate::{Bandwidth, InputError, Time};
use std::str::FromStr;
use std::sync::Arc;

const ROOT: &[&str] = &[
    "name",
    "description",
    "provenance",
    "protocol",
    "host",
    "switch",
    "link",
    "fabric",
    "network",
    "routing",
    "seed",
    "shared_cores",
];
const HOST: &[&str] =
    &["name", "count", "provenance", "cpu", "gpu", "nic", "switch", "link", "peer_to_peer", "storage"];
const CPU: &[&str] = &[
    "cores",
    "flops_per_core",
    "memory_bandwidth",
    "memory",
    "message_latency",
    "message_bandwidth",
    "message_wake",
    "bounce_latency",
    "bounce_bandwidth",
    "provenance",
];
const THING: &[&str] = &["name", "count"];
const HOST_SWITCH: &[&str] = &["name", "count", "sums", "provenance"];
/// A whole file.
pub(super) struct ClusterTable<'a> {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) hosts: Vec<HostTable<'a>>,
    pub(super) switches: Vec<Stamp<'a>>,
    pub(super) links: Vec<LinkTable<'a>>,
    pub(super) fabrics: Vec<FabricTable<'a>>,
    /// How routes that are searched are chosen among equals.
    pub(super) routing: Routing,
    pub(super) seed: u64,
    /// Whether all hosts compute on the cores of one machine.
    pub(super) shared_cores: bool,
    /// The network that joins the hosts, if the file names one.
    pub(super) network: Option<Entry<'a>>,
    /// Whether links are plain unless they name a protocol.
    pub(super) plain: bool,
    pub(super) spot: TextSpot<'a>,
}

/// A `[[host]]`.
pub(super) struct HostTable<'a> {
    pub(super) stamp: Stamp<'a>,
    pub(super) peer_to_peer: PeerToPeer,
    pub(super) storage: Option<Bandwidth>,
    pub(super) cpu: CpuTable,
    pub(super) gpus: Vec<GpuTable<'a>>,
    pub(super) things: Vec<Thing<'a>>,
    pub(super) links: Vec<LinkTable<'a>>,
}

/// A `[[host.nic]]` or `[[host.switch]]`; a host has its NICs first.
pub(super) struct Thing<'a> {
    pub(super) stamp: Stamp<'a>,
    pub(super) kind: VertexKind,
    /// Of a switch that adds.
    pub(super) sums: Option<(SwitchSpec, Arc<Provenance>)>,
}

/// A `[host.cpu]`.
pub(super) struct CpuTable {
    pub(super) spec: CpuSpec,
    pub(super) message_latency: Time,
    pub(super) message_bandwidth: Bandwidth,
    /// Of a copy through a bounce buffer; a message's, where the file does not state it.
    pub(super) bounce: Option<(Time, Bandwidth)>,
    pub(super) provenance: Arc<Provenance>,
}

/// A `[[host.gpu]]`.
pub(super) struct GpuTable<'a> {
    pub(super) stamp: Stamp<'a>,
    pub(super) spec: Arc<GpuSpec>,
    pub(super) provenance: Arc<Provenance>,
}

/// A `[[link]]` or `[[host.link]]`.
pub(super) struct LinkTable<'a> {
    pub(super) between: [Entry<'a>; 2],
    pub(super) wire: Wire,
}

/// A name that is given once, or `count` times with a number after it.
pub(super) struct Stamp<'a> {
    name: String,
    count: Option<u64>,
    /// Where its table starts.
    pub(super) spot: TextSpot<'a>,
}

impl Stamp<'_> {
    /// Sets the number of things it describes.
    pub(super) fn recount(&mut self, count: u64) {
        self.count = Some(count);
    }

    /// The number of things with the name.
    pub(super) fn many(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.many()).map(|i| self.count.map_or_else(|| self.name.clone(), |_| format!("{}{i}", self.name)))
    }

    /// `node0..node3`, or the only name.
    pub(super) fn shown(&self) -> String {
        match self.count {
            None => self.name.clone(),
            Some(count) if count < 2 => format!("{}0", self.name),
            Some(count) => format!("{0}0..{0}{1}", self.name, count - 1),
        }
    }
}

/// The tables of a file.
pub(super) fn read<'a>(document: &'a Document<'a>) -> Result<ClusterTable<'a>, InputError> {
    let root = document.table("the cluster file", ROOT)?;
    let plain = protocol_keys::plain(&root)?;
    let description = |entry: &Entry<'_>| {
        entry.plain_text().map(str::to_owned).ok_or_else(|| entry.error("description must be a text in quotes"))
    };
    let provenance = provenance(&root, &Arc::new(Origin::Assumed.with("")))?;
    let gpus = catalogue()?;
    let hosts = root.tables("host", "[[host]]", HOST)?;
    let links = root.tables("link", "[[link]]", &link_keys())?;
    let fabrics = root.tables("fabric", "[[fabric]]", &fabric_keys())?;
    let fabrics = fabrics.iter().map(|table| read_fabric(table, true, &provenance, plain));
    let hosts: Vec<HostTable<'_>> =
        hosts.iter().map(|table| host(table, &gpus, &provenance, plain)).collect::<Result<_, _>>()?;
    let routing = root.read("routing", "\"ecmp\"", searched)?;
    seed_is_read(&root, routing)?;
    Ok(ClusterTable {
        name: root.required("name", "\"my-cluster\"", cluster_name)?,
        description: root.optional("description", description)?.unwrap_or_default(),
        hosts,
        switches: things(&root, "switch", "[[switch]]")?,
        links: links.iter().map(|table| link(table, &provenance, plain)).collect::<Result<_, _>>()?,
        fabrics: fabrics.collect::<Result<_, _>>()?,
        routing: routing.unwrap_or(Routing::Lowest),
        seed: root.whole("seed", 0..=u64::MAX >> 1)?.unwrap_or(0),
        shared_cores: root.optional("shared_cores", Entry::boolean)?.unwrap_or(false),
        network: root.get("network"),
        plain,
        spot: root.spot(),
    })
}

/// Reads how searched routes are chosen.
fn searched(text: &str) -> Result<Routing, String> {
    match text.parse()? {
        routing @ (Routing::Lowest | Routing::Ecmp) => Ok(routing),
        _ => Err("belongs in a [[fabric]]; write \"lowest\" or \"ecmp\" here".into()),
    }
}

fn host<'a>(
    table: &Table<'a>,
    catalogue: &[CatalogueGpu],
    inherited: &Arc<Provenance>,
    plain: bool,
) -> Result<HostTable<'a>, InputError> {
    let provenance = provenance(table, inherited)?;
    let stamp = stamp(table, "node")?;
    let cpu = table.optional("cpu", |entry| entry.section("[host.cpu]", CPU))?;
    let cpu = cpu.ok_or_else(|| table.error("has no CPU; add a [host.cpu] under it"))?;
    let gpus = table.tables("gpu", "[[host.gpu]]", GPU)?;
    let nics = things(table, "nic", "[[host.nic]]")?;
    let switches = table.tables("switch", "[[host.switch]]", HOST_SWITCH)?;
    let switches = switches.iter().map(|table| host_switch(table, &provenance));
    let links = table.tables("link", "[[host.link]]", &link_keys())?;
    let nics = nics.into_iter().map(|stamp| Ok(Thing { stamp, kind: VertexKind::Nic, sums: None }));
    Ok(HostTable {
        stamp,
        peer_to_peer: table
            .read("peer_to_peer", "\"host-memory\"", PeerToPeer::from_str)?
            .unwrap_or(PeerToPeer::Direct),
        storage: table.read("storage", "\"2GB/s\"", Bandwidth::from_str)?,
        cpu: read_cpu(&cpu, &provenance)?,
        gpus: gpus.iter().map(|table| gpu(table, catalogue, &provenance)).collect::<Result<_, _>>()?,
        things: nics.chain(switches).collect::<Result<_, _>>()?,
        links: links.iter().map(|table| link(table, &provenance, plain)).collect::<Result<_, _>>()?,
    })
}

fn read_cpu(table: &Table<'_>, inherited: &Arc<Provenance>) -> Result<CpuTable, InputError> {
    Ok(CpuTable {
        spec: CpuSpec {
            cores: table.need("cores", "16")?.whole(1..=1_000_000)? as u32,
            flops_per_core_s: table.required("flops_per_core", "\"80GFLOP/s\"", parse_flops)?,
            memory_bandwidth: table.required("memory_bandwidth", "\"80GB/s\"", Bandwidth::from_str)?,
            memory: table.required("memory", "\"64GiB\"", memory)?,
            message_wake: table.read("message_wake", "\"20us\"", Time::from_str)?.unwrap_or(Time::ZERO),
        },
        message_latency: table.required("message_latency", "\"1us\"", Time::from_str)?,
        message_bandwidth: table.required("message_bandwidth", "\"8GB/s\"", Bandwidth::from_str)?,
        bounce: bounce(table)?,
        provenance: provenance(table, inherited)?,
    })
}

fn bounce(table: &Table<'_>) -> Result<Option<(Time, Bandwidth)>, InputError> {
    let latency = table.read("bounce_latency", "\"10us\"", Time::from_str)?;
    let bandwidth = table.read("bounce_bandwidth", "\"3GB/s\"", Bandwidth::from_str)?;
    match (latency, bandwidth) {
        (None, None) => Ok(None),
        (Some(latency), Some(bandwidth)) => Ok(Some((latency, bandwidth))),
        (None, _) => Err(table.missing("bounce_latency", "\"10us\"")),
        (_, None) => Err(table.missing("bounce_bandwidth", "\"3GB/s\"")),
    }
}

fn gpu<'a>(
    table: &Table<'a>,
    catalogue: &[CatalogueGpu],
    inherited: &Arc<Provenance>,
) -> Result<GpuTable<'a>, InputError> {
    let (spec, source) = host_gpu(table, catalogue)?;
    let own = table.read("provenance", "\"datasheet: NAME\"", Provenance::from_str)?;
    let provenance = own.or(source).map_or_else(|| inherited.clone(), Arc::new);
    Ok(GpuTable { stamp: stamp(table, "gpu")?, spec: Arc::new(spec), provenance })
}

fn link<'a>(table: &Table<'a>, inherited: &Arc<Provenance>, plain: bool) -> Result<LinkTable<'a>, InputError> {
    let between = table.need("between", "[\"node*.eth0\", \"switch\"]")?;
    let wrong = |_| between.error("must be two names, e.g. [\"node*.eth0\", \"switch\"]");
    let ends = between.items()?;
    ends.iter().try_for_each(|end| end.text().map(|_| ()))?;
    Ok(LinkTable { between: ends.try_into().map_err(wrong)?, wire: wire(table, "kind", inherited, plain)? })
}

fn things<'a>(table: &Table<'a>, key: &str, title: &'a str) -> Result<Vec<Stamp<'a>>, InputError> {
    table.tables(key, title, THING)?.iter().map(|table| stamp(table, key)).collect()
}

fn host_switch<'a>(table: &Table<'a>, inherited: &Arc<Provenance>) -> Result<Thing<'a>, InputError> {
    let sums = table.read("sums", "\"2.52TB/s\"", Bandwidth::from_str)?;
    let provenance = provenance(table, inherited)?;
    let sums = sums.map(|sums| (SwitchSpec { sums, links: LinkKind::NvLink }, provenance));
    Ok(Thing { stamp: stamp(table, "switch")?, kind: VertexKind::Switch, sums })
}

fn stamp<'a>(table: &Table<'a>, example: &str) -> Result<Stamp<'a>, InputError> {
    let name = table.required("name", &format!("\"{example}\""), name)?;
    Ok(Stamp { name, count: table.whole("count", 1..=MOST_DEVICES)?, spot: table.spot() })
}

/// A cluster's name, which may contain dots, since no pattern matches it.
fn cluster_name(text: &str) -> Result<String, String> {
    name(&text.replace('.', "-")).map(|_| text.to_string())
}
