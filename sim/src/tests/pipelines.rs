//! Compares rings by recurrence with rings message by message, to the picosecond, wherever the one replaces the other.

use lockstep_models::{Bucket, Driver, random_model};
use lockstep_topology::{Dtype, Schedule};
use proptest::prelude::*;

use super::*;
use crate::engine::Engine;
use crate::fluid::System;
use crate::machine::Resources;
use crate::noise::Noise;
use crate::orbits::Orbits;
use crate::plan::Plan;
use crate::{Shortcut, SimError, WhyNot};
use lockstep_models::profile::NoiseTrace;

/// Costs that differ from receiver to receiver.
#[derive(Debug, Clone)]
struct Uneven {
    flat: Flat,
    noise: Option<Noise>,
}

impl Costs for Uneven {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        let cost = self.flat.compute(device, program, chain, phase, samples);
        Cost { seconds: cost.seconds * (1.0 + 0.3 * f64::from(device.id.0 % 5)), ..cost }
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.flat.update(device, elements)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.flat.load(device, program, samples)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        let cost = self.flat.message(pair, receiver, route);
        let factor = 1.0 + 0.01 * f64::from(receiver.id.0 % 7);
        MessageCost { overhead: cost.overhead * factor, sum: cost.sum * factor, copy: cost.copy * factor, ..cost }
    }

    fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }

    /// Enough that kernels are affected.
    fn traffic(&self, _: &Device) -> f64 {
        1e-10
    }
}

/// Hosts of some cores, or of two GPUs, on a switch; each link has its own latency (ns) and rate (MB/s).
fn star(cores: u32, gpus: bool, links: &[(u32, u32)], keys: &str) -> World {
    let mut text = format!(
        "name = \"star\"\nprovenance = \"assumed: a test\"\n[[host]]\nname = \"node\"\ncount = {}\n[host.cpu]\n\
         cores = {cores}\nflops_per_core = \"1TFLOP/s\"\nmemory_bandwidth = \"100GB/s\"\nmemory = \"16GiB\"\n\
         message_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n",
        links.len()
    );
    if gpus {
        text += "[[host.gpu]]\nname = \"gpu\"\ncount = 2\nmodel = \"v100-sxm2\"\n[[host.link]]\nkind = \"pcie\"\n\
                 between = [\"cpu\", \"gpu*\"]\nlatency = \"700ns\"\nbandwidth = \"15GB/s\"\n";
    }
    text += "[[switch]]\nname = \"switch\"\n";
    for (node, (latency, rate)) in links.iter().enumerate() {
        text += &format!(
            "[[link]]\nkind = \"ethernet\"\nbetween = [\"node{node}.cpu\", \"switch\"]\nlatency = \"{latency}ns\"\n\
             bandwidth = \"{rate}MB/s\"\n{keys}\n"
        );
    }
    let ranks = links.len() as u32 * if gpus { 2 } else { cores };
    World::new(Cluster::parse("star.toml", &text).expect("a cluster"), ranks, &HostingRule::PerHost)
}

/// The arguments of [`star`].
type Star = (u32, bool, Vec<(u32, u32)>, &'static str);

fn stars() -> impl Strategy<Value = Star> {
    let links = prop::collection::vec((0u32..20_000, prop_oneof![Just(1000u32), 900u32..1100, 1u32..4]), 1..7);
    let keys = prop_oneof![
        Just("protocol = \"plain\""),
        Just("protocol = \"plain\"\neager = \"0B\""),
        Just("protocol = \"plain\"\neager = \"40B\"\nsend_overhead = \"1us\""),
        Just("protocol = \"plain\"\neager = \"0B\"\nsend_overhead = \"1us\""),
        Just("protocol = \"plain\"\neager = \"0B\"\nrendezvous = \"read\"\nsend_overhead = \"1us\""),
        Just("protocol = \"plain\"\neager = \"0B\"\nrendezvous = \"write\""),
        Just("protocol = \"plain\"\neager = \"0B\"\nrendezvous = \"stream\"\nsend_overhead = \"1us\""),
        Just("protocol = \"plain\"\nslow_start = \"100B\""),
        Just("protocol = \"plain\"\ntransmit_queue = \"1us\""),
        Just("protocol = \"plain\"\nburst = \"2000B\"\nburst_bandwidth = \"2000GB/s\"\nburst_at_once = \"100B\""),
        Just("protocol = \"tcp\""),
        Just("protocol = \"infiniband\""),
    ];
    (1u32..4, any::<bool>(), links, keys)
}

fn costs() -> impl Strategy<Value = Uneven> {
    let zero = |most: f64| prop_oneof![Just(0.0), 0.0..most];
    let sizes = prop_oneof![Just(0u64), Just(60), Just(u64::MAX)];
    let rendezvous = prop_oneof![Just("none"), Just("read"), Just("write"), Just("stream")];
    let message = (zero(1e-5), zero(1e-5), zero(1e-8), zero(1e-8), sizes, zero(2e-6), rendezvous);
    let work = (zero(1e-4), zero(1e-4), zero(1e-5), prop_oneof![Just(0.0), 0.0..0.6]);
    (message, work).prop_map(|((latency, overhead, copy, sum, eager_bytes, send, rendezvous), c)| {
        let rendezvous = rendezvous.parse().expect("known");
        let message =
            MessageCost { latency, overhead, copy, sum, eager_bytes, send, rendezvous, ..MessageCost::default() };
        let flat = Flat { forward: c.0, backward: c.1, update: c.2, memory: c.3, message, load: 0.0 };
        Uneven { flat, noise: None }
    })
}

fn rings() -> impl Strategy<Value = (Collective, &'static str)> {
    prop_oneof![
        3 => Just((Collective::AllReduce, "ring")),
        1 => Just((Collective::ReduceScatter, "ring")),
        1 => Just((Collective::AllGather, "ring")),
        1 => Just((Collective::AllReduce, "library:mpi")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn collectives_by_recurrence_equal_those_by_events(
        (cores, gpus, links, keys) in stars(),
        costs in costs(),
        (collective, algorithm) in rings(),
        elements in prop_oneof![0u64..60, 60u64..5_000],
        lanes in prop_oneof![3 => Just(1u64), 1 => 1u64..4],
        network in prop_oneof![3 => Just(NetworkModel::MaxMin), 1 => Just(NetworkModel::AlphaBeta)],
    ) {
        let world = star(cores, gpus, &links, keys);
        let run = CollectiveRun {
            collective,
            algorithm: algorithm.parse().expect("known"),
            group: Group::flat(world.placement.ranks()),
            elements,
            dtype: Dtype::F32,
            chunk: if lanes == 1 { 0 } else { elements.div_ceil(lanes) },
            window: 0,
            fold: FoldRule::Never,
            padded: false,
            long_way: false,
        };
        let platform = world.platform(&costs, network);
        let short = simulate_collective(&run, &platform).expect("runs");
        let long = simulate_collective(&CollectiveRun { long_way: true, ..run }, &platform).expect("runs");
        prop_assert_eq!(short.time, long.time);
        prop_assert_eq!(&short.traffic, &long.traffic);
        let sorted = |time: &CollectiveTime| {
            let mut used: Vec<_> = time.utilisation.iter().map(|used| (used.resource.clone(), used.share)).collect();
            used.sort_by(|a, b| a.0.cmp(&b.0));
            used
        };
        for (a, b) in sorted(&short).iter().zip(&sorted(&long)) {
            prop_assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-9, "{a:?} {b:?}");
        }
    }

    /// Task by task on every rank: members start at different times, and one exchange follows on the other.
    #[test]
    fn programs_by_recurrence_equal_those_by_events(
        (cores, gpus, links, keys) in stars(),
        costs in costs(),
        (seed, accumulate, whole) in (0u64..1000, 1u32..3, prop::bool::weighted(0.8)),
        fold in prop_oneof![Just(FoldRule::Never), Just(FoldRule::Exact)],
    ) {
        let world = star(cores, gpus, &links, keys);
        let ranks = world.placement.ranks();
        let mut job = Job::new(Arc::new(random_model(seed, seed % 2 == 0)), ranks, 2);
        job.accumulate = accumulate;
        job.algorithm = Algorithm::ring();
        job.bucket = if whole { Bucket::Whole } else { Bucket::Layer };
        let program = program(&job);
        let platform = world.platform(&costs, NetworkModel::MaxMin);
        let short = SimOptions { warm_up: 1, counted: 3, fold, ..SimOptions::default() };
        let long = SimOptions { long_way: true, ..short };
        let [a, b] = [short, long].map(|options| simulate(&program, &platform, options.driver(), &options).expect("runs"));
        prop_assert_eq!(&a.timeline, &b.timeline);
        prop_assert_eq!(&a.traffic, &b.traffic);
    }
}

/// Why an allreduce does not run as a ring without events; `None` if it does.
fn refused(
    world: &World,
    costs: &dyn Costs,
    algorithm: &str,
    elements: u64,
    chunk: u64,
) -> Result<Option<WhyNot>, SimError> {
    let group = Group::flat(world.placement.ranks());
    let algorithm: Algorithm = algorithm.parse().expect("an algorithm");
    let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, elements, chunk)?;
    let window = schedule.window();
    let plan = Plan::of_collective("allreduce".into(), &algorithm, schedule, window);
    let platform = world.platform(costs, NetworkModel::MaxMin);
    let resources = Resources::new(&platform, System::new(), Orbits::all());
    let jobs = vec![0; plan.ranks() as usize];
    let outcome = Engine::new(&plan, Driver::fixed(1), resources, vec![vec![None]], &jobs).run(0)?;
    let mut uses = outcome.shortcuts.into_iter();
    let ring = uses.find(|used| used.shortcut == Shortcut::Ring).expect("each shortcut is listed");
    assert_eq!(ring.taken, u64::from(ring.why_not.is_none()), "{ring}");
    Ok(ring.why_not)
}

#[test]
fn unshared_resources_need_no_events() {
    let links = [(1000, 1000), (2000, 990), (1500, 1010), (900, 1003)];
    let plain = "protocol = \"plain\"";
    let costs = Uneven { flat: Flat::default(), noise: None };
    let case = |world: &World, elements| refused(world, &costs, "ring", elements, 0).expect("a ring");
    assert_eq!(case(&star(1, false, &links, plain), 4000), None);
    assert_eq!(case(&star(1, false, &links, plain), 4003), None, "blocks of two lengths");
    assert_eq!(case(&star(3, false, &links, plain), 4000), None, "in the memory of hosts and between them");
    assert_eq!(case(&star(1, true, &links, plain), 4000), None, "GPUs pass messages on through their hosts");
    // What may make one message wait for another, or take longer than it:
    assert_eq!(case(&star(1, false, &links, plain), 3), Some(WhyNot::NoRing), "empty blocks");
    let slow = star(1, false, &links, &format!("{plain}\nslow_start = \"100B\""));
    assert_eq!(case(&slow, 4000), Some(WhyNot::MessagesVary), "windows that grow");
    let half = star(1, false, &links[..2], &format!("{plain}\nduplex = \"half\""));
    assert_eq!(case(&half, 4000), Some(WhyNot::Shared), "one wire both ways");
    let of = |algorithm, chunk| refused(&star(1, false, &links, plain), &costs, algorithm, 4000, chunk).expect("works");
    assert_eq!(of("ring", 2000), Some(WhyNot::NoRing), "two lanes");
    assert_eq!(of("halving-doubling", 0), Some(WhyNot::NoRing));
    let message = MessageCost { eager_bytes: 4004, ..MessageCost::default() };
    let eager = Uneven { flat: Flat { message, ..Flat::default() }, noise: None };
    let with = |costs, elements| refused(&star(1, false, &links, plain), costs, "ring", elements, 0).expect("a ring");
    assert_eq!(with(&eager, 4005), Some(WhyNot::MessagesVary), "eager or not");
    let trace = NoiseTrace { slice_s: 1.0, alone: vec![1.0], together: vec![vec![1.0]] };
    let noisy = Uneven { flat: Flat::default(), noise: Noise::new(trace, 1) };
    assert_eq!(with(&noisy, 4000), Some(WhyNot::Noise));
}
