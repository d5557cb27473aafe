//! Times the prediction of one training step: ResNet-50 (161 gradient tensors) on 256 GPUs, exchanges after the
//! backward pass.
//!
//! `cargo run --release -p lockstep-benches --bin step_bench padded` prints the median wall clock of predictions,
//! everything from the job to the prediction included, and how they fold; with `exact`, exchanges keep their lengths,
//! and few fold. A further number times a sweep of that many distinct points on two threads.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Bucket, Job, Model};
use lockstep_sim::{Conditions, NetworkModel, Platform, Prediction, Roofline, SimError, SimOptions, simulate};
use lockstep_topology::{Bytes, Cluster, Hosting, HostingRule, InputError, Placement, PlacementRule};

/// Hosts of eight GPUs on PCIe behind one 100 Gbit/s port each.
fn cluster(hosts: u32, gigabits: f64) -> Result<Cluster, InputError> {
    let text = format!(
        r#"
        name = "gpus"
        [[host]]
        name = "node"
        count = {hosts}
        provenance = "assumed"
        [host.cpu]
        cores = 32
        flops_per_core = "80GFLOP/s"
        memory_bandwidth = "120GB/s"
        memory = "256GiB"
        message_latency = "1us"
        message_bandwidth = "8GB/s"
        [[host.gpu]]
        name = "gpu"
        count = 8
        model = "v100-sxm2"
        [[host.nic]]
        name = "ib0"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "gpu*"]
        latency = "1us"
        bandwidth = "15.75GB/s"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "ib0"]
        latency = "500ns"
        bandwidth = "15.75GB/s"
        [[switch]]
        name = "switch"
        [[link]]
        kind = "infiniband"
        between = ["node*.ib0", "switch"]
        latency = "1us"
        bandwidth = "{gigabits}Gbit/s"
        "#
    );
    Cluster::parse("gpus.toml", &text)
}

fn predict(job: &Job, cluster: &Cluster, options: &SimOptions) -> Result<Prediction, SimError> {
    let program = job.program()?;
    let placement = Placement::new(cluster, program.ranks(), &PlacementRule::Pack)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let network = NetworkModel::MaxMin;
    let platform = Platform {
        cluster,
        placement: &placement,
        hosting: &hosting,
        costs: &Roofline,
        network,
        conditions: Conditions::none(),
    };
    simulate(&program, &platform, options.driver(), options)
}

/// The median of three runs, in milliseconds.
fn milliseconds(mut run: impl FnMut() -> Result<Prediction, SimError>) -> Result<(f64, Prediction), SimError> {
    let mut times = Vec::new();
    let mut last = run()?;
    for _ in 0..3 {
        let start = Instant::now();
        last = run()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[1], last))
}

/// The job with these exchanges.
fn job(model: &Arc<Model>, algorithm: &str, bucket: Bytes, pad: bool) -> Result<Job, InputError> {
    Ok(Job {
        algorithm: algorithm.parse()?,
        bucket: Bucket::Size(bucket),
        node_sizes: Some(vec![8; 32]),
        pad,
        ..Job::new(model.clone(), 256, 32)
    })
}

/// One line for each algorithm and size of buckets.
fn steps(model: &Arc<Model>, pad: bool) -> Result<(), SimError> {
    let gpus = cluster(32, 100.0)?;
    for algorithm in ["hierarchical:halving-doubling", "hierarchical:ring", "ring", "halving-doubling"] {
        for bucket in [Bytes(25 << 20), Bytes(4 << 20)] {
            let job = job(model, algorithm, bucket, pad)?;
            let time = |warm_up, counted, accumulate| {
                let options = SimOptions { warm_up, counted, ..SimOptions::default() };
                milliseconds(|| predict(&Job { accumulate, ..job.clone() }, &gpus, &options))
            };
            let (one, first) = time(0, 1, 1)?;
            let ((five, last), (hundred, _), (accumulated, _)) = (time(2, 3, 1)?, time(2, 98, 1)?, time(0, 1, 64)?);
            println!(
                "{algorithm}, buckets of {bucket}, {} messages: one step {one:.1} ms, five {five:.1} ms, a hundred {hundred:.1} ms, \
                 one of 64 micro-batches {accumulated:.1} ms; predicted {:.6} s; {}",
                first.traffic.total().messages,
                last.timeline.step_time_s(),
                last.folding,
            );
        }
    }
    Ok(())
}

/// A sweep of `points` distinct points over bandwidths, batches and buckets, on two threads.
fn sweep(model: &Arc<Model>, pad: bool, points: u32) -> Result<(), SimError> {
    let start = Instant::now();
    let point = |point: u32| {
        let gpus = cluster(32, 50.0 + f64::from(point % 50))?;
        let job = job(model, "hierarchical:halving-doubling", Bytes(u64::from(4 + point / 50) << 20), pad)?;
        predict(&job, &gpus, &SimOptions::default())
    };
    std::thread::scope(|scope| {
        let worker = |first: u32| scope.spawn(move || (first..points).step_by(2).try_for_each(|p| point(p).map(drop)));
        [0, 1].map(worker).into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{points} points in {seconds:.1} s: {:.1} ms a point and core", seconds * 2e3 / f64::from(points));
    Ok(())
}

fn main() -> Result<(), SimError> {
    let usage = || InputError::new("", "", "usage: step_bench exact|padded [POINTS of a sweep]");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let pad = match arguments.first().map(String::as_str) {
        Some("exact") => false,
        Some("padded") => true,
        _ => return Err(usage().into()),
    };
    let model = Arc::new(lockstep_readers::load_model("resnet-50")?);
    match arguments.get(1) {
        Some(points) => sweep(&model, pad, points.parse().map_err(|_| usage())?),
        None => {
            let tensors: usize = model.layers().iter().map(|node| node.parameters.len()).sum();
            println!("resnet-50: {tensors} gradient tensors, {} parameters", model.parameter_elements());
            steps(&model, pad)
        }
    }
}
