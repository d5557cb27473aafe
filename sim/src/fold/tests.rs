//! Tests that folded equals unfolded, to the picosecond, on everything that ships and on trees of switches.

mod collectives;
mod input;
mod presets;
mod programs;

use std::sync::Arc;

use lockstep_models::{Job, Program, Span};
use lockstep_topology::{Algorithm, Bytes, Collective, Dtype, Group, Rank};

use super::{SimulatedRanks, of_program};
use crate::tests::world::World;
use crate::{
    CollectiveRun, CollectiveTime, Conditions, FoldRule, Folding, NetworkModel, Platform, Roofline, SimOptions,
};

/// All algorithms that serve an allreduce.
const ALGORITHMS: [&str; 9] = [
    "ring",
    "halving-doubling",
    "binomial-tree",
    "pipelined-chain",
    "multi-color:2",
    "parameter-server:1",
    "hierarchical:ring",
    "hierarchical:halving-doubling",
    "library:mpi",
];

fn platform(world: &World) -> Platform<'_> {
    world.platform(&Roofline, NetworkModel::MaxMin)
}

fn nodes(world: &World) -> Vec<u32> {
    let ranks: Vec<Rank> = world.placement.all().collect();
    world.placement.node_sizes(&ranks)
}

/// A collective, folded and not; then message by message.
fn both(world: &World, collective: &Collective, algorithm: &str, elements: u64, chunk: u64) -> [CollectiveTime; 2] {
    let run = CollectiveRun {
        collective: collective.clone(),
        algorithm: algorithm.parse::<Algorithm>().expect("an algorithm"),
        group: Group::nodes(&nodes(world)),
        elements,
        dtype: Dtype::F32,
        chunk,
        window: 0,
        fold: FoldRule::Exact,
        padded: false,
        long_way: false,
    };
    let time = |(fold, long_way)| {
        let run = CollectiveRun { fold, long_way, ..run.clone() };
        crate::simulate_collective(&run, &platform(world)).expect("a collective that works")
    };
    [(FoldRule::Exact, false), (FoldRule::Never, true)].map(time)
}

/// Both runs of a collective have the same result; returns whether the first was folded.
fn same([folded, whole]: [CollectiveTime; 2], what: &str) -> bool {
    assert_eq!(whole.folding, Folding::Off);
    assert!(folded.time.0.abs_diff(whole.time.0) <= 1, "{what}: {} folded, {} unfolded", folded.time, whole.time);
    assert_eq!(folded.traffic, whole.traffic, "{what}");
    let shares = |time: &CollectiveTime| time.utilisation.first().map_or(0.0, |busiest| busiest.share);
    assert!((shares(&folded) - shares(&whole)).abs() < 1e-9, "{what}: {:?}", folded.utilisation.first());
    matches!(folded.folding, Folding::Folded { .. })
}

/// A program's tasks, folded and not (and then message by message), are equal one by one; returns whether the first
/// were folded.
fn same_tasks(world: &World, program: &Program, iterations: u32, what: &str) -> bool {
    same_tasks_under(world, Conditions::none(), program, iterations, what)
}

/// The same under conditions.
fn same_tasks_under(world: &World, conditions: &Conditions, program: &Program, iterations: u32, what: &str) -> bool {
    let platform = Platform { conditions, ..platform(world) };
    let folding = SimulatedRanks::of(program, &platform, FoldRule::Exact).folded.folding;
    if !matches!(folding, Folding::Folded { .. }) {
        // Both ways are the same.
        return false;
    }
    let run = |fold: FoldRule, long_way: bool| {
        let options = SimOptions { warm_up: 0, counted: iterations, fold, long_way, ..SimOptions::default() };
        crate::simulate(program, &platform, options.driver(), &options).expect("a prediction")
    };
    let (one, other) = (run(FoldRule::Exact, false), run(FoldRule::Never, true));
    let key = |span: &&Span| (span.rank, span.iteration, span.repetition, span.task);
    let [mut a, mut b] = [&one, &other].map(|p| p.timeline.spans.iter().collect::<Vec<_>>());
    a.sort_by_key(key);
    b.sort_by_key(key);
    assert!(!a.is_empty() && a.len() == b.len(), "{what}: {} and {} tasks", a.len(), b.len());
    for (x, y) in a.into_iter().zip(b) {
        assert_eq!(key(&x), key(&y));
        for (s, t) in [(x.ready, y.ready), (x.start, y.start), (x.end, y.end)] {
            assert!(s.0.abs_diff(t.0) <= 1, "{what}: {x:?} {y:?}");
        }
    }
    assert_eq!(one.traffic, other.traffic, "{what}");
    assert_eq!(one.notes.len(), other.notes.len() + 1, "the output says how it folded");
    matches!(one.folding, Folding::Folded { .. })
}

/// 32·64 and 65·32 parameters: up to 32 ranks have equal shards.
const EVEN: &str = r#"
name = "even"
source = "a test"
input = [1, 1, 31]
layer = [
    { name = "hidden", kind = "dense", out_features = 64 },
    { kind = "relu" },
    { name = "scores", kind = "dense", out_features = 32 },
    { name = "loss", kind = "softmax_cross_entropy" },
]
"#;

/// 61·67 and 68·31 parameters: no group of ranks has equal shards.
const ODD: &str = r#"
name = "odd"
source = "a test"
input = [1, 1, 60]
layer = [
    { name = "hidden", kind = "dense", out_features = 67 },
    { kind = "relu" },
    { name = "scores", kind = "dense", out_features = 31 },
    { name = "loss", kind = "softmax_cross_entropy" },
]
"#;

/// 64·2,048 parameters: 2,048 ranks have equal shards, in up to 64 lanes.
const WIDE: &str = r#"
name = "wide"
source = "a test"
input = [1, 1, 63]
layer = [
    { name = "scores", kind = "dense", out_features = 2048 },
    { name = "loss", kind = "softmax_cross_entropy" },
]
"#;

/// The job of a model on `world`, in chunks of `chunk` bytes.
fn job(world: &World, model: &str, algorithm: &str, chunk: u64) -> Job {
    Job {
        algorithm: algorithm.parse().expect("an algorithm"),
        chunk: Some(Bytes(chunk)),
        node_sizes: Some(nodes(world)),
        concurrent_exchanges: if algorithm.starts_with("library") { 1 } else { 2 },
        ..Job::new(
            Arc::new(lockstep_readers::parse_model("even.toml", model).expect("a model")),
            world.placement.ranks(),
            8,
        )
    }
}
