//! Times the simulator, unfolded: ring allreduces of 100 MiB on a star and on a tree, and the quickstart's programs.
//!
//! `cargo run --release -p lockstep-benches --bin engine_bench [LOAD [RANKS]]` prints the median wall clock of three
//! runs and the peak memory of the process; LOAD is the beginning of a load's name.
//!
//! `star`: hosts of one core in rank order, whose threads differ by 1 %, so that no two messages stay in step.
//! `alone`: the same with the α-β network. `tree`: hosts at random on a tree with 2:1 oversubscription at its leaves.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Job, Phase, Program};
use lockstep_sim::{
    CollectiveRun, CollectiveTime, Cost, Costs, FoldRule, MessageCost, NetworkModel, Pair, Platform, Roofline,
    SimError, SimOptions, simulate, simulate_collective,
};
use lockstep_topology::cluster::{Device, DeviceId, Route};
use lockstep_topology::{
    Algorithm, Cluster, Collective, Dtype, Group, Hosting, HostingRule, InputError, Placement, PlacementRule,
};

/// A roofline whose devices differ randomly by 1 %, each always by the same amount.
struct Jittered;

/// A pseudo-random number (SplitMix64's finalizer).
fn mixed(number: u64) -> u64 {
    let number = (number.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Costs for Jittered {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        Roofline.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        Roofline.update(device, elements)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        Roofline.load(device, program, samples)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        let cost = Roofline.message(pair, receiver, route);
        let factor = 0.99 + 0.02 * (mixed(u64::from(receiver.id.0)) % 1_000_000) as f64 * 1e-6;
        MessageCost { overhead: cost.overhead * factor, sum: cost.sum * factor, ..cost }
    }
}

const HOST: &str = r#"
    provenance = "assumed"
    [host.cpu]
    cores = 1
    flops_per_core = "100GFLOP/s"
    memory_bandwidth = "50GB/s"
    memory = "16GiB"
    message_latency = "1us"
    message_bandwidth = "8GB/s"
    [[host.nic]]
    name = "eth0"
    [[host.link]]
    kind = "pcie"
    between = ["cpu", "eth0"]
    latency = "500ns"
    bandwidth = "12GB/s"
"#;

/// Settings of the other simulators' links: no headers and no handshake.
const PROTOCOL: &str = "protocol = \"plain\"\nreceive_overhead = \"1us\"\neager = \"64KiB\"\n";

/// A link of the network.
fn link(ends: &str, gigabits: u32) -> String {
    let wire = format!("between = {ends}\nlatency = \"2us\"\nbandwidth = \"{gigabits}Gbit/s\"\n");
    format!("[[link]]\nkind = \"ethernet\"\n{wire}{PROTOCOL}")
}

fn star(hosts: u32) -> Result<Cluster, InputError> {
    let wires = link("[\"node*.eth0\", \"switch\"]", 10);
    let text = format!(
        "name = \"star\"\n[[host]]\nname = \"node\"\ncount = {hosts}\n{HOST}\n[[switch]]\nname = \"switch\"\n{wires}"
    );
    Cluster::parse("star.toml", &text)
}

/// Leaves of 32 hosts, each joined to the root by half of its hosts' bandwidth.
fn tree(hosts: u32) -> Result<Cluster, InputError> {
    let leaves = hosts.div_ceil(32);
    let mut text = format!("name = \"tree\"\n[[host]]\nname = \"node\"\ncount = {hosts}\n{HOST}\n");
    text += &format!("[[switch]]\nname = \"leaf\"\ncount = {leaves}\n[[switch]]\nname = \"root\"\n");
    for leaf in 0..leaves {
        let (first, last) = (32 * leaf, (32 * leaf + 31).min(hosts - 1));
        text += &link(&format!("[\"node[{first}-{last}].eth0\", \"leaf{leaf}\"]"), 10);
    }
    text += &link("[\"leaf*\", \"root\"]", 160);
    Cluster::parse("tree.toml", &text)
}

fn ring(cluster: &Cluster, order: &PlacementRule, network: NetworkModel) -> Result<CollectiveTime, SimError> {
    let ranks = cluster.devices().len() as u32;
    let placement = Placement::new(cluster, ranks, order)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let platform = Platform {
        cluster,
        placement: &placement,
        hosting: &hosting,
        costs: &Jittered,
        network,
        conditions: lockstep_sim::Conditions::none(),
    };
    let run = CollectiveRun {
        collective: Collective::AllReduce,
        algorithm: Algorithm::ring(),
        group: Group::flat(ranks),
        elements: 25 << 20,
        dtype: Dtype::F32,
        chunk: 0,
        window: 0,
        fold: FoldRule::Never,
        padded: false,
        long_way: false,
    };
    simulate_collective(&run, &platform)
}

fn quickstart() -> Result<u64, SimError> {
    let cluster = Cluster::load("workstation")?;
    let model = Arc::new(lockstep_readers::load_model("lenet")?);
    let mut messages = 0;
    for batch in [16, 64] {
        for (ranks, algorithm) in
            [(1, "ring"), (2, "ring"), (4, "ring"), (2, "parameter-server:1"), (4, "parameter-server:1")]
        {
            let job = Job { algorithm: algorithm.parse()?, ..Job::new(model.clone(), ranks, batch) };
            let program = job.program()?;
            let placement = Placement::new(&cluster, program.ranks(), &PlacementRule::Pack)?;
            let hosting = Hosting::new(&placement, &HostingRule::Single)?;
            let network = NetworkModel::MaxMin;
            let platform = Platform {
                cluster: &cluster,
                placement: &placement,
                hosting: &hosting,
                costs: &Roofline,
                network,
                conditions: lockstep_sim::Conditions::none(),
            };
            let options = SimOptions::default();
            messages += simulate(&program, &platform, options.driver(), &options)?.traffic.total().messages;
        }
    }
    Ok(messages)
}

/// Peak memory of this process, in MB, where the system reports it.
fn peak_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6)
}

/// Runs `run` three times; it returns its number of messages and a description.
fn report(name: &str, run: &dyn Fn() -> Result<(u64, String), SimError>) -> Result<(), SimError> {
    if !std::env::args().nth(1).is_none_or(|wanted| name.starts_with(wanted.as_str())) {
        return Ok(());
    }
    let mut seconds = Vec::new();
    let mut said = (0, String::new());
    for _ in 0..3 {
        let start = Instant::now();
        said = run()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let (messages, what) = said;
    println!(
        "{name:<24} {what:<26} {messages:>9} messages  {:>8.5} s  {:>6.2} million/s  {:>5.0} MB",
        seconds[1],
        messages as f64 / seconds[1] / 1e6,
        peak_mb().unwrap_or(f64::NAN),
    );
    Ok(())
}

fn main() -> Result<(), SimError> {
    let ranks = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(1024);
    let said = |result: CollectiveTime| (result.traffic.total().messages, format!("{} simulated", result.time));
    report("quickstart, 10 programs", &|| Ok((quickstart()?, String::new())))?;
    let (flat, deep) = (star(ranks)?, tree(ranks)?);
    let pack = PlacementRule::Pack;
    report(&format!("alone, ring of {ranks}"), &|| ring(&flat, &pack, NetworkModel::AlphaBeta).map(said))?;
    report(&format!("star, ring of {ranks}"), &|| ring(&flat, &pack, NetworkModel::MaxMin).map(said))?;
    let mut random: Vec<u32> = (0..ranks).collect();
    random.sort_by_key(|host| mixed(u64::from(*host)));
    let random = PlacementRule::Listed(random.into_iter().map(DeviceId).collect());
    report(&format!("tree, ring of {ranks}"), &|| ring(&deep, &random, NetworkModel::MaxMin).map(said))
}
