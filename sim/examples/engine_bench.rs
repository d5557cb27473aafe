//! How fast the simulator is: rings of many ranks on a star, and the small programs of the quickstart.
//!
//! `cargo run --release -p lockstep-sim --example engine_bench [RANKS]` prints seconds of wall clock, not of the simulated
//! time, which is the same on every run.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Job, Model};
use lockstep_sim::{CollectiveRun, NetworkModel, Options, Platform, Roofline, SimError, simulate, simulate_collective};
use lockstep_topology::{
    Algorithm, Cluster, Collective, Group, Hosting, HostingRule, InputError, Placement, PlacementRule,
};

fn star(hosts: u32) -> Result<Cluster, InputError> {
    let text = format!(
        r#"
        name = "star"
        provenance = "assumed"
        [[host]]
        name = "node"
        count = {hosts}
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
        [[switch]]
        name = "switch"
        [[link]]
        kind = "ethernet"
        between = ["node*.eth0", "switch"]
        latency = "2us"
        bandwidth = "10Gbit/s"
        "#
    );
    Cluster::parse("star.toml", &text)
}

fn ring(ranks: u32, network: NetworkModel) -> Result<(), SimError> {
    let cluster = star(ranks)?;
    let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let platform = Platform { cluster: &cluster, placement: &placement, hosting: &hosting, costs: &Roofline, network };
    let run = CollectiveRun {
        collective: Collective::AllReduce,
        algorithm: Algorithm::Ring,
        group: Group::flat(ranks),
        elements: 25 << 20,
        chunk: 0,
        window: 0,
    };
    let start = Instant::now();
    let result = simulate_collective(&run, &platform)?;
    let seconds = start.elapsed().as_secs_f64();
    let messages = result.traffic.total().messages;
    println!(
        "ring of {ranks}, 100 MiB, {network:?}: {} simulated, {messages} messages in {seconds:.3} s, {:.2} million/s",
        result.time,
        messages as f64 / seconds / 1e6
    );
    Ok(())
}

fn quickstart() -> Result<(), SimError> {
    let cluster = Cluster::load("workstation")?;
    let model = Arc::new(Model::load("lenet")?);
    let start = Instant::now();
    let mut configurations = 0;
    for batch in [16, 64] {
        for (ranks, algorithm) in
            [(1, "ring"), (2, "ring"), (4, "ring"), (2, "parameter-server:1"), (4, "parameter-server:1")]
        {
            let job = Job { algorithm: algorithm.parse()?, ..Job::new(model.clone(), ranks, batch) };
            let program = job.program()?;
            let placement = Placement::new(&cluster, program.ranks(), &PlacementRule::Pack)?;
            let hosting = Hosting::new(&placement, &HostingRule::Single)?;
            let network = NetworkModel::MaxMin;
            let platform =
                Platform { cluster: &cluster, placement: &placement, hosting: &hosting, costs: &Roofline, network };
            let options = Options::default();
            simulate(&program, &platform, options.driver(), &options)?;
            configurations += 1;
        }
    }
    println!("{configurations} quickstart configurations in {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn main() -> Result<(), SimError> {
    let ranks = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1024);
    quickstart()?;
    ring(ranks, NetworkModel::AlphaBeta)?;
    ring(ranks, NetworkModel::MaxMin)
}
