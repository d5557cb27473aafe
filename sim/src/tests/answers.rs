//! Tests bounds, paths, sensitivities and memory of small programs, by hand and by general properties.

use lockstep_models::{Bucket, CriticalPath, overlap};
use lockstep_topology::cluster::{Figure, LinkKind};
use lockstep_topology::{Algorithm, Collective, Dtype, Group};
use proptest::prelude::*;

use super::*;
use crate::Roofline;
use crate::answer::{
    CostParameter, Hiding, LATENCY, OwnTime, Sensitivity, Subject, bound, collective_bound, collective_sensitivities,
    computation, fullest_device, hiding, parameters,
};
use crate::collective::{CollectiveRun, simulate_collective};

const OPTIONS: SimOptions = SimOptions {
    warm_up: 1,
    counted: 3,
    threads_per_rank: 1,
    fold: FoldRule::Never,
    long_way: false,
    max_spans: usize::MAX,
    ..SimOptions::SHORT
};

/// All rates that time is divided by, and all times that it is a sum of.
fn euler(all: &[Sensitivity]) -> f64 {
    all.iter().map(|s| if s.parameter.is_rate() { s.elasticity } else { -s.elasticity }).sum()
}

fn of(all: &[Sensitivity], parameter: CostParameter) -> f64 {
    all.iter().find(|s| s.parameter == parameter).map_or(0.0, |s| s.elasticity)
}

/// Prediction, parameters and sensitivities of a program.
fn explain(world: &World, costs: &dyn Costs, program: &Program) -> (Prediction, Vec<CostParameter>, Vec<Sensitivity>) {
    let platform = world.platform(costs, NetworkModel::MaxMin);
    let prediction = simulate(program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
    let parameters = parameters(program, &platform, &prediction.traffic).expect("routes");
    let subject = Subject::new(program, platform, &OPTIONS);
    let all = subject.differences(&parameters, &mut |_, _| {}).expect("runs");
    (prediction, parameters, all)
}

const ETHERNET: CostParameter = CostParameter::Cluster(Figure::Bandwidth(LinkKind::Ethernet));

#[test]
fn a_ring_on_a_star_by_hand() {
    // Nothing computes: two rounds of 10 µs and half of the bytes at 1 GB/s each; 2 µs of the latency are PCIe's.
    let world = World::star(2);
    let program = program(&Job { bucket: Bucket::Whole, ..mlp(2) });
    let bytes = program.model.parameter_elements() as f64 * 4.0;
    let (rounds, wire) = (2.0 * 10e-6, bytes * 1e-9);
    let (prediction, _, all) = explain(&world, &Flat::default(), &program);
    assert_close(prediction.timeline.step_time_s(), rounds + wire, "the step");
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-3, "{found} instead of {expected}");
    close(of(&all, ETHERNET), -wire / (rounds + wire));
    close(of(&all, CostParameter::Cluster(Figure::Latency(LinkKind::Ethernet))), 0.8 * rounds / (rounds + wire));
    close(of(&all, CostParameter::Cluster(Figure::Latency(LinkKind::Pcie))), 0.2 * rounds / (rounds + wire));
    close(of(&all, CostParameter::Cluster(Figure::Bandwidth(LinkKind::Pcie))), 0.0);
    close(euler(&all), -1.0);
    let costs = Flat::default();
    let bound = bound(&program, &world.platform(&costs, NetworkModel::MaxMin), &OPTIONS, &prediction);
    // Each direction of each wire carries all bytes.
    let (by, expected) = if wire > rounds { ("node", wire) } else { (LATENCY, rounds) };
    assert!(bound.by.starts_with(by), "{bound:?}");
    assert_close(bound.share, expected / (rounds + wire), "share of the bound");
    assert_close(bound.latency, rounds / (rounds + wire), "latency");
    assert_eq!(bound.imbalance, 0.0);
}

#[test]
fn a_collective_alone_by_hand() {
    // Two members, each round 10 µs and half of the bytes at 1 GB/s, as in the step above.
    let world = World::star(2);
    let costs = Flat::default();
    let platform = world.platform(&costs, NetworkModel::MaxMin);
    let answers = |elements: u64| {
        let run = CollectiveRun {
            collective: Collective::AllReduce,
            algorithm: Algorithm::ring(),
            group: Group::flat(2),
            elements,
            dtype: Dtype::F32,
            chunk: 0,
            window: 0,
            fold: FoldRule::Never,
            padded: false,
            long_way: false,
        };
        let time = simulate_collective(&run, &platform).expect("runs");
        let all = collective_sensitivities(&run, &platform, &time, &mut |_, _| {}).expect("runs");
        let (rounds, wire) = (2.0 * 10e-6, elements as f64 * 4e-9);
        assert_close(time.time.as_secs_f64(), rounds + wire, "the ring");
        assert!((of(&all, ETHERNET) + wire / (rounds + wire)).abs() < 1e-3, "{all:?}");
        assert!((euler(&all) + 1.0).abs() < 1e-3, "{all:?}");
        assert!(!all.iter().any(|s| s.parameter == CostParameter::Own(OwnTime::Kernels)), "nothing computes");
        let bound = collective_bound(&world.cluster, &time);
        assert!((bound.latency - rounds / (rounds + wire)).abs() < 1e-3, "{bound:?}");
        bound.by
    };
    // 4 ms on the wire against 20 µs of latencies, and 4 ns.
    assert!(answers(1_000_000).contains("node"));
    assert_eq!(answers(2), LATENCY);
}

#[test]
fn threads_that_compute_all_the_time_bound_the_step() {
    let costs = Flat { forward: 1e-3, backward: 2e-3, update: 5e-4, ..Flat::default() };
    for (cores, name) in [(2, "host.cpu cores"), (8, "host.cpu cores (2 of 8 in use)")] {
        let world = World::host(cores, 2);
        let program = program(&mlp(2));
        let prediction = world.predict(&program, &costs, &OPTIONS).expect("runs");
        let bound = bound(&program, &world.platform(&costs, NetworkModel::MaxMin), &OPTIONS, &prediction);
        assert_eq!(bound.by, name);
        assert_close(bound.share, 1.0, "both threads all the time");
        assert_close(prediction.utilisation[0].share, 2.0 / f64::from(cores), "of all cores");
    }
}

#[test]
fn hidden_communication_does_not_matter_and_is_reported() {
    // Backward passes of a second each: what is exposed is the last bucket's exchange alone.
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 8, &HostingRule::PerHost);
    let costs = Flat { forward: 1.0, backward: 1.0, ..Flat::default() };
    let program = program(&Job {
        bucket: Bucket::Layer,
        ..Job::new(Arc::new(lockstep_readers::load_model("lenet").expect("there")), 8, 8)
    });
    let (prediction, parameters, all) = explain(&world, &costs, &program);
    assert!(of(&all, ETHERNET).abs() < 1e-3);
    assert!((of(&all, CostParameter::Own(OwnTime::Kernels)) - 1.0).abs() < 1e-3);
    let platform = world.platform(&costs, NetworkModel::MaxMin);
    let by = bound(&program, &platform, &OPTIONS, &prediction);
    assert!(by.by.ends_with("multiprocessors") && by.share > 0.99, "{by:?}");
    let Hiding { factor, links, simple, .. } =
        hiding(&Subject::new(&program, platform, &OPTIONS), &prediction, &parameters, &mut |_| {}).expect("runs");
    assert!(factor.is_some_and(|factor| factor < 1.0), "{factor:?}");
    assert!(links.iter().any(|(kind, rate)| *kind == LinkKind::Ethernet && rate.bytes_per_s() == 3.125e9));
    // Four chains of LeNet run backward, and the loss: five seconds for twice the bytes of the weights.
    let bytes = program.model.parameter_elements() as f64 * 4.0;
    assert_close(simple.expect("there is an exchange").bytes_per_s(), 2.0 * bytes / 5.0, "the simple case");
}

#[test]
fn at_the_hiding_bandwidth_one_percent_is_exposed() {
    // One exchange after everything else: exposed are 20 µs and bytes/bandwidth of a step that computes for c seconds.
    let world = World::star(2);
    let costs = Flat { forward: 5e-3, backward: 5e-3, ..Flat::default() };
    let program = program(&Job { bucket: Bucket::Whole, ..mlp(2) });
    let (prediction, parameters, _) = explain(&world, &costs, &program);
    let platform = world.platform(&costs, NetworkModel::MaxMin);
    let found =
        hiding(&Subject::new(&program, platform, &OPTIONS), &prediction, &parameters, &mut |_| {}).expect("runs");
    let (bytes, step) = (program.model.parameter_elements() as f64 * 4.0, prediction.timeline.step_time_s());
    let computed = step - 20e-6 - bytes * 1e-9;
    let factor = bytes * 1e-9 / (computed / 99.0 - 20e-6);
    assert!((found.factor.expect("some bandwidth") / factor - 1.0).abs() < 0.015, "{found:?}, by hand {factor}");
}

#[test]
fn computation_alone_is_that_of_one_rank() {
    // Ranks of data-parallel training compute what one rank does; NCCL's kernels take multiprocessors from it.
    let job = |ranks, algorithm: &str| Job {
        bucket: Bucket::Layer,
        algorithm: algorithm.parse().expect("known"),
        ..Job::new(Arc::new(lockstep_readers::load_model("resnet-50").expect("there")), ranks, 32)
    };
    let found = |ranks, algorithm: &str| {
        let world = World::new(Cluster::load("dgx-a100").expect("a preset"), ranks, &HostingRule::PerHost);
        let program = program(&job(ranks, algorithm));
        let platform = world.platform(&Roofline, NetworkModel::MaxMin);
        let prediction = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
        computation(&Subject::new(&program, platform, &OPTIONS), &prediction).expect("runs")
    };
    let one = found(1, "ring");
    assert_eq!(one.seconds, one.alone_s);
    for algorithm in ["ring", "library:nccl"] {
        let eight = found(8, algorithm);
        assert_close(eight.alone_s, one.seconds, "computation without communication");
        assert!(eight.seconds > 1.001 * eight.alone_s, "{algorithm}: {eight:?}");
    }
}

#[test]
fn scaling_everything_scales_time() {
    // Twice every rate and half of every time: half of the step, to the rounding of picoseconds.
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 8, &HostingRule::PerHost);
    for bucket in [Bucket::Layer, Bucket::Whole] {
        let program = program(&Job { bucket, ..mlp(8) });
        let platform = world.platform(&Roofline, NetworkModel::MaxMin);
        let prediction = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
        let all = parameters(&program, &platform, &prediction.traffic).expect("routes");
        let (rates, times): (Vec<CostParameter>, Vec<CostParameter>) =
            all.iter().partition(|parameter| parameter.is_rate());
        let subject = Subject::new(&program, platform, &OPTIONS);
        let faster = subject.scaled((&rates, 2.0), (&times, 0.5)).expect("runs");
        let faster = faster.timeline.step_time_s();
        let step = prediction.timeline.step_time_s();
        assert!((2.0 * faster / step - 1.0).abs() < 1e-6, "{faster} is not half of {step}");
    }
}

#[test]
fn memory_of_the_fullest_device() {
    let world = World::host(2, 4);
    let program = program(&mlp(4));
    let fullest = fullest_device(&program, &world.cluster, &world.placement, 1).expect("a schedule");
    let one = lockstep_models::memory::Memory::of_role(&program, 0, 1).expect("a schedule");
    assert_eq!((fullest.ranks, fullest.memory.total()), (4, 4 * one.total()));
    assert_eq!((fullest.capacity, fullest.fits()), (Some(Bytes(1 << 34)), Some(true)));
}

fn jobs() -> impl Strategy<Value = (Job, Flat, bool)> {
    let costs = (1e-4..1e-3, 1e-4..1e-3, 0.0..1e-4, 0.0..1.0, 0.0..1e-5, 0.0..1e-6, 0.0..1e-8);
    let algorithm =
        prop::sample::select(vec!["ring", "halving-doubling", "parameter-server:1:dedicated", "multi-color:2"]);
    (0u64..1000, 1u32..5, 1u32..3, 1u32..3, algorithm, any::<bool>(), any::<bool>(), costs).prop_map(
        |(seed, workers, accumulate, concurrent_exchanges, algorithm, whole, star, c)| {
            let model = Arc::new(lockstep_models::random_model(seed, false));
            let bucket = if whole { Bucket::Whole } else { Bucket::Layer };
            let algorithm = algorithm.parse().expect("known");
            let job = Job { accumulate, concurrent_exchanges, algorithm, bucket, ..Job::new(model, workers, 2) };
            let message = MessageCost {
                latency: c.4,
                overhead: c.5,
                copy: c.6,
                sum: c.6,
                memory: 0.5,
                eager_bytes: 256,
                ..MessageCost::default()
            };
            (job, Flat { forward: c.0, backward: c.1, update: c.2, memory: c.3, message, load: 0.0 }, star)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn paths_add_up_to_every_step((job, costs, star) in jobs()) {
        let program = program(&job);
        let world = if star { World::star(program.ranks()) } else { World::host(2, program.ranks()) };
        let prediction = world.predict(&program, &costs, &OPTIONS).expect("runs");
        for step in prediction.timeline.steps() {
            let path = CriticalPath::of(&program, &prediction.timeline, step);
            let mut at = step.begin;
            for segment in &path.segments {
                prop_assert_eq!(segment.begin, at);
                prop_assert!(segment.end > segment.begin);
                at = segment.end;
            }
            prop_assert_eq!(at, step.end);
            prop_assert_eq!(path.time_by_kind(&program).into_values().sum::<Time>(), step.end - step.begin);
            // Nothing but tasks and messages takes time here.
            prop_assert!(!path.time_by_kind(&program).contains_key("wait"), "{path:?}");
        }
        let exchanges = overlap::exchanges(&program, &prediction.timeline);
        let exposed: f64 = exchanges.iter().map(|exchange| exchange.exposed_s).sum();
        let mean = prediction.timeline.step_times_s().iter().sum::<f64>() / 3.0;
        prop_assert!(exposed <= mean * (1.0 + 1e-9), "{exposed} of {mean}");
        for exchange in exchanges {
            prop_assert!(exchange.hidden_s + exchange.exposed_s <= exchange.seconds * (1.0 + 1e-9) + 1e-15);
        }
        let bound = bound(&program, &world.platform(&costs, NetworkModel::MaxMin), &OPTIONS, &prediction);
        prop_assert!((0.0..=1.0).contains(&bound.share), "{bound:?}");
    }
}

#[test]
fn sensitivities_obey_euler() {
    // Ranks of a GPU handle messages beside their kernels, so that nothing jumps.
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 8, &HostingRule::PerHost);
    for (model, bucket, batch) in [("lenet", Bucket::Layer, 64), ("lenet", Bucket::Whole, 8), ("mlp", Bucket::Layer, 8)]
    {
        let program = program(&Job {
            bucket,
            ..Job::new(Arc::new(lockstep_readers::load_model(model).expect("there")), 8, batch)
        });
        let (_, _, all) = explain(&world, &Roofline, &program);
        assert!((euler(&all) + 1.0).abs() < 0.01, "{model} {bucket}: {} of {all:?}", euler(&all));
    }
}
