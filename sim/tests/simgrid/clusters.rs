//! Generates clusters for the cases: stars, fat trees, tori and random ones, as the text of a cluster file.
//!
//! Every host is one core, `node0` and so on. [`Latencies`] determines how SimGrid weights flows by latency.

use lockstep_topology::Cluster;

use crate::random::Random;

/// A cluster under construction.
struct Plan {
    hosts: u32,
    switches: u32,
    links: Vec<String>,
    random: Random,
    latencies: Latencies,
}

/// Where the latency of routes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Latencies {
    /// From the hosts' own links, all equal: every route has the same.
    Equal,
    /// From the hosts' own links, one or two units each: routes have two, three or four.
    Whole,
    /// From all links, at random.
    Random,
}

/// A unit of latency of a host's link, in picoseconds.
pub(crate) const UNIT_PS: u64 = 2_500_000;

impl Plan {
    fn new(hosts: u32, switches: u32, random: Random, latencies: Latencies) -> Plan {
        Plan { hosts, switches, links: Vec::new(), random, latencies }
    }

    fn link(&mut self, ends: [String; 2], bytes_per_s: f64, latency_ps: u64, duplex: &str) {
        let [a, b] = ends;
        self.links.push(format!(
            "[[link]]\nkind = \"ethernet\"\nbetween = [\"{a}\", \"{b}\"]\nlatency = \"{latency_ps}ps\"\n\
             bandwidth = \"{bytes_per_s}B/s\"\nduplex = \"{duplex}\"\n"
        ));
    }

    /// A host's link to its switch.
    fn edge(&mut self, host: u32, switch: u32, bytes_per_s: f64) {
        let latency = match self.latencies {
            Latencies::Equal => UNIT_PS,
            Latencies::Whole => UNIT_PS * (1 + self.random.below(2)),
            Latencies::Random => 500_000 + self.random.below(4_000_000),
        };
        self.link([format!("node{host}.cpu"), format!("switch{switch}")], bytes_per_s, latency, "full");
    }

    /// A link between two switches.
    fn trunk(&mut self, a: u32, b: u32, bytes_per_s: f64, duplex: &str) {
        let random = self.latencies == Latencies::Random;
        let latency = if random { 200_000 + self.random.below(2_000_000) } else { 0 };
        self.link([format!("switch{a}"), format!("switch{b}")], bytes_per_s, latency, duplex);
    }

    fn cluster(self) -> Cluster {
        let Plan { hosts, switches, links, .. } = self;
        let mut text = format!(
            "name = \"case\"\nprovenance = \"assumed: a test\"\nprotocol = \"plain\"\n[[host]]\nname = \"node\"\n\
             count = {hosts}\n[host.cpu]\ncores = 1\nflops_per_core = \"100GFLOP/s\"\nmemory_bandwidth = \"10GB/s\"\nmemory = \"16GiB\"\n\
             message_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n[[switch]]\nname = \"switch\"\ncount = {switches}\n"
        );
        text.extend(links);
        Cluster::parse("case.toml", &text).expect("a cluster that makes sense")
    }
}

/// The shapes that schedules run on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// All hosts on one switch; with jitter, their links differ by one per cent.
    Star { jitter: bool },
    /// Leaves of four hosts, each joined with two spines that carry half of what the hosts could send.
    FatTree,
    /// A switch per host, in a grid of two dimensions that wraps around.
    Torus2d,
    /// The same in three, two deep.
    Torus3d,
}

pub(crate) const SHAPES: [Shape; 5] =
    [Shape::Star { jitter: false }, Shape::Star { jitter: true }, Shape::FatTree, Shape::Torus2d, Shape::Torus3d];

/// What a host's link carries, in bytes per second.
pub(crate) const EDGE: f64 = 1.25e9;

/// A cluster of some shape with at least `hosts` hosts.
pub(crate) fn shaped(shape: Shape, hosts: u32, seed: u64, latencies: Latencies) -> Cluster {
    match shape {
        Shape::Star { jitter } => {
            let mut plan = Plan::new(hosts, 1, Random::new(seed), latencies);
            for host in 0..hosts {
                let off = if jitter { 0.99 + 0.02 * plan.random.unit() } else { 1.0 };
                plan.edge(host, 0, EDGE * off);
            }
            plan.cluster()
        }
        Shape::FatTree => {
            let leaves = hosts.div_ceil(4);
            let mut plan = Plan::new(4 * leaves, leaves + 2, Random::new(seed), latencies);
            for host in 0..4 * leaves {
                plan.edge(host, host / 4, EDGE);
            }
            for leaf in 0..leaves {
                plan.trunk(leaf, leaves, EDGE, "full");
                plan.trunk(leaf, leaves + 1, EDGE, "full");
            }
            plan.cluster()
        }
        Shape::Torus2d => torus(&[4, hosts.div_ceil(4)], seed, latencies),
        Shape::Torus3d => torus(&[2, 2, hosts.div_ceil(4)], seed, latencies),
    }
}

/// A torus of these lengths: a host on each switch, wires of the host's own bandwidth.
fn torus(lengths: &[u32], seed: u64, latencies: Latencies) -> Cluster {
    let count = lengths.iter().product();
    let mut plan = Plan::new(count, count, Random::new(seed), latencies);
    for at in 0..count {
        plan.edge(at, at, EDGE);
        let mut stride = 1;
        for &length in lengths {
            let place = at / stride % length;
            let next = at - place * stride + (place + 1) % length * stride;
            // Two switches that are neighbours on both sides have one wire.
            if length > 2 || (length == 2 && place == 0) {
                plan.trunk(at, next, EDGE, "full");
            }
            stride *= length;
        }
    }
    plan.cluster()
}

/// Hosts on a random tree of switches with a few wires more, bandwidths over an order of magnitude, some half-duplex.
pub(crate) fn random(random: &mut Random, latencies: Latencies) -> Cluster {
    let hosts = 3 + random.below(10) as u32;
    let switches = 1 + random.below(5) as u32;
    let mut plan = Plan::new(hosts, switches, Random::new(random.below(u64::MAX)), latencies);
    for host in 0..hosts {
        plan.edge(host, random.below(u64::from(switches)) as u32, random.log(5e8, 1e10).round());
    }
    let wire = |plan: &mut Plan, random: &mut Random, a: u32, b: u32| {
        let duplex = if random.one_in(4) { "half" } else { "full" };
        plan.trunk(a, b, random.log(5e8, 1e10).round(), duplex);
    };
    for switch in 1..switches {
        let above = random.below(u64::from(switch)) as u32;
        wire(&mut plan, random, switch, above);
    }
    if switches > 2 {
        for _ in 0..random.below(3) {
            let (a, b) = random.pair(u64::from(switches));
            wire(&mut plan, random, a, b);
        }
    }
    plan.cluster()
}
