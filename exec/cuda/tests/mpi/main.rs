//! Tests messages between GPUs of several processes, over pretend libraries (`tests/gpu/pretend`) whose memory is the
//! process's own, so that any MPI can move it: passed by address or copied to the host first, they give the same bits.
//!
//! One program in two parts, like the tests of the transport itself: started by `cargo test` it starts `mpirun` on
//! itself for each scenario; started by `mpirun` (first argument `rank`) it is one process of the scenario.

#[path = "../../../tests/mpi/launch.rs"]
mod launch;
#[path = "../driver/pretend.rs"]
mod pretend;

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use lockstep_cuda::Gpus;
use lockstep_data::Dataset;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::{Run, RunOptions, run, run_processes};
use lockstep_models::{Bucket, Job, Precision, Program, random_model};

use launch::Scenario;

/// Overrides the MPI library's answer.
const AWARE: &str = "LOCKSTEP_CUDA_AWARE_MPI";

/// Strategies and algorithms; the last one has a server on the host.
const TRAININGS: [(&str, &str); 8] = [
    ("ssgd", "ring"),
    ("ssgd", "halving-doubling"),
    ("ssgd", "multi-color:2"),
    ("ssgd", "parameter-server:1"),
    ("hybrid:c", "ring"),
    ("model-parallel", "ring"),
    ("sma:tau=2", "tree:2"),
    ("ssgd", "parameter-server:1:dedicated"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, first, scenario, hosts] = &arguments[..] else { return launch::all(&scenarios()) };
    assert_eq!(first, "rank");
    let hosts: Vec<u32> = hosts.split(',').map(|host| host.parse().unwrap()).collect();
    gpus(&mut Processes::join().unwrap(), &hosts, scenario == "gpus-lost");
    ExitCode::SUCCESS
}

/// Jobs over the pretend libraries; none, with a loud message, where they cannot be built.
fn scenarios() -> Vec<Scenario> {
    let Some(folder) = pretend::folder() else { return Vec::new() };
    let on = |scenario: Scenario, aware: &str, devices: &str, seed: &str| {
        let (cache, folder) = (folder.join("cache").display().to_string(), folder.display().to_string());
        let settings = [("LD_LIBRARY_PATH", folder.as_str()), ("LOCKSTEP_CACHE", cache.as_str()), (AWARE, aware)];
        scenario.with(&settings).with(&[("PRETEND_DEVICES", devices), ("PRETEND_SEED", seed)])
    };
    let hosts: [(&[u32], &str); 5] =
        [(&[0, 1], "1"), (&[0, 1, 2, 3], "2"), (&[0, 0, 1, 1], "2"), (&[0, 1, 0, 1], "1"), (&[0, 0, 1], "2")];
    let mut all = Vec::new();
    for (seed, (hosts, devices)) in (1..).zip(hosts) {
        all.push(on(Scenario::new("gpus", hosts, None), "1", devices, &seed.to_string()));
    }
    all.push(on(Scenario::new("gpus", &[0, 1, 1], None), "0", "1", "6"));
    // A device that is lost during messages.
    for hosts in [&[0, 1][..], &[0, 0, 1]] {
        let lost = Scenario::new("gpus-lost", hosts, Some("the device is lost"));
        all.push(on(lost, "1", "1", "7").with(&[("PRETEND_FAULT", "lost:150")]));
    }
    all.push(on(Scenario::new("gpus", &[0, 1], Some("write 1 or 0")), "perhaps", "1", "1"));
    all
}

/// One process's part of a scenario; `is_lost`: a device fails during it.
fn gpus(processes: &mut Processes, hosts: &[u32], is_lost: bool) {
    let is_aware = std::env::var(AWARE).is_ok_and(|said| said == "1");
    assert_eq!(processes.takes_devices(), is_aware);
    let mut report = String::new();
    for (strategy, algorithm) in TRAININGS {
        // The model's smallest planes have two rows.
        if strategy == "model-parallel" && hosts.len() > 2 {
            continue;
        }
        let program = program(strategy, algorithm, hosts.len() as u32);
        // One worker needs no server.
        if program.ranks() < hosts.len() as u32 {
            continue;
        }
        let case = format!("{strategy} by {algorithm} in {hosts:?}");
        if is_lost {
            train(processes, hosts, &program, open());
            panic!("{case}: nothing was lost");
        }
        let (staged, _) = train(processes, hosts, &program, open().by_host());
        let (direct, received) = train(processes, hosts, &program, open());
        let (Some(staged), Some(direct)) = (staged, direct) else { continue };
        let all: u64 = direct.traffic.iter().flatten().map(|sent| sent.messages).sum();
        let expected = if is_aware && !algorithm.ends_with("dedicated") { all } else { 0 };
        assert_eq!((staged.direct_messages, direct.direct_messages, received), (0, expected, expected), "{case}");
        assert!(all > 0, "{case}");
        assert_eq!((&direct.losses, &direct.state_sha256), (&staged.losses, &staged.state_sha256), "{case}");
        // As threads of one process, where the host copies and sums.
        let (data, options) = (data(&program), options(open().by_host()));
        let on_threads = run(&program, &data, &options).unwrap();
        assert_eq!(direct.state_sha256, on_threads.state_sha256, "{case}");
        writeln!(report, "{case}: {expected} of {all} messages between GPUs").unwrap();
    }
    print!("{report}");
}

fn open() -> Gpus {
    Gpus::open(Precision::F32).unwrap()
}

fn program(strategy: &str, algorithm: &str, ranks: u32) -> Program {
    // Statistics of a rank's batch cannot be split by features.
    let model = Arc::new(random_model(5, !["hybrid:c", "model-parallel"].contains(&strategy)));
    let (strategy, algorithm) = (strategy.parse().unwrap(), algorithm.parse().unwrap());
    let mut job = Job { strategy, algorithm, bucket: Bucket::Layer, ..Job::new(model, ranks, 4) };
    if job.program().unwrap().ranks() > ranks {
        job.workers = ranks - 1;
    }
    job.program().unwrap()
}

fn data(program: &Program) -> Dataset {
    Dataset::load("synthetic:200", &program.model).unwrap().0
}

fn options(gpus: Gpus) -> RunOptions<'static> {
    RunOptions { steps: 3, devices: Arc::new(gpus), ..RunOptions::default() }
}

/// The result of a run in rank 0's process, and the number of messages received in GPU memory in all processes.
fn train(processes: &mut Processes, hosts: &[u32], program: &Program, gpus: Gpus) -> (Option<Run>, u64) {
    let before = gpus.direct_messages();
    let options = options(gpus);
    let done = run_processes(processes, hosts, program, &data(program), &options).unwrap();
    let own = u32::try_from(open().direct_messages() - before).unwrap();
    (done, processes.gather(own).into_iter().map(u64::from).sum())
}
