//! Writes a case for SimGrid: wires, routes, flows and lanes as the text that `judge.cpp` reads.

use std::collections::BTreeMap;
use std::fmt::Write;

use lockstep_topology::Cluster;
use lockstep_topology::cluster::{DeviceId, Route, Sharing};

/// What adds the latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Latency {
    /// SimGrid's links, which weight flows by it.
    Native,
    /// `judge.cpp` itself, so that all flows weigh the same.
    Paid,
}

/// One step of a rank.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Send { to: u32, bytes: u64 },
    Recv { from: u32 },
    Compute { seconds: f64 },
}

/// A case being written; SimGrid's hosts are devices of the cluster.
pub(crate) struct Case<'a> {
    pub(crate) name: String,
    cluster: &'a Cluster,
    latency: Latency,
    eager: bool,
    routes: BTreeMap<(DeviceId, DeviceId), Route>,
    body: String,
}

impl<'a> Case<'a> {
    pub(crate) fn new(name: String, cluster: &'a Cluster, latency: Latency, eager: bool) -> Case<'a> {
        Case { name, cluster, latency, eager, routes: BTreeMap::new(), body: String::new() }
    }

    /// The route between two devices, which the case will contain.
    pub(crate) fn route(&mut self, from: DeviceId, to: DeviceId) -> &Route {
        let cluster = self.cluster;
        self.routes.entry((from, to)).or_insert_with(|| cluster.route(from, to).expect("hosts reach each other"))
    }

    /// A flow that starts at `start` seconds; `cap` in bytes per second.
    pub(crate) fn flow(&mut self, start: f64, from: DeviceId, to: DeviceId, bytes: u64, cap: Option<f64>) {
        self.route(from, to);
        let cap = cap.unwrap_or(0.0);
        writeln!(self.body, "flow {start} {} {} {bytes} {cap}", from.0, to.0).expect("text");
    }

    /// The steps of `rank`, which runs on the first of `places`' devices that is its own.
    pub(crate) fn lane(&mut self, rank: u32, places: &[DeviceId], steps: impl Iterator<Item = Step>) {
        let here = places[rank as usize];
        writeln!(self.body, "lane {rank} {}", here.0).expect("text");
        for step in steps {
            match step {
                Step::Send { to, bytes } => {
                    self.route(here, places[to as usize]);
                    writeln!(self.body, "send {to} {bytes}")
                }
                Step::Recv { from } => writeln!(self.body, "recv {from}"),
                Step::Compute { seconds } => writeln!(self.body, "compute {seconds}"),
            }
            .expect("text");
        }
    }

    /// The text of the whole case.
    pub(crate) fn text(&self) -> String {
        let latency = if self.latency == Latency::Native { "native" } else { "paid" };
        let hosts = self.cluster.devices().len();
        let eager = u32::from(self.eager);
        let mut text = format!("case {}\nlatency {latency}\neager {eager}\nhosts {hosts}\n", self.name);
        // Links of one wire are one link in SimGrid, numbered in order of appearance.
        let mut numbers = BTreeMap::new();
        let mut routes = String::new();
        for ((from, to), route) in &self.routes {
            write!(routes, "route {} {}", from.0, to.0).expect("text");
            for id in &route.links {
                let link = self.cluster.link(*id);
                assert_eq!(link.sharing, Sharing::Shared, "the judge has only shared links");
                let next = numbers.len();
                let number = *numbers.entry(link.wire).or_insert_with(|| {
                    let latency = link.latency.as_secs_f64();
                    writeln!(text, "link {} {latency}", link.bandwidth.bytes_per_s()).expect("text");
                    next
                });
                write!(routes, " {number}").expect("text");
            }
            routes.push('\n');
        }
        text + &routes + &self.body + "end\n"
    }
}
