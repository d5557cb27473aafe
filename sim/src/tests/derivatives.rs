//! Compares sensitivities from one simulation that carries derivatives with differences of simulations.

use lockstep_models::{Bucket, Precision};
use lockstep_topology::cluster::{Figure, LinkKind};
use proptest::prelude::*;

use super::world::tree;
use super::*;
use crate::Roofline;
use crate::answer::{
    Basis, CostParameter, OwnTime, Sensitivity, Subject, collective_derivatives, on_scaled, parameters,
};
use crate::conditions::{Conditions, Slowdown};

const OPTIONS: SimOptions = SimOptions {
    warm_up: 1,
    counted: 1,
    threads_per_rank: 1,
    fold: FoldRule::Never,
    long_way: false,
    max_spans: usize::MAX,
    ..SimOptions::SHORT
};
/// Half of the distance between the simulations of a difference, in the logarithm of the parameter.
const STEP: f64 = 1e-3;
/// The tolerance of sensitivities: the second order of a difference, and picoseconds.
const NEAR: f64 = 2e-3;

/// Compares all sensitivities of a program; returns those that were compared.
fn compare(platform: &Platform<'_>, program: &Program, options: &SimOptions) -> usize {
    let prediction = simulate(program, platform, options.driver(), options).expect("runs");
    let all = parameters(program, platform, &prediction.traffic).expect("routes");
    let step = prediction.timeline.step_time_s();
    let subject = Subject::new(program, *platform, options);
    let found = subject.derivatives(&prediction, &all).expect("runs").expect("everything is differentiated").all;
    let sum: f64 = found.iter().map(|s| if s.parameter.is_rate() { s.elasticity } else { -s.elasticity }).sum();
    assert!((sum + 1.0).abs() < 1e-3, "{sum} of {found:?}");
    let mut compared = 0;
    for one in &found {
        let at = |by: f64| {
            let times = [one.parameter];
            let factor = libm::exp(by);
            let other = subject.scaled((&[], 1.0), (&times, factor)).expect("runs");
            libm::log(other.timeline.step_time_s() / step)
        };
        let (right, left) = (at(STEP) / STEP, -at(-STEP) / STEP);
        // Where the order of events changes within a step, or at its middle, a difference is no derivative.
        let nearer = [STEP / 4.0, -STEP / 4.0].map(|by| at(by) / by);
        if [right, left, nearer[0], nearer[1]].iter().all(|one| (one - right).abs() < NEAR) {
            compared += 1;
            let difference = (right + left) / 2.0;
            assert!(
                (one.elasticity - difference).abs() < NEAR,
                "{one:?}: {left} and {right} by differences, {found:?}"
            );
        }
    }
    compared
}

fn message() -> impl Strategy<Value = MessageCost> {
    (0.0..1e-5, 0.0..1e-6, 0.0..1e-8, 0.0..1e-8, 0.0..1.0).prop_map(|(latency, overhead, copy, sum, memory)| {
        MessageCost { latency, overhead, copy, sum, memory, eager_bytes: 256, ..MessageCost::default() }
    })
}

fn jobs() -> impl Strategy<Value = (Job, Flat)> {
    let algorithm =
        prop::sample::select(vec!["ring", "halving-doubling", "parameter-server:1:dedicated", "multi-color:2"]);
    let costs = (1e-4..1e-3, 1e-4..1e-3, 0.0..1e-4, 0.0..1.0, message());
    (0u64..1000, 2u32..5, 1u32..3, 1u32..3, algorithm, any::<bool>(), costs).prop_map(
        |(seed, workers, accumulate, concurrent_exchanges, algorithm, whole, c)| {
            let model = Arc::new(lockstep_models::random_model(seed, false));
            let bucket = if whole { Bucket::Whole } else { Bucket::Layer };
            let algorithm = algorithm.parse().expect("known");
            let job = Job { accumulate, concurrent_exchanges, algorithm, bucket, ..Job::new(model, workers, 2) };
            (job, Flat { forward: c.0, backward: c.1, update: c.2, memory: c.3, message: c.4, load: 0.0 })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn derivatives_equal_finite_differences((job, costs) in jobs(), world in 0..5, alpha_beta in any::<bool>()) {
        let program = program(&job);
        let ranks = program.ranks();
        let world = match world {
            0 => World::star(ranks),
            1 => World::host(2, ranks),
            2 => World::host(ranks + 1, ranks),
            3 => World::wired(ranks, "latency = \"4us\"\nbandwidth = \"1GB/s\"\ntransmit_queue = \"1ms\""),
            _ => World::new(tree(2, 2, 2, 2), ranks, &HostingRule::PerRank),
        };
        let network = if alpha_beta { NetworkModel::AlphaBeta } else { NetworkModel::MaxMin };
        let compared = compare(&world.platform(&costs, network), &program, &OPTIONS);
        prop_assert!(compared > 4, "{compared}");
    }

    #[test]
    fn derivatives_with_data_sheets_equal_finite_differences(
        (job, _) in jobs(),
        strategy in prop::sample::select(vec!["ssgd", "zero-1", "zero-2", "zero-3"]),
        preset in prop::sample::select(vec!["ethernet-gpu-8", "dgx-h100:2", "tree"]),
        factors in prop::array::uniform7(0.97f64..1.03),
        fold in any::<bool>(),
    ) {
        let job = Job { strategy: strategy.parse().expect("known"), algorithm: "ring".parse().expect("known"), ..job };
        let program = program(&job);
        let cluster = if preset == "tree" { tree(2, 2, 2, 2) } else { Cluster::load(preset).expect("a preset") };
        // Equal figures of two kinds of link make moments coincide, and a step is not differentiable there.
        let cluster = cluster.scaled(&|figure| factors[format!("{figure:?}").len() % factors.len()]);
        let world = World::new(cluster, program.ranks(), &HostingRule::PerHost);
        let fold = if fold { FoldRule::Exact } else { FoldRule::Never };
        let compared = compare(&world.platform(&Roofline, NetworkModel::MaxMin), &program, &SimOptions { fold, ..OPTIONS });
        prop_assert!(compared > 4, "{compared}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn derivatives_of_collectives_equal_finite_differences(
        algorithm in prop::sample::select(vec!["ring", "halving-doubling", "binomial-tree", "direct", "library:nccl"]),
        preset in prop::sample::select(vec!["ethernet-gpu-8", "dgx-h100:2", "tree"]),
        elements in 1u64..100_000,
    ) {
        let algorithm: Algorithm = algorithm.parse().expect("known");
        let cluster = if preset == "tree" { tree(2, 2, 2, 2) } else { Cluster::load(preset).expect("a preset") };
        let world = World::new(cluster, 8, &HostingRule::PerHost);
        let platform = world.platform(&Roofline, NetworkModel::MaxMin);
        let run = CollectiveRun::new(Collective::AllReduce, algorithm, Group::flat(8), elements);
        let Ok(time) = simulate_collective(&run, &platform) else { return Ok(()) };
        let links = [LinkKind::Ethernet, LinkKind::InfiniBand, LinkKind::NvLink, LinkKind::Pcie];
        let figures = links.iter().flat_map(|kind| [Figure::bandwidth_of(*kind), Figure::Latency(*kind)]);
        let all: Vec<CostParameter> = figures.map(CostParameter::Cluster).collect();
        let found = collective_derivatives(&run, &platform, &time, &all).expect("runs").expect("it is differentiated");
        for one in found {
            let at = |by: f64| {
                let seconds = |platform: &Platform<'_>| Ok(simulate_collective(&run, platform)?.time.as_secs_f64());
                let times = [one.parameter];
                let other = on_scaled(&platform, (&[], 1.0), (&times, libm::exp(by)), seconds).expect("runs");
                libm::log(other / time.time.as_secs_f64())
            };
            let (right, left) = (at(STEP) / STEP, -at(-STEP) / STEP);
            let difference = (right + left) / 2.0;
            let smooth = (right - left).abs() < NEAR;
            prop_assert!(!smooth || (one.elasticity - difference).abs() < NEAR, "{one:?}: {left} and {right}");
        }
    }
}

#[test]
fn sensitivities_are_complete_for_other_precisions_and_libraries() {
    // Launches, peaks of other precisions, and the fixed times of a library: their sum is the whole step.
    for (algorithm, precision) in
        [("ring", Precision::Bf16), ("library:nccl", Precision::F32), ("library:nccl", Precision::Bf16)]
    {
        let job = Job { precision, algorithm: algorithm.parse().expect("known"), bucket: Bucket::Layer, ..mlp(16) };
        let program = program(&job);
        let world = World::new(Cluster::load("dgx-h100:2").expect("a preset"), 16, &HostingRule::PerHost);
        let compared = compare(&world.platform(&Roofline, NetworkModel::MaxMin), &program, &OPTIONS);
        assert!(compared > 4, "{algorithm} {precision}: {compared}");
    }
}

#[test]
fn the_answer_names_its_method() {
    // A ring after everything else is smooth. With a slow rank it is too, and yet every parameter has two simulations.
    let world = World::star(2);
    let costs = Flat { forward: 1e-3, backward: 1e-3, ..Flat::default() };
    let program = program(&Job { bucket: Bucket::Whole, ..mlp(2) });
    let slow = Slowdown { hosts: Vec::new(), ranks: vec![0], factor: 2.0, from: Time::ZERO, until: Time::MAX };
    for (slow, basis) in [(Vec::new(), Basis::Derivatives), (vec![slow], Basis::Differences)] {
        let conditions = Conditions { slow, ..Conditions::default() };
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        let prediction = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
        let all = parameters(&program, &platform, &prediction.traffic).expect("routes");
        let subject = Subject::new(&program, platform, &OPTIONS);
        let (found, named, _) = subject.sensitivities(&prediction, &all, || Ok(None), &mut |_, _| {}).expect("runs");
        assert_eq!(named, basis);
        let differences = subject.differences(&all, &mut |_, _| {}).expect("runs");
        for one in &found {
            let other = differences.iter().find(|other| other.parameter == one.parameter).expect("the same ones");
            assert!((one.elasticity - other.elasticity).abs() < 1e-3, "{one:?}, {other:?}");
        }
    }
}

/// Compares sensitivities of LeNet on hosts with a thread for each rank with the sums of differences; returns how they
/// were computed.
fn rugged(ranks: u32, batch: u32, bucket: Bucket) -> Basis {
    let world = World::new(Cluster::load("ethernet-4").expect("a preset"), ranks, &HostingRule::PerRank);
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("there"));
    let program = program(&Job { bucket, ..Job::new(model, ranks, batch) });
    let platform = world.platform(&Roofline, NetworkModel::MaxMin);
    let prediction = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
    let all = parameters(&program, &platform, &prediction.traffic).expect("routes");
    let subject = Subject::new(&program, platform, &OPTIONS);
    let (found, basis, options) = subject.sensitivities(&prediction, &all, || Ok(None), &mut |_, _| {}).expect("runs");
    let subject = subject.with(options);
    let faster = |s: &Sensitivity| if s.parameter.is_rate() { s.elasticity } else { -s.elasticity };
    let computes = |s: &&Sensitivity| {
        use Figure::{CpuMemory, CpuPeak};
        matches!(s.parameter, CostParameter::Own(OwnTime::Kernels) | CostParameter::Cluster(CpuPeak | CpuMemory))
    };
    let computation: f64 = found.iter().filter(computes).map(faster).sum();
    let group: Vec<CostParameter> = found.iter().filter(computes).map(|s| s.parameter).collect();
    let (rates, times): (Vec<CostParameter>, Vec<CostParameter>) = group.into_iter().partition(|one| one.is_rate());
    let at = |by: f64| {
        let predicted = subject.scaled((&rates, libm::exp(by)), (&times, libm::exp(-by))).expect("runs");
        libm::log(predicted.timeline.step_time_s())
    };
    let difference = (at(0.02) - at(-0.02)) / 0.04;
    let near = if basis == Basis::Sums { 1e-9 } else { 0.02 };
    assert!((computation - difference).abs() < near, "{basis:?}: {computation}, by differences {difference}");
    assert!((found.iter().map(faster).sum::<f64>() + 1.0).abs() < 1e-3, "{found:?}");
    basis
}

#[test]
fn discontinuous_steps_use_larger_changes() {
    // Ranks that compute and exchange on one thread: small changes let a message come before a task instead
    // of after it.
    let mut found = Vec::new();
    for ranks in 2..=4 {
        for batch in [8, 16, 32, 64] {
            found.extend(
                [Bucket::Layer, Bucket::Whole, Bucket::Size(Bytes(1 << 20))].map(|bucket| rugged(ranks, batch, bucket)),
            );
        }
    }
    assert!(found.contains(&Basis::Sums) && found.contains(&Basis::Derivatives), "{found:?}");
}
