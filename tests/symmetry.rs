//! Tests that one program, simulated and executed, sends the same messages between the same ranks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_models::{Axis, Bucket, Job, Mesh, Optimizer, Program, random_model};
use lockstep_sim::{Platform, Roofline, simulate};
use lockstep_topology::{Algorithm, Bytes, Cluster, Collective, Hosting, HostingRule, Placement, PlacementRule};
use proptest::prelude::*;

/// Steps of each run.
const STEPS: u32 = 2;

/// Messages and bytes by (from, to); pairs without messages are left out.
type Traffic = BTreeMap<(u32, u32), (u64, u64)>;

fn simulated(program: &Program) -> (Traffic, Vec<(u32, u32, u32)>) {
    let cluster = Cluster::load("workstation").unwrap();
    let placement = Placement::new(&cluster, program.ranks(), &PlacementRule::Pack).unwrap();
    let hosting = Hosting::new(&placement, &HostingRule::Single).unwrap();
    let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
    let options = lockstep_sim::SimOptions { warm_up: 0, counted: STEPS, ..Default::default() };
    let prediction = simulate(program, &platform, options.driver(), &options).unwrap();
    let pairs = prediction.traffic.pairs.iter().map(|(pair, sent)| (*pair, (sent.messages, sent.bytes)));
    (pairs.collect(), runs(&prediction.timeline))
}

fn executed(program: &Program) -> (Traffic, Vec<(u32, u32, u32)>) {
    let (train, _) = Dataset::load("synthetic:400", &program.model).unwrap();
    let stall_limit = Duration::from_secs(5);
    let optimizer = Optimizer { clip_norm: program.clips().then_some(0.5), ..Default::default() };
    let options = lockstep_exec::RunOptions { steps: STEPS, warm_up: 0, stall_limit, optimizer, ..Default::default() };
    let run = lockstep_exec::run(program, &train, &options).unwrap();
    let mut traffic = Traffic::new();
    for (from, row) in (0..).zip(&run.traffic) {
        let sent = (0..).zip(row).filter(|(_, sent)| sent.messages > 0);
        traffic.extend(sent.map(|(to, sent)| ((from, to), (sent.messages, sent.bytes))));
    }
    (traffic, runs(&run.timeline))
}

/// Each run of a task: rank, task and iteration.
fn runs(timeline: &lockstep_models::Timeline) -> Vec<(u32, u32, u32)> {
    let mut all: Vec<_> = timeline.spans.iter().map(|span| (span.rank, span.iteration, span.task)).collect();
    all.sort_unstable();
    all
}

/// All algorithms of an allreduce by messages, and forms that differ from a registry's example.
fn algorithms() -> impl Strategy<Value = Algorithm> {
    let serves = |algorithm: &Algorithm| algorithm.serves(&Collective::AllReduce) && algorithm.library().is_none();
    let forms = ["multi-color:2", "parameter-server:1:dedicated"].map(|form| form.parse().unwrap());
    proptest::sample::select(Algorithm::all().filter(serves).chain(forms).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn simulator_and_executor_send_the_same_messages(
        seed in 0u64..1000,
        workers in 1u32..6,
        batch in 1u32..4,
        accumulate in 1u32..4,
        algorithm in algorithms(),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Size(Bytes(64)))],
        chunk in prop_oneof![Just(None), Just(Some(Bytes(32)))],
        concurrent in 1u32..4,
        pad: bool,
    ) {
        let model = Arc::new(random_model(seed, false));
        let hierarchical = algorithm.by_nodes();
        let mut job = Job { accumulate, bucket, chunk, algorithm, pad, ..Job::new(model, workers, batch) };
        job.concurrent_exchanges = concurrent;
        if hierarchical {
            job.node_sizes = Some(if workers > 2 { vec![2, workers - 2] } else { vec![workers] });
        }
        let program = job.program().unwrap();
        let (one, other) = (simulated(&program), executed(&program));
        prop_assert_eq!(one.0, other.0);
        prop_assert_eq!(one.1, other.1);
    }

    /// Stages send activations and gradients across their borders, parts of layers along `tensor`, and gradients along
    /// `data`.
    #[test]
    fn pipelines_send_the_same_messages_on_both_sides(
        seed in 0u64..1000,
        (stages, data, accumulate) in (2u32..=3, 1u32..=2, 1u32..=4),
        schedule in crate::stages::schedules(),
        (strategy, tensor) in proptest::sample::select(vec![
            ("ssgd", 1), ("zero-1", 1), ("megatron", 2), ("model-parallel", 2), ("megatron:zero-1", 2), ("model-parallel:zero-1", 2),
        ]),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole)],
        along in crate::hybrid::axis_algorithms(),
        clips: bool,
    ) {
        let job = crate::stages::job(seed, false, (stages, data), (schedule, accumulate, 2));
        let mesh = job.mesh.as_ref().unwrap();
        let axes = mesh.outer_first().map(|axis| (axis, mesh.size(axis))).chain((tensor > 1).then_some((Axis::Tensor, tensor)));
        let mesh = Mesh::new(&axes.collect::<Vec<_>>()).unwrap();
        let axis_algorithms = if tensor > 1 && !strategy.contains("zero") { along } else { Default::default() };
        let job = Job { strategy: strategy.parse().unwrap(), bucket, workers: mesh.ranks(), mesh: Some(mesh), axis_algorithms, clips, ..job };
        let Ok(program) = job.program() else { return Ok(()) };
        prop_assert_eq!(simulated(&program), executed(&program));
    }

    /// Layers that ranks share pass by pass, averaged models, and tables on a node's first device.
    #[test]
    fn every_other_strategy_sends_the_same_messages_on_both_sides(
        net in crate::hybrid::nets(),
        (nodes, each, learners) in (1u32..=2, 1u32..=2, 1u32..=2),
        strategy in proptest::sample::select(vec![
            "hybrid:a", "hybrid:b", "hybrid:c", "hybrid:b:variable-batch", "model-parallel", "megatron", "first-device-table",
            "sma", "sma:tau=2", "sma:reference-models", "ea-sgd:tau=2", "local-sgd:tau=3",
        ]),
        algorithm in proptest::sample::select(vec!["ring", "direct", "hierarchical:ring"]),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole)],
        (batch, accumulate) in (1u32..=3, 1u32..=3),
    ) {
        let strategy: lockstep_models::Strategy = strategy.parse().unwrap();
        let learners = if strategy.trains_apart() { learners } else { 1 };
        let fixed = strategy.trains_apart() || ["first-device-table", "hybrid:b:variable-batch"].contains(&strategy.to_string().as_str());
        let job = Job {
            strategy, learners, bucket,
            algorithm: algorithm.parse().unwrap(),
            accumulate: if fixed { 1 } else { accumulate },
            node_sizes: Some(vec![each * learners; nodes as usize]),
            ..Job::new(net.model(), nodes * each * learners, batch)
        };
        let program = job.program().unwrap();
        prop_assert_eq!(simulated(&program), executed(&program));
    }

    /// Reduce-scatters and allgathers, after the backward pass and overlapping with it.
    #[test]
    fn shared_optimizer_state_sends_the_same_messages_on_both_sides(
        seed in 0u64..1000,
        (replicas, workers) in prop_oneof![(Just(1u32), 1u32..6), (2u32..=3, 2u32..=3)],
        strategy in proptest::sample::select(vec!["zero-1", "zero-2", "zero-3", "zero-3:prefetch=0"]),
        algorithm in proptest::sample::select(vec!["ring", "direct", "recursive-halving"]),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Size(Bytes(64)))],
        (concurrent_exchanges, accumulate) in (1u32..4, 1u32..4),
        pad: bool,
    ) {
        let (strategy, algorithm) = (strategy.parse().unwrap(), algorithm.parse().unwrap());
        let model = Arc::new(random_model(seed, false));
        let mesh = Mesh::new(&[(Axis::Data, replicas), (Axis::Device, workers)]).unwrap();
        let mesh = (replicas > 1).then_some(mesh);
        let job = Job {
            strategy, algorithm, bucket, concurrent_exchanges, accumulate, pad, mesh, ..Job::new(model, replicas * workers, 2)
        };
        let program = job.program().unwrap();
        prop_assert_eq!(simulated(&program), executed(&program));
    }
}
