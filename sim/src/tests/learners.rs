//! Tests learners: what overlaps what, which learner takes which batch, and that shortcuts change nothing.

use lockstep_models::{Bucket, Op, Span, Stream};
use lockstep_topology::{Hosting, Limits, Placement, PlacementRule};

use super::*;
use crate::{Conditions, Slowdown};

/// Kernels of a GPU, or loops of a core, that leave half of it to others.
#[derive(Clone, Copy)]
struct Half {
    learning: f64,
    update: f64,
}

impl Costs for Half {
    fn compute(&self, _: &Device, _: &Program, _: usize, _: Phase, _: u32) -> Cost {
        Cost { seconds: self.learning, memory: 0.0, occupancy: 0.5 }
    }

    fn update(&self, _: &Device, _: u64) -> Cost {
        Cost { seconds: self.update, memory: 0.0, occupancy: 0.5 }
    }

    fn load(&self, _: &Device, _: &Program, _: u32) -> Cost {
        Cost::default()
    }

    fn message(&self, _: Pair, _: &Device, _: &Route) -> MessageCost {
        MessageCost::default()
    }
}

fn learners(strategy: &str, count: u32) -> Program {
    let strategy = strategy.parse().expect("a strategy");
    program(&Job { strategy, bucket: Bucket::Whole, ..mlp(count) })
}

fn on(
    world: &World,
    costs: &dyn Costs,
    program: &Program,
    conditions: &Conditions,
    options: &SimOptions,
) -> Prediction {
    let platform = Platform { conditions, ..world.platform(costs, NetworkModel::MaxMin) };
    simulate(program, &platform, options.driver(), options).expect("runs")
}

/// The spans of one rank's task by iteration.
fn spans(prediction: &Prediction, program: &Program, rank: u32, verb: &str) -> Vec<Span> {
    let role = &program.roles[program.role_of(rank)];
    let named = |span: &&Span| span.rank == rank && role.tasks[span.task as usize].name.starts_with(verb);
    prediction.timeline.spans.iter().filter(named).copied().collect()
}

/// Koliousis et al. 2019, §4.2: the global synchronisation of one iteration overlaps the learning of the next, so
/// on a GPU an iteration takes the longer of learning + local synchronisation and of both synchronisations with
/// the exchange.
#[test]
fn global_synchronisation_overlaps_the_next_iterations_learning() {
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 4, &HostingRule::PerHost);
    let program = learners("sma", 4);
    let kernels = program.roles[0].tasks.iter().filter(|task| matches!(task.op, Op::Compute { .. })).count() as f64;
    for learning in [1e-6, 1e-5, 1e-4, 1e-3] {
        let costs = Half { learning, update: 2e-5 };
        let prediction = on(&world, &costs, &program, Conditions::none(), &SimOptions::default());
        let exchange = spans(&prediction, &program, 1, "allreduce")[3];
        let exchange = (exchange.end - exchange.start).as_secs_f64();
        let (learn, correct, average) = (kernels * learning, costs.update, costs.update);
        let expected = (learn + correct).max(correct + exchange + average);
        assert_close(prediction.timeline.step_time_s(), expected, &format!("{learning} s a kernel"));
        for i in 1..4 {
            let (correct, average) =
                (&spans(&prediction, &program, 1, "correct"), &spans(&prediction, &program, 1, "average"));
            assert!(average[i - 1].end <= correct[i].start && correct[i].end <= average[i].start);
        }
    }
}

/// Where learners share devices, the next iteration's learning begins as soon as its own correction has ended, whatever
/// is still to be delivered; the next correction of a bucket waits for its delivery, and buckets for no other's.
#[test]
fn deliveries_overlap_the_next_iterations_learning() {
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 4, &HostingRule::PerHost);
    let (strategy, algorithm) = ("sma".parse().expect("a strategy"), "hierarchical:ring".parse().expect("one"));
    let program = program(&Job { strategy, algorithm, learners: 2, bucket: Bucket::Layer, ..mlp(4) });
    for learning in [1e-6, 1e-5, 1e-3] {
        let costs = Half { learning, update: 2e-5 };
        let prediction = on(&world, &costs, &program, Conditions::none(), &SimOptions::default());
        for rank in 0..4 {
            let [loads, corrects, sums, deliveries] =
                ["load", "correct", "allreduce", "deliver"].map(|verb| spans(&prediction, &program, rank, verb));
            let of = |spans: &[Span], i: u32| -> Vec<Span> {
                let mut own: Vec<Span> = spans.iter().filter(|span| span.iteration == i).copied().collect();
                own.sort_by_key(|span| span.task);
                own
            };
            for i in 1..4 {
                let (before, now) = (of(&corrects, i - 1), of(&corrects, i));
                assert_eq!(of(&loads, i)[0].start, before.iter().map(|span| span.end).max().expect("buckets"));
                for ((sum, delivery), correct) in of(&sums, i - 1).iter().zip(of(&deliveries, i - 1)).zip(now) {
                    assert!(sum.end <= delivery.start && delivery.end <= correct.start);
                }
            }
        }
    }
}

/// On a CPU a rank is one thread: it synchronises between two compute tasks.
#[test]
fn a_thread_does_one_thing_at_a_time() {
    for (world, strategy) in [(World::star(3), "sma:tau=2"), (World::host(2, 3), "sma:tau=2:first-come")] {
        let program = learners(strategy, 3);
        let costs = Half { learning: 1e-4, update: 3e-5 };
        let prediction = on(&world, &costs, &program, Conditions::none(), &SimOptions::default());
        for rank in 0..3 {
            let stream = |span: &Span| program.roles[0].tasks[span.task as usize].stream;
            let of_thread = |span: &&Span| span.rank == rank && stream(span) != Stream::Exchange;
            let mut busy: Vec<Span> = prediction.timeline.spans.iter().filter(of_thread).copied().collect();
            busy.sort_by_key(|span| (span.start, span.end));
            assert!(busy.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert_eq!(spans(&prediction, &program, rank, "average").len(), 5, "the last is not left out");
        }
        // The first repetition of an iteration has nothing to descend on.
        let descends = prediction.timeline.spans.iter().filter(|span| span.task == 1);
        assert!(descends.clone().count() > 0 && descends.clone().all(|span| span.repetition > 0));
    }
}

/// Koliousis et al. 2019, §4.3: first come, first served does not wait for a given learner. With six batches that take T,
/// learner 2 three times as slow until 3 T and learner 1 from then until 6 T, each learner loses 2 T at most and is done
/// after 8 T. In turn learner 1's third batch, from 3 T to 6 T, delays the fourth ones of the learners after it, and its
/// own sixth begins at 8 T, after two batches of its own: it is done after 9 T.
#[test]
fn first_come_beats_round_robin_where_a_learner_is_slow() {
    let (world, costs, tau) = (World::host(4, 4), Flat { forward: 1e-4, backward: 2e-4, ..Flat::default() }, 6);
    let options = SimOptions { warm_up: 0, counted: 3, ..SimOptions::default() };
    let learned = |strategy: &str, conditions: &Conditions| {
        let program = learners(&format!("sma:tau={tau}{strategy}"), 4);
        let prediction = on(&world, &costs, &program, conditions, &options);
        let loads = (0..4).map(|rank| spans(&prediction, &program, rank, "load").len() as u32).collect::<Vec<u32>>();
        assert_eq!(loads, [tau * 3; 4], "each learner takes equally many");
        let ends = (0..4).map(|rank| spans(&prediction, &program, rank, "correct")[0].start).max();
        (ends.expect("four learners").as_secs_f64(), prediction.claims)
    };
    let batch = learned("", Conditions::none()).0 / f64::from(tau);
    let at = |batches: f64| Time((batches * batch * 1e12) as u64);
    let slow = |rank, from, until| Slowdown { hosts: Vec::new(), ranks: vec![rank], factor: 3.0, from, until };
    let slow = vec![slow(2, Time::ZERO, at(3.0)), slow(1, at(3.0), at(6.0))];
    let slow = Conditions { slow, ..Conditions::default() };
    for (strategy, expected) in [("", 8.0), (":first-come", 8.0), (":round-robin", 9.0)] {
        let found = learned(strategy, &slow).0 / batch;
        assert!((found - expected).abs() < 0.01, "{strategy:?}: {found} batches, not {expected}");
    }
    // The slow learner's second batch is not the second one in order, but the first that is left when it is free.
    let claims = learned(":first-come", &slow).1;
    let of = |rank: u32| -> Vec<u32> {
        claims
            .iter()
            .filter(|claim| (claim.iteration, claim.rank) == (0, rank))
            .map(|claim| claim.micro_batch)
            .collect()
    };
    let mut all: Vec<u32> = (0..4).flat_map(of).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..4 * tau));
    // All four learners are free at 3 T, when each of the other three has taken three batches.
    assert!(of(2)[0] == 2 && (10..14).contains(&of(2)[1]), "{:?}", of(2));
    // Where none is slow, all take the same time.
    let still = ["", ":first-come", ":round-robin"].map(|strategy| learned(strategy, Conditions::none()).0);
    assert!(still.iter().all(|end| (end - still[0]).abs() < 1e-9), "{still:?}");
}

/// A replayed record gives the same run, at whatever times batches are claimed.
#[test]
fn a_record_of_claims_replays() {
    let (world, costs) = (World::host(4, 4), Half { learning: 1e-4, update: 1e-6 });
    let slowdown = Slowdown { hosts: Vec::new(), ranks: vec![2], factor: 3.0, from: Time::ZERO, until: Time::MAX };
    let slow = Conditions { slow: vec![slowdown], ..Conditions::default() };
    let options = SimOptions { counted: 8, ..SimOptions::default() };
    for strategy in ["sma:tau=6:first-come", "ea-sgd:tau=3:first-come"] {
        let program = learners(strategy, 4);
        let first = on(&world, &costs, &program, &slow, &options);
        let replayed = |conditions: &Conditions| {
            let platform = Platform { conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
            let driver = options.driver().replaying(&program, &first.claims).expect("its own record");
            simulate(&program, &platform, driver, &options).expect("runs")
        };
        assert_eq!(replayed(&slow), first);
        let by_rank = |claims: &[lockstep_models::Claim]| {
            let mut all: Vec<_> = claims.iter().map(|claim| (claim.rank, claim.iteration, claim.micro_batch)).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(by_rank(&replayed(Conditions::none()).claims), by_rank(&first.claims));
    }
}

/// Koliousis et al. 2019, §4.3: round-robin scheduling waits "for a given replica to become available". With batches
/// that take T, learner 0 three times as slow in its first and learner 1 in its second, each is done after 4 T if it
/// takes its own batches when it is free. Assigned in turn, learner 1's second waits from T to 3 T for the first
/// learner, and ends after 6 T.
#[test]
fn in_round_robin_learners_wait_for_a_slow_one() {
    let (world, costs) = (World::host(2, 2), Flat { forward: 1e-4, backward: 2e-4, ..Flat::default() });
    let begins = |strategy: &str, conditions: &Conditions| {
        let program = learners(strategy, 2);
        let prediction = on(&world, &costs, &program, conditions, &SimOptions::default());
        let of = |rank| {
            let (loads, correct) =
                (spans(&prediction, &program, rank, "load"), spans(&prediction, &program, rank, "correct"));
            [loads[0].start, loads[1].start, correct[0].start].map(Time::as_secs_f64)
        };
        (of(0), of(1), prediction.claims)
    };
    let batch = begins("sma:tau=2", Conditions::none()).0[1];
    let until = |factor: f64| Time((batch * factor * 1e12) as u64);
    let slow = |rank, from, until| Slowdown { hosts: Vec::new(), ranks: vec![rank], factor: 3.0, from, until };
    let slow = vec![slow(0, Time::ZERO, until(3.0)), slow(1, until(1.0), Time::MAX)];
    let disturbed = Conditions { slow, ..Conditions::default() };
    let (own, turns) = (begins("sma:tau=2", &disturbed), begins("sma:tau=2:round-robin", &disturbed));
    for (seen, expected) in
        [(own.0, [0.0, 3.0, 4.0]), (own.1, [0.0, 1.0, 4.0]), (turns.0, [0.0, 3.0, 4.0]), (turns.1, [0.0, 3.0, 6.0])]
    {
        for (seen, expected) in seen.into_iter().zip(expected) {
            assert!((seen - expected * batch).abs() < 1e-3 * batch, "{seen} is not {expected} batches of {batch}");
        }
    }
    assert!(turns.2.iter().zip([0, 1].iter().cycle()).all(|(claim, rank)| claim.rank == *rank), "{:?}", turns.2);
    // Where no rank is slow none waits.
    let still = |strategy| begins(strategy, Conditions::none());
    assert_eq!(still("sma:tau=2").1, still("sma:tau=2:round-robin").1);
}

/// Equal repetitions and iterations are skipped with learners too; folding and the slow solver agree.
#[test]
fn shortcuts_change_nothing() {
    for (strategy, count) in [("sma:tau=7", 1), ("sma:tau=7", 3), ("ea-sgd", 4), ("sma", 1)] {
        for world in [World::star(count), World::host(count, count)] {
            let program = learners(strategy, count);
            let costs = Flat { forward: 1e-4, backward: 2e-4, update: 1e-5, ..Flat::default() };
            let of = |long_way, fold| {
                let options = SimOptions { long_way, fold, counted: 20, ..SimOptions::default() };
                on(&world, &costs, &program, Conditions::none(), &options)
            };
            let (short, long) = (of(false, FoldRule::Exact), of(true, FoldRule::Never));
            assert_eq!(short.timeline.step_times_s(), long.timeline.step_times_s(), "{strategy}, {count}");
            let sorted = |prediction: &Prediction| {
                let mut spans = prediction.timeline.spans.clone();
                spans.sort_by_key(|span| (span.rank, span.task, span.iteration, span.repetition));
                spans
            };
            assert_eq!(sorted(&short), sorted(&long), "{strategy}, {count}");
            assert_eq!(short.traffic, long.traffic);
        }
    }
}

/// Koliousis et al. 2019, Fig. 16 and 17: the rarer the synchronisation, the higher the throughput, at most as high as
/// without any. Learners that share a GPU also share it with their synchronisation.
#[test]
fn rarer_synchronisation_is_faster() {
    let world = World::star(4);
    let costs = Flat { forward: 1e-5, backward: 2e-5, update: 1e-6, ..Flat::default() };
    let mut before = 0.0;
    for tau in [1, 2, 4, 8] {
        let program = learners(&format!("sma:tau={tau}"), 4);
        let step = on(&world, &costs, &program, Conditions::none(), &SimOptions::default()).timeline.step_time_s();
        let throughput = program.global_batch() as f64 / step;
        assert!(throughput > before, "tau {tau}");
        before = throughput;
    }
    let cluster = Cluster::load("ethernet-gpu-8").expect("a preset");
    let gpu = World::new(cluster.clone(), 1, &HostingRule::PerHost).placement.device(lockstep_topology::Rank(0));
    let limits = Limits { ranks_per_gpu: 4, ..Limits::default() };
    let placement = Placement::within(&cluster, 4, &PlacementRule::Listed(vec![gpu; 4]), limits).expect("allowed");
    let hosting = Hosting::new(&placement, &HostingRule::PerHost).expect("one host");
    let shared = World { cluster, placement, hosting };
    let alone = World::new(shared.cluster.clone(), 1, &HostingRule::PerHost);
    let costs = Half { learning: 1e-4, update: 1e-5 };
    let of = |world: &World, count| {
        let program = learners("sma", count);
        on(world, &costs, &program, Conditions::none(), &SimOptions::default()).timeline.step_time_s()
    };
    let ratio = of(&shared, 4) / of(&alone, 1);
    assert!((1.95..2.1).contains(&ratio), "four learners of half a GPU each take twice as long: {ratio}");
}
