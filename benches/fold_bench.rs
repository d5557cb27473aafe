//! Times one folded load of the simulator and prints one line of CSV: wall seconds, simulated seconds and peak memory
//! of the process.
//!
//! `cargo run --release -p lockstep-benches --bin fold_bench ring 1048576` (or `hierarchical`, `step`) times an allreduce of
//! 100 MiB, or a step of S-SGD, among that many GPUs (a power of two from 64) of hosts with eight on an NVSwitch and one
//! NIC, on a non-blocking fat tree of up to three levels. Wall time includes reading the cluster; columns: load, GPUs,
//! wall_s, of it cluster_s, simulated_s, representatives, peak_kib.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Bucket, Job};
use lockstep_sim::{
    CollectiveRun, FoldRule, Folding, NetworkModel, Platform, Roofline, SimError, SimOptions, simulate,
    simulate_collective,
};
use lockstep_topology::{
    Algorithm, Bytes, Cluster, Collective, Dtype, Group, Hosting, HostingRule, InputError, Placement, PlacementRule,
};

/// GPUs of a host.
const GPUS: u32 = 8;
/// Hosts per leaf, and leaves per pod.
const WIDTH: u32 = 32;
/// 100 MiB of fp32.
const ELEMENTS: u64 = 25 << 20;

/// A tree whose trunks carry all that their hosts can send; one switch above another represents the planes of a real
/// one.
fn cluster(hosts: u32) -> Result<Cluster, InputError> {
    let (leaf, pod) = (hosts.min(WIDTH), (hosts / WIDTH).clamp(1, WIDTH));
    let mut down = vec![leaf];
    if hosts > leaf {
        down.push(pod);
    }
    if hosts > leaf * pod {
        down.push(hosts / leaf / pod);
    }
    let rates: Vec<String> =
        (1..down.len()).map(|level| format!("\"{}GB/s\"", 50 * down[..level].iter().product::<u32>())).collect();
    let up = vec![1; down.len() - 1];
    let trunks =
        if up.is_empty() { String::new() } else { format!("up = {up:?}\ntrunk_bandwidth = [{}]", rates.join(", ")) };
    let text = format!(
        r#"
        name = "fat-tree"
        provenance = "assumed"
        [[host]]
        name = "node"
        count = {hosts}
        [host.cpu]
        cores = 112
        flops_per_core = "128GFLOP/s"
        memory_bandwidth = "600GB/s"
        memory = "2048GiB"
        message_latency = "1us"
        message_bandwidth = "8GB/s"
        [[host.gpu]]
        name = "gpu"
        count = {GPUS}
        model = "h100-sxm"
        [[host.nic]]
        name = "ib0"
        [[host.switch]]
        name = "nvswitch"
        [[host.switch]]
        name = "pcie"
        [[host.link]]
        between = ["nvswitch", "gpu*"]
        latency = "350ns"
        nvlink = "4.0 x18"
        [[host.link]]
        between = ["pcie", "gpu*"]
        latency = "500ns"
        pcie = "5.0 x16"
        [[host.link]]
        between = ["pcie", "ib0"]
        latency = "500ns"
        pcie = "5.0 x16"
        [[host.link]]
        between = ["pcie", "cpu"]
        latency = "500ns"
        pcie = "5.0 x16"
        [[fabric]]
        name = "ib"
        kind = "{}"
        attach = "node*.ib0"
        {}
        {trunks}
        wire = "infiniband"
        latency = "500ns"
        bandwidth = "400Gbit/s"
        "#,
        if down.len() == 1 { "star" } else { "fat-tree" },
        if down.len() == 1 { String::new() } else { format!("down = {down:?}") },
    );
    Cluster::parse("fat-tree.toml", &text)
}

/// Peak memory of this process in KiB; zero where the system does not report it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), SimError> {
    let usage = || InputError::new("", "", "usage: fold_bench ring|hierarchical|step GPUS (a power of two from 64)");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [load, count] = arguments.as_slice() else { return Err(usage().into()) };
    let ranks: u32 = count.parse().map_err(|_| usage())?;
    if !(ranks.is_power_of_two() && (64..=1 << 20).contains(&ranks)) {
        return Err(usage().into());
    }
    let start = Instant::now();
    let nodes = ranks / GPUS;
    let cluster = cluster(nodes)?;
    let cluster_s = start.elapsed().as_secs_f64();
    let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let network = NetworkModel::MaxMin;
    let platform = Platform {
        cluster: &cluster,
        placement: &placement,
        hosting: &hosting,
        costs: &Roofline,
        network,
        conditions: lockstep_sim::Conditions::none(),
    };
    let hierarchical: Algorithm = "hierarchical:halving-doubling".parse()?;
    // No lane is shorter than one element for each leader.
    let chunk = u64::from(nodes).max(64 << 10);
    let sizes = vec![GPUS; nodes as usize];
    let (simulated_s, folding) = if load == "step" {
        let job = Job {
            algorithm: hierarchical,
            bucket: Bucket::Size(Bytes(25 << 20)),
            chunk: Some(Bytes(4 * chunk)),
            node_sizes: Some(sizes),
            ..Job::new(Arc::new(lockstep_readers::load_model("resnet-32")?), ranks, 32)
        };
        let options = SimOptions::default();
        let prediction = simulate(&job.program()?, &platform, options.driver(), &options)?;
        (prediction.timeline.step_time_s(), prediction.folding)
    } else {
        let (algorithm, group, chunk) = match load.as_str() {
            "ring" => (Algorithm::ring(), Group::flat(ranks), 0),
            "hierarchical" => (hierarchical, Group::nodes(&sizes), chunk),
            _ => return Err(usage().into()),
        };
        let collective = Collective::AllReduce;
        let fold = FoldRule::Exact;
        let run = CollectiveRun {
            collective,
            algorithm,
            group,
            elements: ELEMENTS,
            dtype: Dtype::F32,
            chunk,
            window: 0,
            fold,
            padded: false,
            long_way: false,
        };
        let time = simulate_collective(&run, &platform)?;
        (time.time.as_secs_f64(), time.folding)
    };
    let representatives = match folding {
        Folding::Folded { representatives, .. } => representatives,
        _ => ranks,
    };
    let wall_s = start.elapsed().as_secs_f64();
    println!("{load},{ranks},{wall_s:.4},{cluster_s:.4},{simulated_s:.9},{representatives},{}", peak_kib());
    Ok(())
}
