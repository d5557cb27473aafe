//! Tests slow ranks and background traffic in a run against closed forms: which times change, by how much,
//! and which stay.

use lockstep_topology::Dtype;
use lockstep_topology::cluster::{DeviceId, HostId};

use super::*;
use crate::{Background, Conditions, Load, Slowdown};

/// Nothing comes after the exchange, so ranks begin each step together.
fn costs() -> Flat {
    Flat { forward: 1e-3, backward: 2e-3, ..Flat::default() }
}

fn predict(world: &World, ranks: u32, options: &SimOptions, conditions: &Conditions) -> Prediction {
    let costs = costs();
    let platform = Platform { conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    simulate(&program(&mlp(ranks)), &platform, options.driver(), options).expect("runs")
}

fn slow(hosts: &[u32], ranks: &[u32], factor: f64, from: Time, until: Time) -> Slowdown {
    Slowdown { hosts: hosts.iter().copied().map(HostId).collect(), ranks: ranks.to_vec(), factor, from, until }
}

fn under(slow: Vec<Slowdown>) -> Conditions {
    Conditions { slow, ..Conditions::default() }
}

#[test]
fn a_compute_step_slows_down_as_much_as_its_slowest_rank() {
    let (world, options) = (World::host(4, 4), SimOptions::default());
    let still = predict(&world, 4, &options, Conditions::none()).timeline.step_time_s();
    let always = |hosts: &[u32], ranks: &[u32], factor| slow(hosts, ranks, factor, Time::ZERO, Time::MAX);
    for (entries, expected) in [
        (vec![always(&[], &[2], 1.7)], 1.7),
        (vec![always(&[0], &[], 2.5)], 2.5),
        (vec![always(&[], &[1], 1.5), always(&[], &[3], 1.2)], 1.5),
        (vec![always(&[0], &[], 2.0), always(&[], &[0], 1.5)], 3.0),
        (vec![always(&[1], &[9], 5.0)], 1.0),
    ] {
        let step = predict(&world, 4, &options, &under(entries)).timeline.step_time_s();
        assert_close(step, expected * still, "the slowest");
    }
}

#[test]
fn running_work_slows_down_from_that_moment() {
    // At half the pace from 1/4 to 3/4 of the time T: of T's work 1/4 is done before, 1/4 within, and 1/2 after: 1.25
    // T. On a single core that two ranks share as on one each.
    let options = SimOptions { warm_up: 0, counted: 1, ..SimOptions::default() };
    for (cores, ranks) in [(1, 1), (2, 2), (1, 2)] {
        let world = World::host(cores, ranks);
        let end = |conditions: &Conditions| {
            let spans = predict(&world, ranks, &options, conditions).timeline.spans;
            spans.iter().map(|span| span.end).max().expect("spans")
        };
        let whole = end(Conditions::none());
        let slowed = end(&under(vec![slow(&[0], &[], 2.0, Time(whole.0 / 4), Time(3 * whole.0 / 4))]));
        assert_close(slowed.as_secs_f64(), 1.25 * whole.as_secs_f64(), "slower for a while");
    }
}

#[test]
fn a_factor_of_one_changes_no_picosecond() {
    let (world, options) = (World::star(4), SimOptions { warm_up: 1, counted: 2, ..SimOptions::default() });
    let still = predict(&world, 4, &options, Conditions::none());
    let middle = Time(still.timeline.spans[3].start.0 + 1_234_567);
    let same = predict(&world, 4, &options, &under(vec![slow(&[0, 1], &[], 1.0, middle, Time::MAX)]));
    assert_eq!(same.timeline, still.timeline);
    assert_eq!(same.traffic, still.traffic);
    assert!(same.folding.to_string().contains("some ranks are slow"), "{}", same.folding);
}

/// Seconds of a ring's allreduce of 4 MB among four hosts, with flows from each host to the next.
fn ring(load: Load) -> f64 {
    let flow = |host| Background { from: DeviceId(host), to: DeviceId((host + 1) % 4), load };
    let conditions = Conditions { background: (0..4).map(flow).collect(), ..Conditions::default() };
    ring_on(&World::star(4), &conditions)
}

/// The same in another world.
fn ring_on(world: &World, conditions: &Conditions) -> f64 {
    let run = CollectiveRun {
        collective: Collective::AllReduce,
        algorithm: Algorithm::ring(),
        group: Group::flat(4),
        elements: 1_000_000,
        dtype: Dtype::F32,
        chunk: 1_000_000,
        window: 0,
        fold: FoldRule::Exact,
        padded: false,
        long_way: false,
    };
    let flat = Flat::default();
    let platform = Platform { conditions, ..world.platform(&flat, NetworkModel::MaxMin) };
    simulate_collective(&run, &platform).expect("a collective that works").time.as_secs_f64()
}

#[test]
fn degraded_links_lengthen_their_terms() {
    // Six rounds of 10 us and 1 MB at 1 GB/s; each message crosses two cables.
    let degraded = |between: &str, bandwidth, latency| {
        let mut world = World::star(4);
        let wires = world.cluster.wires_between(between, "switch").expect("cables");
        world.cluster = world.cluster.degraded(&wires, bandwidth, latency).expect("something is left");
        ring_on(&world, Conditions::none())
    };
    assert_close(degraded("node*.eth0", 0.5, Time::ZERO), 6.0 * (10e-6 + 2e-3), "half the bandwidth");
    assert_close(degraded("node*.eth0", 1.0, Time(5_000_000)), 6.0 * (20e-6 + 1e-3), "5 us later, twice");
    assert_eq!(degraded("node*.eth0", 1.0, Time::ZERO), ring_on(&World::star(4), Conditions::none()));
    // One host's cable at half its rate: it delays all six messages that cross it.
    let one = degraded("node2.eth0", 0.5, Time::ZERO);
    assert!((12e-3..12.1e-3).contains(&one), "{one}");
}

#[test]
fn flows_share_links_with_messages() {
    // Six rounds of 1 MB over 10 us. A flow that takes what it gets leaves half of 1 GB/s, one of 0.25 GB/s the rest.
    assert_close(ring(Load::Always(1e12)), 6.0 * (10e-6 + 2e-3), "half");
    assert_close(ring(Load::Always(0.25e9)), 6.0 * (10e-6 + 1e-3 / 0.75), "three quarters");
    let alone = 6.0 * (10e-6 + 1e-3);
    let (some, more) = (ring(Load::PerIteration(1_000_000)), ring(Load::PerIteration(3_000_000)));
    assert!(some > alone && more > some, "{alone} {some} {more}");
    // In any order, a link carries both, 6 MB of messages and the flow's bytes, and messages wait for no
    // more than those.
    assert!(more <= alone + 3e-3 + 1e-9 && more >= 9e-3, "{more}");
}

#[test]
fn links_carry_exactly_the_traffic_of_their_flows() {
    let (world, options) = (World::star(2), SimOptions { warm_up: 1, counted: 3, ..SimOptions::default() });
    let flow = |load| Conditions {
        background: vec![Background { from: DeviceId(0), to: DeviceId(1), load }],
        ..Conditions::default()
    };
    let still = predict(&world, 1, &options, Conditions::none());
    let step = still.timeline.step_time_s();
    let program = program(&mlp(1));
    let forward = still.timeline.seconds_by_kind(&program)["forward"];
    for (load, seconds) in [
        (Load::PerIteration(2_000_000), 2e-3),
        (Load::Always(0.5e9), 0.5 * step),
        (Load::Forward(0.5e9), 0.5 * forward),
    ] {
        let found = predict(&world, 1, &options, &flow(load));
        // One rank exchanges nothing, so no rank waits for the flow.
        assert_eq!(found.timeline, still.timeline);
        let link = found.utilisation.iter().find(|used| used.resource == "node0.eth0 > switch").expect("in use");
        assert_close(link.share, seconds / step, "of the link");
    }
}
