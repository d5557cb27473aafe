//! Tests that the peak of a process that trains a small decoder is what the plan of its memory says.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockstep_exec::device::cpu::{Threads, workspace_bytes};
use lockstep_experiment::Experiment;
use lockstep_models::Program;
use lockstep_models::memory::Memory;

const MIB: u64 = 1 << 20;
/// Data, stacks of threads, what the allocator keeps.
const BESIDE: u64 = 32 * MIB;

/// What the ranks of one process take: each what its role plans, and the scratch memory of its kernels.
fn planned(program: &Program) -> u64 {
    let states = program.rule.states().len() as u64;
    let of_rank = |rank| Memory::of_role(program, program.role_of(rank), states).unwrap().total();
    let scratch = workspace_bytes(program, &Threads::one()) as u64;
    (0..program.ranks()).map(|rank| of_rank(rank) + scratch).sum()
}

/// The most memory that a run of `experiment` has had at once, which the system keeps for each process.
fn measured(experiment: &str) -> u64 {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(experiment.as_bytes()).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["exec", "run"])
        .arg(file.path())
        .args(["--data", "synthetic:64", "--steps", "1", "--format", "csv"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", run.id());
    let mut peak_kib = 0;
    while run.try_wait().unwrap().is_none() {
        // It never falls; a process that has ended has no such line.
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak_kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(peak_kib);
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = run.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    peak_kib * 1024
}

fn experiment(model: &str, (strategy, mesh, recompute): (&str, &str, &str)) -> String {
    format!(
        "name = \"e\"\nmodel = \"{model}\"\nstrategy = \"{strategy}\"\nmesh = \"{mesh}\"\nrecompute = \"{recompute}\"\n\
         batch_per_rank = 8\noptimizer = \"adamw\"\n"
    )
}

/// Where each rank has the whole model; where ranks have parts, rank 0 assembles it at the end, beside what others send.
#[test]
fn the_peak_of_a_run_is_what_its_plan_says() {
    // A build for tests has a larger binary than others: what the process takes without a model does not count.
    let binary = measured(&experiment("gpt2-char:layers=1,positions=8,hidden=8,heads=1", ("ssgd", "data=1", "none")));
    let mut plans = Vec::new();
    for setting in [("ssgd", "data=1", "none"), ("ssgd", "data=1", "full"), ("zero-1", "data=2", "none")] {
        let experiment = experiment("gpt2:layers=4,positions=128,hidden=512,heads=8,vocabulary=4096", setting);
        let configurations = Experiment::parse("e.toml", &experiment).unwrap().configurations().unwrap();
        let planned = planned(&configurations[0].program().unwrap());
        let (measured, bound) = (measured(&experiment) - binary, planned / 50 + BESIDE);
        let [planned_mib, measured_mib, allowed_mib] = [planned, measured, bound].map(|bytes| bytes / MIB);
        let figures = format!(
            "{setting:?}: {planned_mib} MiB planned, {measured_mib} measured, {allowed_mib} between them allowed"
        );
        println!("{figures}");
        assert!(measured.abs_diff(planned) <= bound, "{figures}");
        plans.push((planned, bound));
    }
    // The bound is less than what recomputation changes.
    assert!(plans[0].0 > plans[1].0 + 2 * plans[0].1, "{plans:?}");
}
