//! Compares the fluid solver with SimGrid on random flows on random platforms: every completion time agrees.
//!
//! SimGrid weights a flow by the inverse of its route's latency, lockstep does not. So a third of the cases have the
//! same latency on every route; in a third `judge.cpp` adds the latencies before the bytes flow; and in a third the
//! weights are modelled: a flow of weight w is played here as w equal flows of its bytes' w-th part.

use lockstep_sim::fluid::{Finished, Fluid, ResourceId, System, Use};
use lockstep_topology::cluster::DeviceId;
use lockstep_topology::{Cluster, Time};

use crate::case::{Case, Latency};
use crate::clusters::{self, Latencies, UNIT_PS};
use crate::judge;
use crate::random::Random;

/// The number of random cases.
const CASES: u64 = 240;
/// The tolerance of a completion time, as a share of the flow's duration.
const TOLERANCE: f64 = 0.005;

/// Two, three and four units of latency make weights of 6, 4 and 3.
const WEIGHT_PS: u64 = 12 * UNIT_PS;

/// One flow.
struct Flow {
    start: Time,
    from: DeviceId,
    to: DeviceId,
    bytes: u64,
    cap: Option<f64>,
}

fn latencies(seed: u64) -> Latencies {
    [Latencies::Equal, Latencies::Random, Latencies::Whole][(seed % 3) as usize]
}

fn flows(random: &mut Random, hosts: u64, latencies: Latencies) -> Vec<Flow> {
    let count = 1 + random.below(60);
    let mut flows: Vec<Flow> = (0..count)
        .map(|_| {
            let (from, to) = random.pair(hosts);
            // Under native latencies SimGrid drops a flow's own cap once its window limit is off.
            let capped = latencies == Latencies::Random && random.one_in(3);
            Flow {
                // Some start together, as the messages of a collective do.
                start: if random.one_in(3) { Time::ZERO } else { Time(random.below(20_000_000_000)) },
                from: DeviceId(from),
                to: DeviceId(to),
                bytes: random.log(1e4, 3e7) as u64,
                cap: capped.then(|| random.log(1e8, 3e9)),
            }
        })
        .collect();
    flows.sort_by_key(|flow| flow.start);
    flows
}

/// When each flow ends, in seconds, by a fluid solver on the cluster's wires; `weights` gives the number of flows that
/// each counts as.
fn solve(mut fluid: impl Fluid, case: &mut Case<'_>, cluster: &Cluster, flows: &[Flow], weights: &[u32]) -> Vec<f64> {
    let capacity = |wire: u32| {
        let link = cluster.links().iter().find(|link| link.wire.0 == wire).expect("a wire has a link");
        link.bandwidth.bytes_per_s()
    };
    let wires: Vec<ResourceId> =
        (0..cluster.wires()).map(|wire| fluid.add_resource(capacity(wire)).expect("positive")).collect();
    // Bytes flow when the latency is over, which may change the order.
    let mut due: Vec<(Time, usize)> = Vec::new();
    for (number, flow) in flows.iter().enumerate() {
        due.push((flow.start + case.route(flow.from, flow.to).latency, number));
    }
    due.sort_unstable();
    let mut finished: Vec<Finished> = Vec::new();
    for (time, number) in due {
        fluid.advance(time, &mut finished);
        let flow = &flows[number];
        let links = &case.route(flow.from, flow.to).links;
        let uses: Vec<Use> = links.iter().map(|id| Use::one(wires[cluster.link(*id).wire.0 as usize])).collect();
        let weight = weights[number];
        for _ in 0..weight {
            let work = flow.bytes as f64 / f64::from(weight);
            fluid.start_once(flow.cap.unwrap_or(f64::INFINITY), &uses, work, number as u64).expect("a flow");
        }
    }
    while let Some(next) = fluid.next_completion() {
        fluid.advance(next, &mut finished);
    }
    let mut ends = vec![0.0; flows.len()];
    for done in finished {
        ends[done.token as usize] = done.time.as_secs_f64();
    }
    ends
}

#[test]
fn every_flow_ends_at_the_time_of_simgrid() {
    let mut randoms: Vec<Random> = (0..CASES).map(Random::new).collect();
    let platforms: Vec<Cluster> =
        (0..CASES).zip(&mut randoms).map(|(seed, random)| clusters::random(random, latencies(seed))).collect();
    let (mut cases, mut solved, mut sets) = (Vec::new(), Vec::new(), Vec::new());
    for ((seed, random), cluster) in (0..CASES).zip(&mut randoms).zip(&platforms) {
        let latencies = latencies(seed);
        let latency = if latencies == Latencies::Random { Latency::Paid } else { Latency::Native };
        let mut case = Case::new(format!("{seed}"), cluster, latency, false);
        let flows = flows(random, cluster.devices().len() as u64, latencies);
        for flow in &flows {
            case.flow(flow.start.as_secs_f64(), flow.from, flow.to, flow.bytes, flow.cap);
        }
        let weight = |flow: &Flow| match latencies {
            Latencies::Whole => (WEIGHT_PS / case.route(flow.from, flow.to).latency.0) as u32,
            Latencies::Equal | Latencies::Random => 1,
        };
        let weights: Vec<u32> = flows.iter().map(weight).collect();
        solved.push(solve(System::new(), &mut case, cluster, &flows, &weights));
        cases.push(case);
        sets.push(flows);
    }
    let Some(verdicts) = judge::play("flows", &cases) else { return };
    let mut worst = (0.0, String::new());
    for (seed, (verdict, (solved, flows))) in verdicts.iter().zip(solved.iter().zip(&sets)).enumerate() {
        assert_eq!(verdict.flows.len(), flows.len());
        for (number, (theirs, flow)) in verdict.flows.iter().zip(flows).enumerate() {
            let off = (solved[number] - theirs).abs() / (theirs - flow.start.as_secs_f64());
            if off > worst.0 {
                let (how, end) = (latencies(seed as u64), solved[number]);
                worst = (off, format!("seed {seed} ({how:?}), flow {number}: {end} s, not {theirs} s"));
            }
        }
    }
    let count: usize = sets.iter().map(Vec::len).sum();
    println!("{CASES} platforms, {count} flows, worst disagreement {:.2e}: {}", worst.0, worst.1);
    assert!(worst.0 <= TOLERANCE, "{:.3e}: {}", worst.0, worst.1);
}
