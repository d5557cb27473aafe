//! Tests that pipelines over processes train the same bits as on threads, for every mesh of the ranks and every
//! schedule.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::{RunOptions, run, run_processes};
use lockstep_models::{Axis, Job, Mesh, random_model};

/// Micro-batches for each stage of a pipeline in a step.
const EACH: u32 = 2;

/// One process's part.
pub(crate) fn stages(processes: &mut Processes, hosts: &[u32]) {
    let ranks = hosts.len() as u32;
    let mut trained = 0;
    for stages in (2..=ranks).filter(|stages| ranks.is_multiple_of(*stages)) {
        for (schedule, strategy) in [
            ("gpipe", "ssgd"),
            ("1f1b", "zero-1"),
            ("1f1b", "ssgd"),
            ("1f1b", "megatron"),
            ("interleaved:2", "ssgd"),
            ("zb-h1", "zero-1"),
            ("zb-h1", "megatron"),
        ] {
            let inside = if strategy == "megatron" { Axis::Tensor } else { Axis::Data };
            let mut axes = [(Axis::Pipeline, stages), (inside, ranks / stages)];
            axes.rotate_left(usize::from(schedule.starts_with("interleaved")));
            let mesh = Some(Mesh::new(&axes).unwrap());
            let (schedule, strategy) = (schedule.parse().unwrap(), strategy.parse().unwrap());
            let job = |model| Job {
                mesh: mesh.clone(),
                schedule,
                strategy: Clone::clone(&strategy),
                accumulate: EACH * stages,
                ..Job::new(Arc::new(random_model(model, true)), ranks, 2)
            };
            // Not every layer can be split among all ranks, and small models do not have enough layers for all cuts.
            let Some(job) = (31..60).map(job).find(|job| job.program().is_ok()) else { continue };
            let program = job.program().unwrap();
            let (data, _) = Dataset::load("synthetic:400", &job.model).unwrap();
            let options = RunOptions { steps: 4, warm_up: 0, seed: 3, ..RunOptions::default() };
            let done = run_processes(processes, hosts, &program, &data, &options).unwrap();
            trained += 1;
            let Some(done) = done else { continue };
            let on_threads = run(&program, &data, &options).unwrap();
            assert_eq!(
                (&done.weights_sha256, &done.losses),
                (&on_threads.weights_sha256, &on_threads.losses),
                "{job:?}"
            );
        }
    }
    assert!(trained >= 4, "{trained} on {ranks} ranks");
}
