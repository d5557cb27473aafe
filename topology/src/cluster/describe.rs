//! Builds the tables that `clusters show` prints: every figure of a cluster file with its source.
//!
//! There is a row per table of the file, not per host, so a thousand equal hosts are one line.

use super::fabric::{Fabric, Routing, Shape};
use super::fabric_table::FabricTable;
use super::file::{ClusterTable, LinkTable};
use super::flops::show_flops;
use super::parts::*;
use super::protocol::UNLIMITED;
use super::wire::Wire;
use super::{Cluster, Duplex, GpuSpec, PeakPrecision, Protocol, Provenance};
use crate::{Bandwidth, Bytes, InputError, Time};

/// A titled table of text cells; column names include units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptionTable {
    /// What the rows are, e.g. `hosts`.
    pub title: &'static str,
    /// Names of the columns.
    pub columns: &'static [&'static str],
    /// One cell per column in each row.
    pub rows: Vec<Vec<String>>,
}

/// The number of wires that each link of a file became.
#[derive(Default)]
pub(super) struct Wires {
    /// By host table and link table in it, of all its copies.
    pub(super) of_hosts: Vec<Vec<u64>>,
    /// By link table between hosts and switches.
    pub(super) between_hosts: Vec<u64>,
}

/// The tables of `cluster`, which was built from those of a file.
///
/// # Errors
/// None: reading has checked that ends of links are texts.
pub(super) fn describe(
    file: &ClusterTable<'_>,
    wires: &Wires,
    cluster: &Cluster,
) -> Result<Vec<DescriptionTable>, InputError> {
    let mut shown = Rows::default();
    let mut first = 0;
    for (host, wires) in file.hosts.iter().zip(&wires.of_hosts) {
        let (name, many) = (host.stamp.shown(), host.stamp.many());
        shown.hosts.push(host_row(&name, many, &cluster.hosts[first], cluster));
        first += many as usize;
        for (link, count) in host.links.iter().zip(wires) {
            shown.link(&format!("{name}: {}", ends(link)?), *count, &link.wire);
        }
        for gpu in &host.gpus {
            let name = format!("{name}: {}", gpu.stamp.shown());
            shown.gpus.push(gpu_row(&name, gpu.stamp.many(), &gpu.spec, &gpu.provenance));
        }
        let adding = host.things.iter().filter_map(|thing| thing.sums.as_ref().map(|sums| (&thing.stamp, sums)));
        for (stamp, (spec, provenance)) in adding {
            let name = format!("{name}: {}", stamp.shown());
            shown.sums.push(sums_row(&name, many * stamp.many(), spec, provenance));
        }
    }
    file.fabrics.iter().zip(&cluster.fabrics).for_each(|(table, fabric)| shown.fabric(table, fabric));
    for (link, count) in file.links.iter().zip(&wires.between_hosts) {
        shown.link(&ends(link)?, *count, &link.wire);
    }
    Ok(shown.tables())
}

/// The tables of a cluster of one measured host.
pub(super) fn describe_host(cluster: &Cluster) -> Vec<DescriptionTable> {
    let hosts = cluster.hosts.iter().map(|host| host_row(&host.name, 1, host, cluster)).collect();
    Rows { hosts, ..Rows::default() }.tables()
}

/// `node*.eth0 - switch`.
fn ends(link: &LinkTable<'_>) -> Result<String, InputError> {
    let [one, other] = &link.between;
    Ok(format!("{} - {}", one.text()?, other.text()?))
}

/// Rows of each table.
#[derive(Default)]
struct Rows {
    hosts: Vec<Vec<String>>,
    gpus: Vec<Vec<String>>,
    links: Vec<Vec<String>>,
    protocols: Vec<Vec<String>>,
    fabrics: Vec<Vec<String>>,
    sums: Vec<Vec<String>>,
}

impl Rows {
    /// Equal wires, and what messages pay on them.
    fn link(&mut self, between: &str, count: u64, wire: &Wire) {
        self.links.push(link_row(between, count, wire));
        self.protocols.push(protocol_row(between, &wire.protocol));
    }

    /// A fabric: its figures, its wires, and its switches that add.
    fn fabric(&mut self, table: &FabricTable<'_>, fabric: &Fabric) {
        let levels = fabric.cabled.stages() + 1;
        let bottom = table.level_name(1, levels) + "*";
        if let Some(spec) = &table.sums {
            self.sums.push(sums_row(&bottom, fabric.joined().into(), spec, &table.wire.provenance));
        }
        self.link(&format!("{}: hosts - {bottom}", table.name), fabric.ports.len() as u64, &table.wire);
        for stage in 0..fabric.cabled.stages() {
            let between = match &fabric.cabled {
                Shape::Tree(_) => {
                    let [below, above] = [stage + 1, stage + 2].map(|level| table.level_name(level, levels));
                    format!("{below}* - {above}*")
                }
                Shape::Torus(_) => format!("{}: along dimension {stage}", table.name),
            };
            self.links.push(link_row(&between, fabric.cabled.wires(stage), &table.trunk(stage)));
        }
        self.fabrics.push(fabric_row(fabric, table.kind));
    }

    fn tables(self) -> Vec<DescriptionTable> {
        let table = |title, columns, rows| DescriptionTable { title, columns, rows };
        vec![
            table("hosts", HOSTS, self.hosts),
            table("gpus", GPUS, self.gpus),
            table("links", LINKS, self.links),
            table("protocols", PROTOCOLS, self.protocols),
            table("fabrics", FABRICS, self.fabrics),
            table("switches that add", SUMS, self.sums),
        ]
    }
}

const HOSTS: &[&str] = &[
    "host",
    "count",
    "cores",
    "flops_per_core",
    "memory_bandwidth_GBps",
    "memory",
    "message_latency_us",
    "message_bandwidth_GBps",
    "message_wake_us",
    "provenance",
];
const GPUS: &[&str] = &[
    "gpu",
    "per_host",
    "model",
    "multiprocessors",
    "peak_flops",
    "peak_bf16",
    "memory_bandwidth_GBps",
    "memory",
    "provenance",
];
const LINKS: &[&str] = &["link", "count", "kind", "latency_us", "bandwidth_GBps", "duplex", "provenance"];
const PROTOCOLS: &[&str] = &[
    "link",
    "protocol",
    "payload_pct",
    "send_overhead_us",
    "receive_overhead_us",
    "eager",
    "rendezvous",
    "limits",
    "provenance",
];
const FABRICS: &[&str] = &["fabric", "kind", "shape", "routing", "ports", "switches", "bisection_GBps"];
const SUMS: &[&str] = &["switch", "count", "sums_GBps", "provenance"];

/// The row of `count` equal hosts, of which `host` is one.
fn host_row(name: &str, count: u64, host: &Host, cluster: &Cluster) -> Vec<String> {
    let cpu = &cluster.devices[host.devices[0].0 as usize];
    let message = cluster.link(cpu.within[0]);
    let DeviceKind::Cpu(spec) = &cpu.kind else { return Vec::new() };
    vec![
        name.to_string(),
        count.to_string(),
        spec.cores.to_string(),
        show_flops(spec.flops_per_core_s),
        gigabytes(spec.memory_bandwidth),
        spec.memory.to_string(),
        micros(message.latency),
        gigabytes(message.bandwidth),
        micros(spec.message_wake),
        cpu.provenance.to_string(),
    ]
}

/// The row of `count` equal GPUs in each host.
fn gpu_row(name: &str, count: u64, spec: &GpuSpec, provenance: &Provenance) -> Vec<String> {
    vec![
        name.to_string(),
        count.to_string(),
        spec.model.clone(),
        spec.multiprocessors.to_string(),
        show_flops(spec.peak_flops_s),
        spec.peak(PeakPrecision::Bf16).map_or_else(|| "-".to_owned(), show_flops),
        gigabytes(spec.memory_bandwidth),
        spec.memory.to_string(),
        provenance.to_string(),
    ]
}

/// The row of `count` equal switches that add.
fn sums_row(name: &str, count: u64, spec: &SwitchSpec, provenance: &Provenance) -> Vec<String> {
    vec![name.to_string(), count.to_string(), gigabytes(spec.sums), provenance.to_string()]
}

/// The row of a fabric of a kind.
fn fabric_row(fabric: &Fabric, kind: &str) -> Vec<String> {
    let routing = match fabric.routing {
        Routing::Ecmp => format!("ecmp, seed {}", fabric.seed),
        routing => routing.name().to_string(),
    };
    let bisection = Bandwidth::new(fabric.bisection).map_or("0".to_string(), gigabytes);
    let [ports, switches] = [fabric.ports.len() as u64, fabric.cabled.switches()].map(|count| count.to_string());
    vec![fabric.name.clone(), kind.to_string(), fabric.cabled.shown(), routing, ports, switches, bisection]
}

/// The row of `count` equal wires.
fn link_row(between: &str, count: u64, wire: &Wire) -> Vec<String> {
    vec![
        between.to_string(),
        count.to_string(),
        wire.kind.to_string(),
        micros(wire.latency),
        gigabytes(wire.bandwidth),
        if wire.duplex == Duplex::Full { "full" } else { "half" }.to_string(),
        wire.provenance.to_string(),
    ]
}

/// The row of what messages pay on equal wires.
fn protocol_row(between: &str, protocol: &Protocol) -> Vec<String> {
    let size = |bytes: Bytes| if bytes == UNLIMITED { "unlimited".to_string() } else { bytes.to_string() };
    let queue = protocol.transmit_queue;
    let limits = [
        (queue > Time::ZERO).then(|| format!("queue of {} us", micros(queue))),
        protocol.window.map(|window| format!("window {window}")),
        protocol.slow_start.map(|first| format!("slow start from {first}")),
        protocol.core_bandwidth.map(|rate| format!("{rate} a core")),
        protocol.burst.map(|burst| format!("bursts of {} at {:.3} times the rate", burst.bytes, burst.peak)),
        protocol.incast.map(|i| format!("{} % beyond {} senders", i.goodput * 100.0, i.senders)),
        protocol.pageable.map(|rate| format!("pageable copies {rate}")),
        protocol.peer.map(|rate| format!("peer to peer {rate}")),
    ];
    vec![
        between.to_string(),
        protocol.stack.to_string(),
        format!("{:.1}", protocol.efficiency * 100.0),
        micros(protocol.send_overhead),
        micros(protocol.receive_overhead),
        size(protocol.eager),
        protocol.rendezvous.name().to_string(),
        limits.into_iter().flatten().collect::<Vec<_>>().join(", "),
        protocol.provenance.to_string(),
    ]
}

fn gigabytes(bandwidth: Bandwidth) -> String {
    let rounded = (bandwidth.bytes_per_s() * 1e-6).round() * 1e-3;
    format!("{rounded:.3}")
}

fn micros(time: Time) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e6)
}
