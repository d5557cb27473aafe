//! Input as tasks: the period of a rank whose batches are read and decoded ahead is that of the slowest stage, and of all stages over
//! the batches that are on their way.

use lockstep_topology::{Bandwidth, Bytes};
use proptest::prelude::*;

use super::world::tree;
use super::*;
use crate::answer::bound;
use crate::{Conditions, Input, SampleSource, TransformAt};

/// Long enough for a pipeline to fill and to find its pace.
const LONG: SimOptions = SimOptions { warm_up: 20, counted: 40, ..SimOptions::SHORT };

fn ms(millis: f64) -> Time {
    Time::from_secs_f64(millis * 1e-3)
}

/// Files of 100 kB on storage of 100 MB/s: a batch of eight is read in 8 ms; decoding takes `decode` ms of one of `threads` threads.
fn files(decode: f64, threads: u32, storage: f64) -> Input {
    let bandwidth = Bandwidth::new(storage).expect("positive");
    Input {
        samples: 10_000,
        sample_bytes: Bytes(100_000),
        source: SampleSource::Files { bandwidth, latency: Time::ZERO, page_cache: Bytes(0) },
        threads,
        decode: ms(decode),
        decode_memory: 0.0,
        transform: Time::ZERO,
        transform_at: TransformAt::Host,
        prefetch: 2,
        callback: Time::ZERO,
    }
}

/// The mean step and what bounds it: `gpus` GPUs of a host compute for `step` seconds a chain and phase on eight samples.
fn predicted(gpus: u32, step: f64, accumulate: u32, ahead: Option<u32>, input: Option<Input>) -> (f64, String) {
    let program = program(&Job { ahead, accumulate, ..mlp(gpus) });
    let world = World::new(tree(gpus, 1, 1, 1), gpus, &HostingRule::PerHost);
    let costs = Flat { forward: step, backward: step, ..Flat::default() };
    let conditions = Conditions { input, ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let prediction = simulate(&program, &platform, LONG.driver(), &LONG).expect("a prediction");
    let steps = prediction.timeline.step_times_s();
    let by = bound(&program, &platform, &LONG, &prediction).by;
    (steps.iter().sum::<f64>() / steps.len() as f64, by)
}

/// With T of computation, R of reading and D of decoding for a batch, and b of them ahead: max(T, R, D, (R + D) / b), for a load takes
/// no time. Ranks of a host share storage and threads.
#[test]
fn the_slowest_task_decides() {
    for gpus in [1u32, 2] {
        let computes = predicted(gpus, 1e-3, 1, None, None).0;
        for (storage, decode, threads, ahead) in [
            (1e8, 2.0, 4, 2),
            (1e8, 2.0, 4, 1),
            (1e9, 1.0, 1, 2),
            (1e9, 2.0, 2, 1),
            (1e8, 4.0, 4, 2),
            (1e8, 4.0, 4, 3),
            (1e10, 0.05, 4, 2),
            (1e9, 6.0, 8, 2),
        ] {
            let (found, by) = predicted(gpus, 1e-3, 1, Some(ahead), Some(files(decode, threads, storage)));
            let all = f64::from(gpus);
            let read = all * 8.0 * 1e5 / storage;
            // The CPU has four cores, on which more threads take turns.
            let decoded = all * 8.0 * decode * 1e-3 / f64::from(threads.min(4));
            let expected = computes.max(read).max(decoded).max((read + decoded) / f64::from(ahead));
            // Ranks that meet at a resource may take turns at it where it does not bound.
            let close = (found / expected - 1.0).abs() < if gpus == 1 { 1e-3 } else { 0.05 };
            assert!(close, "{gpus}, {storage}, {decode}, {threads}, {ahead}: {found}, {expected}");
            if read > 1.2 * computes.max(decoded) && ahead > 1 {
                assert_eq!(by, "node0 storage");
            } else if decoded > 1.2 * computes.max(read) && ahead > 1 {
                assert_eq!(by, if threads < 4 { "node0 decode threads" } else { "node0.cpu cores" });
            }
        }
    }
}

#[test]
fn micro_batches_are_read_ahead_over_the_ends_of_steps() {
    let input = || Some(files(4.0, 4, 1e10));
    // A micro-batch takes 8 ms to decode; a step has three.
    let (found, _) = predicted(1, 1e-4, 3, Some(2), input());
    assert!((found / 24e-3 - 1.0).abs() < 1e-3, "{found}");
}

/// Hosts that are equal are simulated once; their storage and threads are their own.
#[test]
fn equal_hosts_are_folded() {
    let program = program(&Job { ahead: Some(2), ..mlp(8) });
    let world = World::new(tree(2, 4, 1, 1), 8, &HostingRule::PerHost);
    let costs = Flat { forward: 1e-3, backward: 1e-3, ..Flat::default() };
    let conditions = Conditions { input: Some(files(2.0, 3, 1e9)), ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let steps = |fold| {
        let options = SimOptions { fold, ..LONG };
        simulate(&program, &platform, options.driver(), &options).expect("a prediction").timeline.step_times_s()
    };
    let (folded, whole) = (steps(FoldRule::Exact), steps(FoldRule::Never));
    assert!(folded.iter().zip(&whole).all(|(one, other)| (one / other - 1.0).abs() < 1e-9), "{folded:?} {whole:?}");
}

/// The same recurrence, written out: reads and decodings in order, each batch in the place of the one `ahead` before it.
fn by_recurrence(read: u64, decode: u64, step: u64, ahead: usize, batches: usize) -> Vec<u64> {
    let (mut loaded, mut ends) = (Vec::<u64>::new(), Vec::new());
    let (mut last_read, mut last_decoded, mut free) = (0, 0, 0);
    for batch in 0..batches {
        let place = batch.checked_sub(ahead).map_or(0, |before| loaded[before]);
        last_read = place.max(last_read) + read;
        last_decoded = last_read.max(last_decoded) + decode;
        let load = last_decoded.max(free);
        loaded.push(load);
        free = load + step;
        ends.push(free);
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn tasks_follow_the_recurrence(read in 1u64..20, decode in 1u64..20, step in 1u64..20, ahead in 1u32..5) {
        let program = program(&Job { ahead: Some(ahead), ..mlp(1) });
        let world = World::new(tree(1, 1, 1, 1), 1, &HostingRule::PerHost);
        // All of a step's computation is in its forward and backward tasks of equal length.
        let computing = program.roles[0].tasks.iter().filter(|task| matches!(task.op, lockstep_models::Op::Compute { .. }));
        let each = step as f64 * 1e-3 / computing.count() as f64;
        let costs = Flat { forward: each, backward: each, update: 0.0, ..Flat::default() };
        let input = files(decode as f64 / 2.0, 4, 8e5 / (read as f64 * 1e-3));
        let conditions = Conditions { input: Some(input), ..Conditions::default() };
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        let options = SimOptions { warm_up: 0, counted: 12, ..SimOptions::SHORT };
        let prediction = simulate(&program, &platform, options.driver(), &options).expect("a prediction");
        let ends: Vec<f64> = prediction.timeline.steps().iter().map(|step| step.end.as_secs_f64() * 1e3).collect();
        // The first iteration is never counted.
        for (found, expected) in ends.iter().zip(by_recurrence(read, decode, step, ahead as usize, 12).into_iter().skip(1)) {
            prop_assert!((found - expected as f64).abs() < 1e-3, "{ends:?}");
        }
    }
}
