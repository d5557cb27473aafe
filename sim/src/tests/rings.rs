//! Compares rings that are computed without events for a while with the same rings message by message.

use lockstep_models::{Bucket, CopiedBy, Input, SampleSource, random_model};
use proptest::prelude::*;

use super::world::tree;
use super::*;
use crate::{Conditions, Shortcut};

/// Hosts of one core on a switch; hosts of two GPUs on two levels of switches; one host of a core for every
/// second rank.
fn world(which: usize, ranks: u32) -> World {
    match which {
        0 => World::star(ranks),
        1 => World::new(tree(2, ranks.div_ceil(8), 2, 2), ranks, &HostingRule::PerHost),
        _ => World::host(ranks.div_ceil(2), ranks),
    }
}

/// Samples in memory with this decoding time.
fn decoded(prefetch: u32, micros: u64) -> Input {
    Input {
        samples: 1000,
        sample_bytes: Bytes(1000),
        source: SampleSource::Memory { groups: 1, shuffle_every: None },
        threads: 2,
        decode: Time::from_nanos(1000 * micros),
        decode_memory: 0.1,
        transform: Time::ZERO,
        prefetch,
        copied_by: CopiedBy::Upload,
    }
}

/// The same program on the same platform with and without shortcuts; returns how often rings were computed.
fn both(world: &World, program: &Program, costs: &Flat, input: Option<Input>) -> ([Prediction; 2], u64) {
    let conditions = Conditions { input, ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(costs, NetworkModel::MaxMin) };
    let run = |long_way| {
        let options = SimOptions { warm_up: 0, counted: 2, long_way, fold: FoldRule::Never, ..SimOptions::default() };
        simulate(program, &platform, options.driver(), &options).expect("runs")
    };
    let short = run(false);
    let times = short.shortcuts.iter().find(|used| used.shortcut == Shortcut::Rings).map_or(0, |used| used.taken);
    ([short, run(true)], times)
}

/// Spans by rank, iteration and task.
fn sorted(prediction: &Prediction) -> Vec<lockstep_models::Span> {
    let mut spans = prediction.timeline.spans.clone();
    spans.sort_by_key(|span| (span.rank, span.iteration, span.repetition, span.task));
    spans
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Times, traffic and shares equal those by events, whatever overlaps.
    #[test]
    fn rings_without_events_equal_rings_by_events(
        (seed, ranks, which) in (0u64..1000, 20u32..60, 0usize..3), (accumulate, concurrent, bucket) in (1u32..3, 1u32..3, 0usize..3),
        (forward, backward, memory) in (0.0..1e-3, 0.0..1e-3, 0.0..1.5), (latency, sum, send) in (0.0..1e-5, 0.0..1e-8, 0.0..1e-6),
        (eager_bytes, collective) in (prop_oneof![Just(0u64), Just(64), Just(1 << 20)], 0usize..2),
        (ahead, decode_us) in (prop::option::of(0u32..3), 1u64..400),
    ) {
        let mut job = Job::new(Arc::new(random_model(seed, seed % 2 == 0)), ranks, 2);
        job.strategy = ["ssgd", "zero-1"][collective].parse().expect("known");
        (job.accumulate, job.concurrent_exchanges) = (accumulate, concurrent);
        job.bucket = [Bucket::Layer, Bucket::Whole, Bucket::Size(Bytes(2048))][bucket];
        job.algorithm = "ring".parse().expect("known");
        job.ahead = ahead;
        let program = program(&job);
        let message = MessageCost { latency, sum, send, eager_bytes, ..MessageCost::default() };
        let costs = Flat { forward, backward, update: forward, memory, message, load: 0.0 };
        let input = ahead.map(|prefetch| decoded(prefetch, decode_us));
        let ([short, long], _) = both(&world(which, ranks), &program, &costs, input);
        prop_assert_eq!(&short.timeline, &long.timeline);
        prop_assert_eq!(&short.traffic, &long.traffic);
        prop_assert_eq!(short.utilisation.len(), long.utilisation.len());
        for (a, b) in short.utilisation.iter().zip(&long.utilisation) {
            prop_assert!((a.share - b.share).abs() < 1e-9, "{a:?}, {b:?}");
        }
    }
}

/// Groups of a mesh, each in its own ring, in blocks that are equal.
#[test]
fn the_rings_of_a_mesh_run_concurrently() {
    let text = "name = \"m\"\ninput = [1, 16, 16]\nlayer = [\n{ name = \"one\", kind = \"dense\", out_features = 256 },\n\
                { kind = \"relu\" },\n{ name = \"two\", kind = \"dense\", out_features = 256 },\n\
                { name = \"loss\", kind = \"softmax_cross_entropy\" },\n]\n";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).expect("a model"));
    // Hosts of one GPU on one switch, any of which may be swapped; and hosts of eight with a NIC each, four on a leaf.
    let worlds = [
        ("data=64,tensor=2", World::new(tree(1, 128, 1, 1), 128, &HostingRule::PerHost)),
        ("data=32,tensor=8", World::new(Cluster::load("dgx-h100:32").expect("a preset"), 256, &HostingRule::PerHost)),
    ];
    for (mesh, world) in &worlds {
        for (bucket, eager_bytes) in [(Bucket::Whole, 1 << 20), (Bucket::Layer, 0)] {
            let job = Job {
                strategy: "model-parallel".parse().expect("known"),
                mesh: Some(mesh.parse().expect("a mesh")),
                algorithm: "ring".parse().expect("known"),
                concurrent_exchanges: 1,
                bucket,
                ..Job::new(Arc::clone(&model), world.placement.ranks(), 8)
            };
            let message = MessageCost { sum: 1e-10, send: 2e-7, eager_bytes, ..MessageCost::default() };
            let costs = Flat { forward: 3e-5, backward: 5e-5, update: 1e-5, memory: 1.0, message, load: 0.0 };
            let program = program(&job);
            let ([short, long], times) = both(world, &program, &costs, None);
            let what = format!("{mesh}, {bucket}, {eager_bytes}");
            assert!(times >= 2, "each of two iterations has a ring at least: {times} worked out, {what}");
            assert_eq!(sorted(&short), sorted(&long), "{what}");
            assert_eq!(short.traffic, long.traffic, "{what}");
        }
    }
}
