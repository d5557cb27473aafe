//! How fast one training step is predicted: ResNet-50 (161 gradient tensors) on 256 GPUs, exchanges behind the backward pass.
//!
//! `cargo run --release -p lockstep-sim --example step_bench` prints the median wall clock per simulated step and per
//! distinct point of a sweep, everything from the job to the prediction included.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Bucket, Job, Model};
use lockstep_sim::{NetworkModel, Options, Platform, Prediction, Roofline, SimError, simulate};
use lockstep_topology::{Bytes, Cluster, Hosting, HostingRule, InputError, Placement, PlacementRule};

/// ResNet-50 as He et al. 2016 give it: bottlenecks of 3, 4, 6 and 3, projections where the shape changes.
fn resnet_50() -> Result<Model, InputError> {
    let mut text = String::from("name = \"resnet-50\"\nsource = \"He et al. 2016, table 1\"\ninput = [3, 224, 224]\n");
    let conv = |name: &str, out: &str, kernel: u32, rest: &str| {
        format!(
            "{{ name = \"{name}\", kind = \"conv2d\", out_channels = {out}, kernel = {kernel}, bias = false{rest} }},\n"
        )
    };
    let norm = |name: &str| format!("{{ name = \"{name}\", kind = \"batch_norm\" }},\n");
    let relu = |name: &str| format!("{{ name = \"{name}\", kind = \"relu\" }},\n");
    for (block, stride) in [("same", 0), ("wide", 1), ("down", 2)] {
        let step = if stride == 2 { ", stride = 2" } else { "" };
        text += &format!("[block.{block}]\nlayer = [\n");
        text += &(conv("conv1", "\"$channels\"", 1, "") + &norm("bn1") + &relu("relu1"));
        text += &(conv("conv2", "\"$channels\"", 3, &format!(", padding = 1{step}")) + &norm("bn2") + &relu("relu2"));
        text += &(conv("conv3", "\"$channels * 4\"", 1, "") + &norm("bn3"));
        if stride == 0 {
            text += "{ name = \"add\", kind = \"add\", inputs = [\"bn3\", \"input\"] },\n";
        } else {
            text += &conv("project", "\"$channels * 4\"", 1, &format!("{step}, inputs = \"input\""));
            text += &norm("bn4");
            text += "{ name = \"add\", kind = \"add\", inputs = [\"bn3\", \"bn4\"] },\n";
        }
        text += &(relu("relu3") + "]\n");
    }
    let layer = |name: &str, rest: &str| format!("[[layer]]\nname = \"{name}\"\n{rest}\n");
    text += &layer("conv1", "kind = \"conv2d\"\nout_channels = 64\nkernel = 7\nstride = 2\npadding = 3\nbias = false");
    text += &(layer("bn1", "kind = \"batch_norm\"") + &layer("relu1", "kind = \"relu\""));
    text += &layer("pool1", "kind = \"max_pool\"\nkernel = 3\nstride = 2\npadding = 1");
    for (stage, repeat, first) in [(0, 2, "wide"), (1, 3, "down"), (2, 5, "down"), (3, 2, "down")] {
        let channels = 64 << stage;
        text += &layer(&format!("stage{stage}_first"), &format!("block = \"{first}\"\nchannels = {channels}"));
        text +=
            &layer(&format!("stage{stage}"), &format!("block = \"same\"\nrepeat = {repeat}\nchannels = {channels}"));
    }
    text += &layer("pool2", "kind = \"average_pool\"\nkernel = 7");
    text += &layer("fc", "kind = \"dense\"\nout_features = 1000");
    text += &layer("loss", "kind = \"softmax_cross_entropy\"");
    Model::parse("resnet-50.toml", &text)
}

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

fn predict(job: &Job, cluster: &Cluster, options: &Options) -> Result<Prediction, SimError> {
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
        conditions: lockstep_sim::Conditions::none(),
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

fn main() -> Result<(), SimError> {
    let model = Arc::new(resnet_50()?);
    let tensors: usize = model.layers().iter().map(|node| node.parameters.len()).sum();
    println!("resnet-50: {tensors} gradient tensors, {} parameters", model.parameter_elements());
    let gpus = cluster(32, 100.0)?;
    for algorithm in ["hierarchical:halving-doubling", "hierarchical:ring", "ring", "halving-doubling"] {
        for (bucket, name) in [(Bucket::Size(Bytes(25 << 20)), "25 MiB"), (Bucket::Size(Bytes(4 << 20)), "4 MiB")] {
            let job = Job {
                algorithm: algorithm.parse()?,
                bucket,
                node_sizes: Some(vec![8; 32]),
                ..Job::new(model.clone(), 256, 32)
            };
            let one = Options { warm_up: 0, counted: 1, ..Options::default() };
            let (step, first) = milliseconds(|| predict(&job, &gpus, &one))?;
            let (five, _) = milliseconds(|| predict(&job, &gpus, &Options::default()))?;
            let many = Job { accumulate: 64, ..job.clone() };
            let (accumulated, _) = milliseconds(|| predict(&many, &gpus, &one))?;
            println!(
                "{algorithm:<30} buckets of {name:<7} {:>8} messages: one step {step:>7.1} ms, five {five:>7.1} ms, \
                 one of 64 micro-batches {accumulated:>7.1} ms",
                first.traffic.total().messages,
            );
        }
    }
    let start = Instant::now();
    let points = 20;
    for point in 0..points {
        let gpus = cluster(32, 100.0 + f64::from(point))?;
        let job = Job {
            algorithm: "hierarchical:halving-doubling".parse()?,
            node_sizes: Some(vec![8; 32]),
            ..Job::new(model.clone(), 256, 32 + point % 4)
        };
        predict(&job, &gpus, &Options::default())?;
    }
    println!("a point of a sweep: {:.1} ms", start.elapsed().as_secs_f64() * 1e3 / f64::from(points));
    Ok(())
}
