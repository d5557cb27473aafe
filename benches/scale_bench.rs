//! Times one load of the simulator and prints one line of CSV: wall seconds, simulated seconds and peak memory of the
//! process.
//!
//! `cargo run --release -p lockstep-benches --bin scale_bench ring 1024` (or `even-ring`, `halving-doubling`, `tree`,
//! `flows`). The same loads on the same platforms as `benches/simgrid.cpp`; `benches/simgrid.sh` runs the two side by
//! side. Wall time includes reading the cluster.

use std::fmt::Write;
use std::time::Instant;

use lockstep_models::{Phase, Program};
use lockstep_sim::fluid::{Fluid, System, Use};
use lockstep_sim::{
    CollectiveRun, Cost, Costs, FoldRule, MessageCost, NetworkModel, Pair, Platform, SimError, simulate_collective,
};
use lockstep_topology::cluster::{Device, DeviceId, Route};
use lockstep_topology::{
    Algorithm, Cluster, Collective, Dtype, Group, Hosting, HostingRule, InputError, Placement, PlacementRule, Time,
};

/// Bandwidth of a host's link, in bytes per second.
const LINK: f64 = 1.25e9;
/// 100 MiB of fp32.
const ELEMENTS: u64 = 25 << 20;
/// Hosts per leaf switch of the tree.
const PER_LEAF: u32 = 32;
/// Hosts between which flows run.
const FLOW_HOSTS: u64 = 432;

/// SplitMix64, as in `benches/simgrid.cpp`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Costs of links only; ranks cost nothing.
struct Free;

impl Costs for Free {
    fn compute(&self, _: &Device, _: &Program, _: usize, _: Phase, _: u32) -> Cost {
        Cost::default()
    }

    fn update(&self, _: &Device, _: u64) -> Cost {
        Cost::default()
    }

    fn load(&self, _: &Device, _: &Program, _: u32) -> Cost {
        Cost::default()
    }

    fn message(&self, _: Pair, _: &Device, _: &Route) -> MessageCost {
        MessageCost::default()
    }
}

/// Hosts of one core; with `jitter` the bandwidth of each host's link differs by up to a per cent. With leaves, a tree
/// of two levels whose trunks carry half of what their hosts can send; without, a star.
fn cluster(hosts: u32, jitter: bool, leaves: Option<u32>) -> Result<Cluster, InputError> {
    let mut text = format!(
        "name = \"bench\"\nprovenance = \"assumed\"\nprotocol = \"plain\"\n[[host]]\nname = \"node\"\n\
         count = {hosts}\n[host.cpu]\ncores = 1\n\
         flops_per_core = \"100GFLOP/s\"\nmemory_bandwidth = \"50GB/s\"\nmemory = \"16GiB\"\nmessage_latency = \"1us\"\n\
         message_bandwidth = \"8GB/s\"\n[[switch]]\nname = \"core\"\n"
    );
    if let Some(leaves) = leaves {
        let _ = write!(text, "[[switch]]\nname = \"leaf\"\ncount = {leaves}\n");
        let trunk = LINK * f64::from(PER_LEAF) / 2.0;
        link(&mut text, "leaf*", "core", "0s", trunk);
    }
    let mut random = Random(7);
    for host in (0..hosts).filter(|_| jitter) {
        let bandwidth = LINK * (990_000 + random.below(20_001)) as f64 / 1e6;
        let switch = if leaves.is_some() { format!("leaf{}", host / PER_LEAF) } else { "core".into() };
        link(&mut text, &format!("node{host}.cpu"), &switch, "2500ns", bandwidth);
    }
    if !jitter {
        link(&mut text, "node*.cpu", "core", "2500ns", LINK);
    }
    Cluster::parse("bench.toml", &text)
}

fn link(text: &mut String, from: &str, to: &str, latency: &str, bandwidth: f64) {
    let _ = write!(
        text,
        "[[link]]\nkind = \"ethernet\"\nbetween = [\"{from}\", \"{to}\"]\nlatency = \"{latency}\"\n\
         bandwidth = \"{bandwidth}B/s\"\n"
    );
}

/// An allreduce among all hosts, with rank r on host `order[r]`.
fn allreduce(cluster: &Cluster, algorithm: Algorithm, order: Vec<u32>) -> Result<Time, SimError> {
    let ranks = order.len() as u32;
    let places = order.into_iter().map(DeviceId).collect();
    let placement = Placement::new(cluster, ranks, &PlacementRule::Listed(places))?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let network = NetworkModel::MaxMin;
    let platform = Platform {
        cluster,
        placement: &placement,
        hosting: &hosting,
        costs: &Free,
        network,
        conditions: lockstep_sim::Conditions::none(),
    };
    let collective = Collective::AllReduce;
    let group = Group::flat(ranks);
    let run = CollectiveRun {
        collective,
        algorithm,
        group,
        elements: ELEMENTS,
        dtype: Dtype::F32,
        chunk: 0,
        window: 0,
        fold: FoldRule::Never,
        padded: false,
        long_way: false,
    };
    simulate_collective(&run, &platform).map(|run| run.time)
}

/// Flows between random hosts of a star, all at once, by the fluid solver.
fn flows(count: u32) -> Result<Time, InputError> {
    let mut fluid = System::new();
    let mut links = || (0..FLOW_HOSTS).map(|_| fluid.add_resource(LINK)).collect::<Result<Vec<_>, InputError>>();
    let (up, down) = (links()?, links()?);
    let latency = Time::from_nanos(5_000);
    let mut finished = Vec::new();
    fluid.advance(latency, &mut finished);
    let mut random = Random(11);
    for token in 0..count {
        let from = random.below(FLOW_HOSTS);
        let to = (from + 1 + random.below(FLOW_HOSTS - 1)) % FLOW_HOSTS;
        let bytes = 1_000_000 + random.below(100_000_000);
        let uses = [Use::one(up[from as usize]), Use::one(down[to as usize])];
        fluid.start_once(f64::INFINITY, &uses, bytes as f64, u64::from(token))?;
    }
    fluid.advance(Time::MAX, &mut finished);
    Ok(finished.iter().map(|done| done.time).max().unwrap_or(Time::ZERO))
}

fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = Random(13);
    for place in (1..order.len()).rev() {
        order.swap(place, random.below(place as u64 + 1) as usize);
    }
    order
}

/// Peak memory of this process in KiB; zero where the system does not report it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), SimError> {
    let usage = || InputError::new("", "", "usage: scale_bench ring|even-ring|halving-doubling|tree|flows COUNT");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [load, count] = arguments.as_slice() else { return Err(usage().into()) };
    let count: u32 = count.parse().map_err(|_| usage())?;
    let start = Instant::now();
    let simulated = match load.as_str() {
        "ring" => allreduce(&cluster(count, true, None)?, Algorithm::ring(), (0..count).collect())?,
        "even-ring" => allreduce(&cluster(count, false, None)?, Algorithm::ring(), (0..count).collect())?,
        "halving-doubling" => {
            allreduce(&cluster(count, false, None)?, "halving-doubling".parse()?, (0..count).collect())?
        }
        "tree" => {
            let cluster = cluster(count, true, Some(count / PER_LEAF))?;
            allreduce(&cluster, Algorithm::ring(), shuffled(count))?
        }
        "flows" => flows(count)?,
        _ => return Err(usage().into()),
    };
    let wall = start.elapsed().as_secs_f64();
    println!("lockstep,{load},{count},{wall:.4},{:.9},{}", simulated.as_secs_f64(), peak_kib());
    Ok(())
}
