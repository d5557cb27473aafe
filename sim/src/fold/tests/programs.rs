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
