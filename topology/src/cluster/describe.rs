//! Builds the tables that `clusters show` prints: every figure of a cluster file with its source.
//!
//! There is a row per table of the file, not per host, so a thousand equal hosts are one line.

use super::fabric::{Fabric, Routing, Shape};
use super::flops::show_flops;
use super::parts::*;
use super::protocol::UNLIMITED;
use super::wire::Wire;
use super::{Duplex, GpuSpec, PeakPrecision, Protocol, Provenance};
use crate::{Bandwidth, Bytes, Time};

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

/// Position of the hosts' table.
pub(super) const HOSTS: usize = 0;
/// Position of the GPUs' table.
pub(super) const GPUS: usize = 1;
/// Position of the links' table.
pub(super) const LINKS: usize = 2;

/// Position of the protocols' table.
pub(super) const PROTOCOLS: usize = 3;
/// Position of the fabrics' table.
pub(super) const FABRICS: usize = 4;
/// Position of the table of switches that add.
pub(super) const SUMS: usize = 5;

/// The tables, still empty.
pub(super) fn tables() -> Vec<DescriptionTable> {
    let hosts: &[&str] = &[
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
    let gpus: &[&str] = &[
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
    let links: &[&str] = &["link", "count", "kind", "latency_us", "bandwidth_GBps", "duplex", "provenance"];
    let table = |title, columns| DescriptionTable { title, columns, rows: Vec::new() };
    let protocols: &[&str] = &[
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
    let fabrics: &[&str] = &["fabric", "kind", "shape", "routing", "ports", "switches", "bisection_GBps"];
    vec![
        table("hosts", hosts),
        table("gpus", gpus),
        table("links", links),
        table("protocols", protocols),
        table("fabrics", fabrics),
        table("switches that add", &["switch", "count", "sums_GBps", "provenance"]),
    ]
}

/// The row of `count` equal hosts; `cpu` and `message` are those of one of them.
pub(super) fn host_row(name: &str, count: u64, cpu: &Device, message: &Link) -> Vec<String> {
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
pub(super) fn gpu_row(name: &str, count: u64, spec: &GpuSpec, provenance: &Provenance) -> Vec<String> {
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
pub(super) fn sums_row(name: &str, count: u64, spec: &SwitchSpec, provenance: &Provenance) -> Vec<String> {
    vec![name.to_string(), count.to_string(), gigabytes(spec.sums), provenance.to_string()]
}

/// The row of a fabric of a kind.
pub(super) fn fabric_row(fabric: &Fabric, kind: &str) -> Vec<String> {
    let shape = match &fabric.shape {
        Shape::Tree(tree) => tree.shown(),
        Shape::Torus(torus) => torus.shown(),
    };
    let routing = match fabric.routing {
        Routing::Ecmp => format!("ecmp, seed {}", fabric.seed),
        routing => routing.name().to_string(),
    };
    let bisection = Bandwidth::new(fabric.bisection).map_or("0".to_string(), gigabytes);
    let [ports, switches] = [fabric.ports.len() as u64, fabric.switches].map(|count| count.to_string());
    vec![fabric.name.clone(), kind.to_string(), shape, routing, ports, switches, bisection]
}

/// The row of `count` equal wires.
pub(super) fn link_row(between: &str, count: u64, wire: &Wire) -> Vec<String> {
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
pub(super) fn protocol_row(between: &str, protocol: &Protocol) -> Vec<String> {
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
