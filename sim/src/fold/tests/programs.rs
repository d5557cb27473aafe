//! Tests whole programs on a few clusters: every algorithm, in buckets and in one.

use lockstep_models::Bucket;
use lockstep_topology::{Cluster, HostingRule};

use super::*;
use crate::tests::world::tree;

#[test]
fn programs_are_equal_task_by_task() {
    let mut folded = 0;
    for (cluster, ranks) in [
        (tree(2, 2, 2, 2), 16),
        (Cluster::load("ethernet-4").expect("a preset"), 32),
        (Cluster::load("ethernet-gpu-8").expect("a preset"), 8),
        (Cluster::load("workstation").expect("a preset"), 2),
    ] {
        let world = World::new(cluster, ranks, &HostingRule::PerHost);
        for (algorithm, bucket) in ALGORITHMS.iter().flat_map(|a| [(a, Bucket::Layer), (a, Bucket::Whole)]) {
            let what = format!("{algorithm} {bucket} on {}", world.cluster.name());
            let job = Job { bucket, accumulate: 2, ..job(&world, EVEN, algorithm, 64 << 10) };
            folded += u32::from(same_tasks(&world, &job.program().expect("a program"), 3, &what));
        }
    }
    // Five of nine algorithms, but one node alone has no leaders to permute.
    assert_eq!(folded, 36, "of 72 programs");
}

/// Unequal parts fold when they are padded, and folding then changes nothing either.
#[test]
fn padded_programs_fold() {
    let mut folded = 0;
    for (cluster, ranks) in [(tree(2, 2, 2, 2), 16), (Cluster::load("ethernet-gpu-8").expect("a preset"), 32)] {
        let world = World::new(cluster, ranks, &HostingRule::PerHost);
        for (algorithm, bucket) in ALGORITHMS.iter().flat_map(|a| [(a, Bucket::Layer), (a, Bucket::Size(Bytes(64)))]) {
            let what = format!("{algorithm} {bucket} on {}", world.cluster.name());
            let padded = Job { bucket, ..job(&world, ODD, algorithm, 4 << 10) };
            let bare = Job { pad: false, ..padded.clone() }.program().expect("a program");
            let (padded, bare) = (
                same_tasks(&world, &padded.program().expect("a program"), 3, &what),
                same_tasks(&world, &bare, 3, &what),
            );
            assert!(!bare, "{what} folds as it is");
            folded += u32::from(padded);
        }
    }
    // As without padding.
    assert_eq!(folded, 20, "five of nine algorithms");
}

/// Every position of a rank along the outermost axis is equal: those along inner axes are simulated separately.
#[test]
fn meshes_are_equal_task_by_task() {
    let mut folded = 0;
    let meshes =
        ["data=8,tensor=2", "data=4,tensor=4", "data=2,tensor=8", "tensor=4,data=4", "tensor=2,data=8", "tensor=16"];
    let cluster = |number| match number {
        0 => tree(2, 2, 2, 2),
        _ => Cluster::load("ethernet-gpu-8").expect("a preset"),
    };
    for (number, mesh) in [0, 1].into_iter().flat_map(|number| meshes.map(|mesh| (number, mesh))) {
        let world = World::new(cluster(number), 16, &HostingRule::PerHost);
        for algorithm in ["ring", "halving-doubling", "direct", "hierarchical:ring"] {
            let what = format!("{algorithm} over {mesh} on {}", world.cluster.name());
            let mesh = Some(mesh.parse().expect("a mesh"));
            let strategy = "model-parallel".parse().expect("a strategy");
            let job = Job { strategy, mesh, ..job(&world, EVEN, algorithm, 64 << 10) };
            folded += u32::from(same_tasks(&world, &job.program().expect("a program"), 3, &what));
        }
    }
    assert_eq!(folded, 48, "of 48 programs");
}

/// A fold of a mesh simulates as many ranks as the inner axes have, whatever the size of the outermost one.
#[test]
fn one_rank_represents_all_along_the_outermost_axis() {
    for (data, ranks) in [(2, 8), (4, 16), (8, 32)] {
        let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), ranks, &HostingRule::PerHost);
        let mesh = Some(format!("data={data},tensor=4").parse().expect("a mesh"));
        let strategy = "model-parallel".parse().expect("a strategy");
        let job = Job { strategy, mesh, ..job(&world, EVEN, "ring", 64 << 10) };
        let program = job.program().expect("a program");
        let folding = of_program(&program, &platform(&world), FoldRule::Exact).folding;
        assert!(matches!(folding, Folding::Folded { representatives: 4, .. }), "{folding}");
    }
}

/// Ranks of a stage that differ along `data` are equal, wherever the axis of the stages is.
#[test]
fn stages_are_equal_task_by_task() {
    let mut folded = Vec::new();
    let meshes = [
        ("ssgd", "pipeline=2,data=8"),
        ("ssgd", "pipeline=4,data=4"),
        ("ssgd", "data=4,pipeline=4"),
        ("zero-1", "data=8,pipeline=2"),
        ("megatron", "pipeline=2,data=2,tensor=4"),
        ("megatron", "pipeline=2,data=4,tensor=2"),
        ("megatron", "data=2,pipeline=2,tensor=4"),
        ("megatron", "data=4,tensor=2,pipeline=2"),
        ("megatron:zero-1", "pipeline=2,data=4,tensor=2"),
        ("megatron:zero-1", "data=2,device=2,tensor=2,pipeline=2"),
        ("model-parallel", "tensor=4,pipeline=4"),
    ];
    for (cluster, (strategy, mesh)) in ["tree", "ethernet-gpu-8"].into_iter().flat_map(|c| meshes.map(|mesh| (c, mesh)))
    {
        let of = if cluster == "tree" { tree(2, 2, 2, 2) } else { Cluster::load(cluster).expect("a preset") };
        let world = World::new(of, 16, &HostingRule::PerHost);
        let others = if strategy.ends_with("zero-1") { "ring" } else { "halving-doubling" };
        for (algorithm, schedule) in [("ring", "1f1b"), (others, "gpipe")] {
            let what = format!("{strategy} by {algorithm} over {mesh} on {cluster}");
            let mesh = Some(mesh.parse().expect("a mesh"));
            let (strategy, schedule) = (strategy.parse().expect("a strategy"), schedule.parse().expect("a schedule"));
            let cut = lockstep_models::StageCut::Layers;
            let job = Job { strategy, mesh, schedule, cut, accumulate: 4, ..job(&world, EVEN, algorithm, 64 << 10) };
            if same_tasks(&world, &job.program().unwrap_or_else(|error| panic!("{what}: {error}")), 3, &what) {
                folded.push(what);
            }
        }
    }
    // Neighbours along `data` are not all equally near to each other on hosts of four GPUs, or on a tree of switches.
    assert_eq!(folded.len(), 29, "of 44 programs: {folded:#?}");
}

/// Ranks along `tensor` are equal too where each has its own NIC: one represents all of a host.
#[test]
fn parts_of_layers_are_equal_task_by_task() {
    let meshes = [
        ("megatron", "data=4,tensor=8", 1),
        ("model-parallel", "data=4,tensor=8", 1),
        ("megatron", "data=2,pipeline=2,tensor=8", 2),
        ("model-parallel", "pipeline=2,data=2,tensor=8", 2),
        ("megatron", "pipeline=4,tensor=8", 4),
        ("model-parallel", "data=4,pipeline=2,tensor=4", 2),
    ];
    for (cluster, (strategy, mesh, representatives)) in
        ["dgx-h100", "dgx-a100"].into_iter().flat_map(|cluster| meshes.map(|mesh| (cluster, mesh)))
    {
        let world = World::new(Cluster::load(&format!("{cluster}:4")).expect("a preset"), 32, &HostingRule::PerHost);
        for fuse in [false, true] {
            let what = format!("{strategy} over {mesh} on {cluster}");
            let mesh = Some(mesh.parse().expect("a mesh"));
            let strategy = strategy.parse().expect("a strategy");
            let cut = lockstep_models::StageCut::Layers;
            let job = Job { strategy, mesh, cut, fuse, accumulate: 4, ..job(&world, EVEN, "ring", 64 << 10) };
            let program = job.program().unwrap_or_else(|error| panic!("{what}: {error}"));
            let folding = SimulatedRanks::of(&program, &platform(&world), FoldRule::Exact).folded.folding;
            let Folding::Folded { representatives: found, .. } = folding else { panic!("{what}: {folding}") };
            assert_eq!(found, representatives, "{what}");
            assert!(same_tasks(&world, &program, 3, &what));
        }
    }
}
