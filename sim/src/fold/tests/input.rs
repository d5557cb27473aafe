//! Tests input tasks: ranks of a host share its storage, its threads and the links of its devices, and equal ones are
//! simulated once.

use lockstep_models::{CopiedBy, Input, SampleSource, StageCut, TransformAt};
use lockstep_topology::{Bandwidth, Cluster, HostingRule, Time};

use super::*;
use crate::tests::world::tree;

/// Each stage takes some microseconds for a batch of eight, as the models of these tests do; threads are late.
fn input(prefetch: u32) -> Input {
    let bandwidth = Bandwidth::new(1e9).expect("positive");
    Input {
        samples: 1 << 20,
        sample_bytes: Bytes(1000),
        source: SampleSource::Files { bandwidth, latency: Time::from_nanos(700), page_cache: Bytes(1 << 28) },
        threads: 6,
        decode: Time::from_nanos(900),
        decode_memory: 0.01,
        transform: Time::from_nanos(400),
        prefetch,
        copied_by: CopiedBy::Upload,
    }
}

#[test]
fn programs_with_input_are_equal_task_by_task() {
    let mut folded = 0;
    for (cluster, ranks) in [
        (tree(2, 2, 2, 2), 16),
        (Cluster::load("ethernet-4").expect("a preset"), 32),
        (Cluster::load("ethernet-gpu-8").expect("a preset"), 16),
        (Cluster::load("dgx-a100:2").expect("a preset"), 16),
    ] {
        // Threads of a process decode for several ranks of a CPU in turn.
        let hosting = if ranks == 32 { HostingRule::PerRank } else { HostingRule::PerHost };
        let world = World::new(cluster, ranks, &hosting);
        for (ahead, transform_at) in [(0, TransformAt::Host), (2, TransformAt::Device), (2, TransformAt::WhenLate)] {
            let conditions = Conditions { input: Some(input(ahead)), ..Conditions::default() };
            for algorithm in ["ring", "halving-doubling"] {
                let what = format!("{algorithm}, {ahead} ahead on {}", world.cluster.name());
                let job =
                    Job { ahead: Some(ahead), transform_at, accumulate: 2, ..job(&world, EVEN, algorithm, 64 << 10) };
                let program = job.program().expect("a program");
                folded += u32::from(same_tasks_under(&world, &conditions, &program, 6, &what));
            }
        }
    }
    assert_eq!(folded, 24, "of 24 programs");
}

/// Where equality follows from routes alone, those from the hosts' CPUs count too.
#[test]
fn stages_and_parts_with_input_are_equal_task_by_task() {
    let conditions = Conditions { input: Some(input(1)), ..Conditions::default() };
    let mut folded = Vec::new();
    for cluster in ["dgx-h100", "dgx-a100"] {
        let world = World::new(Cluster::load(&format!("{cluster}:4")).expect("a preset"), 32, &HostingRule::PerHost);
        for (strategy, mesh) in
            [("megatron", "data=4,tensor=8"), ("megatron", "pipeline=4,tensor=8"), ("ssgd", "pipeline=2,data=16")]
        {
            let what = format!("{strategy} over {mesh} on {cluster}");
            let mesh = Some(mesh.parse().expect("a mesh"));
            let strategy = strategy.parse().expect("a strategy");
            let plain =
                Job { strategy, mesh, cut: StageCut::Layers, accumulate: 4, ..job(&world, EVEN, "ring", 64 << 10) };
            let program = Job { ahead: Some(1), ..plain }.program().expect("a program");
            if same_tasks_under(&world, &conditions, &program, 4, &what) {
                folded.push(what);
            }
        }
    }
    // GPUs of a host are in pairs on switches, so they are not all equal for its CPU.
    assert_eq!(folded.len(), 4, "of 6 programs: {folded:#?}");
}
