//! Whole programs on a few clusters: every algorithm, in buckets and in one.

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

/// Parts that are unequal fold once they are padded, and folding changes nothing then either.
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
    // As without padding; MPI sends buffers of this length in segments of its own.
    assert_eq!(folded, 16, "four of nine algorithms");
}

/// Every position of a rank along the outermost axis is equal: those along inner axes are simulated apart.
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

/// A fold of a mesh simulates as many ranks as the axes inside the outermost one have, whatever that one's size.
#[test]
fn ranks_along_the_outermost_axis_stand_for_each_other() {
    for (data, ranks) in [(2, 8), (4, 16), (8, 32)] {
        let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), ranks, &HostingRule::PerHost);
        let mesh = Some(format!("data={data},tensor=4").parse().expect("a mesh"));
        let strategy = "model-parallel".parse().expect("a strategy");
        let job = Job { strategy, mesh, ..job(&world, EVEN, "ring", 64 << 10) };
        let (_, folding) = of_program(&job.program().expect("a program"), &platform(&world), FoldRule::Exact);
        assert!(matches!(folding, Folding::Folded { representatives: 4, .. }), "{folding}");
    }
}
