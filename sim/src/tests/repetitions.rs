//! Compares shortcuts with the long way: equal micro-batches, and totals instead of spans.

use std::collections::BTreeMap;

use lockstep_models::{Bucket, Timeline, Total, Totals, random_model};
use lockstep_topology::Bytes;
use proptest::prelude::*;

use super::*;
use crate::fluid::System;
use crate::fluid::tests::SlowSystem;
use crate::{Shortcut, ShortcutUse, WhyNot, simulate_with};

/// GPUs of a host or two, hosts of one core, or a host whose cores are shared.
fn world(which: usize, ranks: u32) -> World {
    match which {
        0 => World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), ranks, &HostingRule::PerHost),
        1 => World::star(ranks),
        _ => World::host(ranks.div_ceil(2), ranks),
    }
}

fn jobs() -> impl Strategy<Value = (Job, usize, Flat, u32)> {
    let sizes = (0u64..1000, 1u32..7, 1u32..9, 1u32..4, 0usize..4, 0usize..4, 0usize..3);
    let costs = (0.0..1e-3, 0.0..1e-3, 0.0..1e-4, prop_oneof![Just(0.0), 0.0..1.5], 0.0..1e-5, 0.0..1e-8);
    (sizes, costs, 1u32..4).prop_map(
        |((seed, workers, accumulate, concurrent, algorithm, bucket, which), c, counted)| {
            let mut job = Job::new(Arc::new(random_model(seed, seed % 2 == 0)), workers, 2);
            job.accumulate = accumulate;
            job.algorithm = ["ring", "halving-doubling", "hierarchical:ring", "parameter-server:1:dedicated"]
                [algorithm]
                .parse()
                .expect("known");
            job.concurrent_exchanges = concurrent;
            job.bucket = [Bucket::Layer, Bucket::Whole, Bucket::Size(Bytes(512)), Bucket::Tensor][bucket];
            let message = MessageCost { latency: c.4, sum: c.5, eager_bytes: 256, ..MessageCost::default() };
            (job, which, Flat { forward: c.0, backward: c.1, update: c.2, memory: c.3, message, load: 0.0 }, counted)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn skipped_repetitions_equal_simulated_ones((job, which, costs, counted) in jobs()) {
        let program = program(&job);
        let world = world(which, program.ranks());
        let short = SimOptions { warm_up: 1, counted, ..SimOptions::default() };
        let long = SimOptions { long_way: true, ..short };
        let [a, b] = [short, long].map(|options| world.predict(&program, &costs, &options).expect("runs"));
        prop_assert_eq!(&a.timeline, &b.timeline);
        prop_assert_eq!(&a.traffic, &b.traffic);
        for (a, b) in a.utilisation.iter().zip(&b.utilisation) {
            prop_assert!((a.share - b.share).abs() < 1e-9, "{a:?}, {b:?}");
        }
    }

    /// The long way takes no shortcut but folding, and each shortcut that is not taken has a reason.
    #[test]
    fn shortcuts_say_why_they_are_not_taken((job, which, costs, counted) in jobs()) {
        let program = program(&job);
        let world = world(which, program.ranks());
        let short = SimOptions { warm_up: 1, counted, ..SimOptions::default() };
        for options in [short, SimOptions { long_way: true, ..short }] {
            let uses = world.predict(&program, &costs, &options).expect("runs").shortcuts;
            prop_assert_eq!(uses.iter().map(|used| used.shortcut).collect::<Vec<_>>(), Shortcut::ALL);
            for ShortcutUse { shortcut, taken, why_not } in &uses {
                prop_assert!(*taken > 0 || why_not.is_some(), "{shortcut}");
                let asked = !matches!(shortcut, Shortcut::Folding | Shortcut::Library);
                let none = matches!(why_not, Some(WhyNot::LongWay | WhyNot::NoOccasion)) && *taken == 0;
                prop_assert!(!options.long_way || !asked || none, "{shortcut}: {taken}, {why_not:?}");
            }
        }
    }

    /// Of r equal micro-batches all but the first and the last are skipped, and of n equal steps all but the first.
    #[test]
    fn one_rank_skips_all_that_is_equal(micro_batches in 1u32..9, steps in 1u32..9) {
        let job = Job { accumulate: micro_batches, ..Job::new(Arc::new(random_model(7, true)), 1, 2) };
        let options = SimOptions { warm_up: 0, counted: steps, ..SimOptions::default() };
        let costs = Flat { forward: 1e-3, backward: 2e-3, update: 1e-4, ..Flat::default() };
        let uses = World::star(1).predict(&program(&job), &costs, &options).expect("runs").shortcuts;
        let taken = |of| uses.iter().find(|used| used.shortcut == of).map(|used| used.taken);
        // One that would be the only one is simulated.
        let skipped = if micro_batches > 3 { micro_batches - 2 } else { 0 };
        prop_assert_eq!(taken(Shortcut::MicroBatches), Some(skipped.into()));
        prop_assert_eq!(taken(Shortcut::Iterations), Some((steps - 1).into()));
        prop_assert_eq!(taken(Shortcut::Ring), Some(0));
    }

    #[test]
    fn totals_equal_those_of_the_spans((job, which, costs, counted) in jobs(), limit in 0usize..200) {
        let program = program(&job);
        let world = world(which, program.ranks());
        let fold = FoldRule::Never;
        let all = SimOptions { warm_up: 1, counted, fold, ..SimOptions::default() };
        let spans = world.predict(&program, &costs, &all).expect("runs").timeline;
        let kept = world.predict(&program, &costs, &SimOptions { max_spans: limit, ..all }).expect("runs").timeline;
        if spans.spans.len() <= limit {
            prop_assert_eq!(&kept, &spans);
        } else {
            prop_assert!(kept.spans.is_empty());
            prop_assert_eq!(&kept.totals, &Totals::of(&spans.spans, &program));
        }
        prop_assert_eq!(kept.steps(), spans.steps());
        prop_assert_eq!(kept.exposed_comm_s(&program), spans.exposed_comm_s(&program));
        prop_assert_eq!(kept.seconds_by_kind(&program), spans.seconds_by_kind(&program));
        // By role and kind, summed again from the spans.
        for ((role, kind), total) in by_role_and_kind(&kept, &program, 1) {
            let counts = |span: &&lockstep_models::Span| {
                let of = program.role_of(span.rank);
                let op = &program.roles[of].tasks[span.task as usize].op;
                span.iteration >= 1 && (of, op.kind()) == (role, kind)
            };
            let mut sum = Total::default();
            spans.spans.iter().filter(counts).for_each(|span| sum.add(Total::of(span)));
            prop_assert_eq!(total, sum, "{} {}", role, kind);
        }
    }
}

/// Totals by role and kind of task, over iterations from `first` on.
fn by_role_and_kind(timeline: &Timeline, program: &Program, first: u32) -> BTreeMap<(usize, &'static str), Total> {
    let mut kinds: BTreeMap<(usize, &'static str), Total> = BTreeMap::new();
    for (_, role, task, total) in timeline.totals(program).iter().filter(|(iteration, ..)| *iteration >= first) {
        kinds.entry((role, program.roles[role].tasks[task].op.kind())).or_default().add(total);
    }
    kinds
}

#[test]
fn what_follows_a_ring_queues_behind_its_last_eager_messages() {
    // Each rank ends a ring when it has received, and sends the next ring's first message while its last one still flows.
    // Its parameters are in the first layers, so that all gradients are there when the first exchange starts.
    let model = Arc::new(random_model(96, true));
    let job = Job { bucket: Bucket::Tensor, concurrent_exchanges: 1, ..Job::new(model, 4, 2) };
    let message = MessageCost { sum: 1.5e-9, eager_bytes: 256, ..MessageCost::default() };
    let (program, costs) = (program(&job), Flat { update: 7e-5, message, ..Flat::default() });
    let [short, long] = [false, true].map(|long_way| {
        let options = SimOptions { long_way, ..SimOptions::default() };
        World::star(4).predict(&program, &costs, &options).expect("runs").timeline
    });
    assert_eq!(short, long);
}

#[test]
fn the_slow_solver_repeats_equally() {
    let costs = Flat { forward: 1e-3, backward: 2e-3, update: 1e-4, memory: 0.4, ..Flat::default() };
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 8, &HostingRule::PerHost);
    let program = program(&Job { accumulate: 7, ..mlp(8) });
    let platform = world.platform(&costs, NetworkModel::MaxMin);
    let options = SimOptions { fold: FoldRule::Never, ..SimOptions::default() };
    let fast = simulate_with(System::new(), &program, &platform, options.driver(), &options).expect("runs");
    let slow = simulate_with(SlowSystem::new(), &program, &platform, options.driver(), &options).expect("runs");
    assert_eq!(fast.timeline, slow.timeline);
}

#[test]
fn a_million_micro_batches_simulate_as_fast_as_three() {
    // A million micro-batches: one by one this would take minutes and 40 MB of spans for each task.
    let costs = Flat { forward: 1e-6, backward: 2e-6, ..Flat::default() };
    let program = program(&Job { accumulate: 1_000_000, ..mlp(2) });
    let world = World::star(2);
    let options = SimOptions { warm_up: 0, counted: 1, ..SimOptions::default() };
    let timeline = world.predict(&program, &costs, &options).expect("runs").timeline;
    assert!(timeline.spans.is_empty());
    let kinds = by_role_and_kind(&timeline, &program, 0);
    let forward = kinds[&(0, "forward")];
    let layers = forward.runs / 2_000_000;
    assert!(layers > 0 && forward.runs == layers * 2_000_000, "each rank, each micro-batch: {}", forward.runs);
    assert_eq!(forward.busy_ps, u128::from(forward.runs) * 1_000_000, "a microsecond each");
    assert!(timeline.step_time_s() > 1e6 * layers as f64 * 3e-6 * 0.9);
}

/// What a platform may do to iterations: handshakes, windows that grow, links that are not shared.
fn platforms() -> impl Strategy<Value = (usize, NetworkModel)> {
    (0usize..5, prop_oneof![Just(NetworkModel::MaxMin), Just(NetworkModel::AlphaBeta)])
}

/// Those of `world`, and hosts whose connections start slowly, or are idle for long between exchanges.
fn networked(which: usize, ranks: u32) -> World {
    match which {
        3 | 4 => {
            let latency = if which == 3 { "40us" } else { "150ms" };
            let keys = "bandwidth = \"1GB/s\"\nprotocol = \"tcp\"\nslow_start = \"100B\"\nincast_senders = 2\nincast_goodput = 0.5";
            World::wired(ranks, &format!("latency = \"{latency}\"\n{keys}"))
        }
        which => world(which, ranks),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn skipped_iterations_equal_simulated_ones(
        (job, _, costs, counted) in jobs(), (which, network) in platforms(), more in 0u32..9, limit in 0usize..2000,
    ) {
        let program = program(&job);
        let world = networked(which, program.ranks());
        let short = SimOptions { warm_up: 1, counted: counted + more, max_spans: 10 * limit, ..SimOptions::default() };
        let [a, b] = [false, true].map(|long_way| {
            let options = SimOptions { long_way, ..short };
            simulate(&program, &world.platform(&costs, network), options.driver(), &options).expect("runs")
        });
        prop_assert_eq!(&a.timeline, &b.timeline);
        prop_assert_eq!(&a.traffic, &b.traffic);
        for (a, b) in a.utilisation.iter().zip(&b.utilisation) {
            prop_assert!((a.share - b.share).abs() < 1e-9, "{a:?}, {b:?}");
        }
    }
}

#[test]
fn ten_thousand_iterations_simulate_as_fast_as_a_few() {
    // 2·31·32 messages for each bucket of each iteration: one by one they would take minutes.
    let costs = Flat { forward: 1e-6, backward: 2e-6, ..Flat::default() };
    let program = program(&Job { algorithm: "ring".parse().expect("known"), ..mlp(32) });
    let world = World::star(32);
    let options = SimOptions { warm_up: 0, counted: 10_000, fold: FoldRule::Never, ..SimOptions::default() };
    let prediction = world.predict(&program, &costs, &options).expect("runs");
    let few = SimOptions { counted: 4, ..options };
    let once = world.predict(&program, &costs, &few).expect("runs");
    assert_eq!(prediction.traffic.total().messages, once.traffic.total().messages / 4 * 10_000);
    assert_eq!(prediction.timeline.steps().len(), 9_999);
    assert_eq!(prediction.timeline.step_time_s(), once.timeline.step_time_s());
}
