//! Tests one collective at a time: on every preset, on trees, and padded.

use lockstep_topology::{Algorithm, Cluster, Collective, Group, HostingRule};

use super::*;
use crate::tests::world::tree;

/// Every algorithm on `site`; those that folded.
fn every_algorithm(world: &World, elements: u64, chunk: u64, what: &str) -> Vec<&'static str> {
    let folds = |algorithm: &&str| {
        let what = format!("{algorithm} of {elements} among {} on {what}", world.placement.ranks());
        same(both(world, &Collective::AllReduce, algorithm, elements, chunk), &what)
    };
    ALGORITHMS.into_iter().filter(folds).collect()
}

#[test]
fn collectives_on_every_preset() {
    for (name, _) in Cluster::presets() {
        for rule in [HostingRule::PerRank, HostingRule::PerHost] {
            for (ranks, elements, chunk) in
                [(2, 64, 0), (8, 1 << 18, 0), (12, 3 << 14, 3 << 12), (16, 1 << 20, 1 << 18), (32, 1000, 0)]
            {
                let Some(world) = World::of(Cluster::load(name).expect("a preset"), ranks, &rule) else { continue };
                every_algorithm(&world, elements, chunk, name);
            }
        }
    }
}

#[test]
fn collectives_on_trees() {
    let folding = |cluster: Cluster, ranks, elements, chunk| {
        let world = World::of(cluster, ranks, &HostingRule::PerRank).expect("places");
        every_algorithm(&world, elements, chunk, "a tree")
    };
    let all = ["ring", "halving-doubling", "hierarchical:ring", "hierarchical:halving-doubling", "library:mpi"];
    assert_eq!(folding(tree(4, 2, 2, 2), 32, 1 << 16, 1 << 14), all);
    assert_eq!(folding(tree(2, 4, 2, 1), 16, 1 << 20, 0), all);
    assert_eq!(folding(tree(1, 2, 2, 4), 16, 1 << 10, 0), all);
    // Three pods rotate and do not XOR; the library halves.
    assert_eq!(folding(tree(2, 2, 2, 3), 24, 24 << 9, 24 << 8), ["ring", "hierarchical:ring"]);
    // Unequal shards: nothing folds but recursive doubling, which has none.
    assert_eq!(folding(tree(2, 2, 2, 2), 16, 1001, 0), ["library:mpi"]);
}

#[test]
fn other_collectives() {
    let world = World::of(tree(2, 2, 2, 2), 16, &HostingRule::PerRank).expect("places");
    for (collective, algorithm) in [
        (Collective::ReduceScatter, "ring"),
        (Collective::AllGather, "ring"),
        (Collective::AllToAllV { counts: vec![3000; 256].into() }, "pairwise"),
    ] {
        assert!(same(both(&world, &collective, algorithm, 48000, 0), algorithm), "{algorithm}");
    }
    assert!(!same(both(&world, &Collective::Broadcast { root: 0 }, "binomial-tree", 48000, 0), "broadcast"));
}

#[test]
fn padding_rounds_up_and_is_reported() {
    let world = World::of(tree(2, 2, 2, 2), 16, &HostingRule::PerRank).expect("places");
    let run = |elements, padded, fold| {
        let algorithm = Algorithm::ring();
        let group = Group::flat(16);
        let collective = Collective::AllReduce;
        let run = CollectiveRun { fold, padded, ..CollectiveRun::new(collective, algorithm, group, elements) };
        crate::simulate_collective(&run, &platform(&world)).expect("a collective that works")
    };
    let (padded, even) = (run(1001, true, FoldRule::Exact), run(1008, false, FoldRule::Never));
    assert_eq!((padded.time, &padded.traffic), (even.time, &even.traffic));
    assert!(padded.folding.to_string().contains("rounded up by 0.70 %"), "{}", padded.folding);
    assert!(matches!(run(1001, false, FoldRule::Exact).folding, Folding::Refused(_)));
}
