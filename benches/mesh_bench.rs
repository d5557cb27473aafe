//! Times building and checking the program of a large mesh, and predicting its step, and reports the program's memory.
//!
//! `cargo run --release -p lockstep-benches --bin mesh_bench` takes a 64-layer MLP split by Megatron's pairs over
//! 16,384 GPUs (data 128 x pipeline 16 x tensor 8, 32 micro-batches), on DGX H100 behind a three-level fat tree, and
//! prints the median of five: milliseconds to build and check, KiB by which the process grew meanwhile, seconds of the
//! prediction, and how it folds.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Axis, Job, Mesh};
use lockstep_sim::{Platform, Roofline, SimError, SimOptions, simulate};
use lockstep_topology::{Cluster, Hosting, HostingRule, Placement, PlacementRule};

const LAYERS: usize = 64;
const WIDTH: u32 = 1024;
const RUNS: usize = 5;

fn model() -> String {
    let layer = format!("{{ kind = \"dense\", out_features = {WIDTH} }},\n{{ kind = \"relu\" }},\n");
    let layers = layer.repeat(LAYERS - 1);
    format!(
        "name = \"mlp\"\ninput = [1, 32, 32]\nlayer = [\n{layers}{{ kind = \"dense\", out_features = {WIDTH} }},\n\
         {{ kind = \"softmax_cross_entropy\" }},\n]\n"
    )
}

/// KiB of the process in memory; 0 where the system does not report it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), SimError> {
    let mesh = Mesh::new(&[(Axis::Data, 128), (Axis::Pipeline, 16), (Axis::Tensor, 8)])?;
    let model = Arc::new(lockstep_readers::parse_model("mlp.toml", &model())?);
    let ranks = mesh.ranks();
    let job = Job {
        strategy: "megatron".parse().expect("a strategy"),
        mesh: Some(mesh),
        accumulate: 32,
        ..Job::new(model, ranks, 4)
    };
    let before = resident_kib();
    let mut program = job.program()?;
    let grown = resident_kib().saturating_sub(before);
    let mut built = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        program = job.program()?;
        built.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let cluster = Cluster::load("dgx-h100:2048")?;
    let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
    let options = SimOptions::default();
    let mut predicted = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let start = Instant::now();
        last = Some(simulate(&program, &platform, options.driver(), &options)?);
        predicted.push(start.elapsed().as_secs_f64());
    }
    let folding =
        last.map(|predicted| format!("step of {:.6} s; {}", predicted.timeline.step_time_s(), predicted.folding));
    println!(
        "built and checked in {:.1} ms, {grown} KiB; predicted in {:.3} s; {}",
        median(built),
        median(predicted),
        folding.unwrap_or_default()
    );
    Ok(())
}
