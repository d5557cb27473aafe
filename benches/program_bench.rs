//! Times building and checking the programs of a large transformer on a large mesh, and reports their sizes.
//!
//! `cargo run --release -p lockstep-benches --bin program_bench [STRATEGY SCHEDULE]` takes llama-3-405b at 4,096
//! positions over 16,384 ranks (data 128 x pipeline 16 x tensor 8, 32 micro-batches of one sample, of eight for
//! sequence-parallel, bf16, cut between blocks) and prints for each strategy and schedule, or for those given, the
//! median of five: milliseconds to build and check the graph, milliseconds to build and check all, then tasks and KiB
//! by which the process grew.

use std::sync::Arc;
use std::time::Instant;

use lockstep_models::{Axis, Job, Mesh, Precision, Program, Proofs, StageCut};
use lockstep_topology::InputError;

const MODEL: &str = "llama-3-405b:positions=4096";
const STRATEGIES: [&str; 2] = ["megatron:zero-1", "sequence-parallel:zero-1"];
const SCHEDULES: [&str; 2] = ["1f1b", "zb-h1"];
const RUNS: usize = 5;

/// KiB of the process in memory; 0 where the system does not report it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The median of `RUNS` times of `work` in milliseconds, and its last result.
fn timed<T>(work: impl Fn() -> Result<T, InputError>) -> Result<(f64, T), InputError> {
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        let made = work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        if times.len() == RUNS {
            times.sort_by(f64::total_cmp);
            return Ok((times[RUNS / 2], made));
        }
    }
}

fn measure(job: &Job) -> Result<(), InputError> {
    let before = resident_kib();
    let first = Instant::now();
    let program = job.program()?;
    let first_ms = first.elapsed().as_secs_f64() * 1e3;
    let grown = resident_kib().saturating_sub(before);
    drop(program);
    // Proofs of schedules are kept by a job: each run has its own.
    let fresh = || Job { proofs: Proofs::default(), ..job.clone() };
    let (graph_ms, _) = timed(|| fresh().graph())?;
    let (program_ms, program): (f64, Program) = timed(|| fresh().program())?;
    let tasks: usize = program.roles.iter().map(|role| role.tasks.len()).sum();
    println!(
        "{} {}: graph in {graph_ms:.1} ms, built and checked in {program_ms:.1} ms (first {first_ms:.1} ms), \
         {tasks} tasks of {} roles, {grown} KiB",
        job.strategy,
        job.schedule,
        program.roles.len()
    );
    Ok(())
}

fn usage(fault: String) -> InputError {
    InputError::new("", fault, "usage: program_bench [STRATEGY SCHEDULE]")
}

fn main() -> Result<(), InputError> {
    let model = Arc::new(lockstep_readers::load_model(MODEL)?);
    let mesh = Mesh::new(&[(Axis::Data, 128), (Axis::Pipeline, 16), (Axis::Tensor, 8)])?;
    let ranks = mesh.ranks();
    let given: Vec<String> = std::env::args().skip(1).collect();
    let pairs: Vec<(&str, &str)> = match given.as_slice() {
        [] => STRATEGIES.iter().flat_map(|strategy| SCHEDULES.map(|schedule| (*strategy, schedule))).collect(),
        [strategy, schedule] => vec![(strategy, schedule)],
        _ => return Err(usage(String::new())),
    };
    for (strategy, schedule) in pairs {
        measure(&Job {
            strategy: strategy.parse().map_err(usage)?,
            schedule: schedule.parse().map_err(usage)?,
            mesh: Some(mesh.clone()),
            cut: StageCut::Blocks,
            accumulate: 32,
            precision: Precision::Bf16,
            ..Job::new(Arc::clone(&model), ranks, if strategy.starts_with("sequence") { 8 } else { 1 })
        })?;
    }
    Ok(())
}
