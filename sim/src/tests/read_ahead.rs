//! Tests input as tasks: the period of a rank whose batches are read and decoded ahead is that of the slowest stage,
//! and of all stages over the batches in flight.

use lockstep_models::{CopiedBy, Input, Op, SampleSource, TransformAt};
use lockstep_topology::{Bandwidth, Bytes, Cluster};
use proptest::prelude::*;

use super::world::tree;
use super::*;
use crate::Conditions;
use crate::answer::bound;

/// Long enough for a pipeline to fill and to reach its pace.
const LONG: SimOptions = SimOptions { warm_up: 20, counted: 40, ..SimOptions::SHORT };

fn ms(millis: f64) -> Time {
    Time::from_secs_f64(millis * 1e-3)
}

/// Files of 100 kB on storage of 100 MB/s: a batch of eight is read in 8 ms; decoding takes `decode` ms of one of
/// `threads` threads.
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
        prefetch: 2,
        copied_by: CopiedBy::Load,
    }
}

/// The mean step and what bounds it: `gpus` GPUs of a host compute for `step` seconds a chain and phase on
/// eight samples.
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

/// With T of computation, R of reading and D of decoding for a batch, and b of them ahead: max(T, R, D, (R + D) / b),
/// since a load takes no time. Ranks of a host share storage and threads.
#[test]
fn the_slowest_task_determines_the_step() {
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
            // The CPU has four cores, which more threads time-share.
            let decoded = all * 8.0 * decode * 1e-3 / f64::from(threads.min(4));
            let expected = computes.max(read).max(decoded).max((read + decoded) / f64::from(ahead));
            // Ranks may alternate on a shared resource where it is not the bottleneck.
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

/// Equal hosts are simulated once; each has its own storage, threads and links of devices.
#[test]
fn equal_hosts_are_simulated_once() {
    let program = program(&Job { ahead: Some(2), ..mlp(8) });
    let world = World::new(tree(2, 4, 1, 1), 8, &HostingRule::PerHost);
    let costs = Flat { forward: 1e-3, backward: 1e-3, ..Flat::default() };
    let input = Input { copied_by: CopiedBy::Upload, ..files(2.0, 3, 1e9) };
    let conditions = Conditions { input: Some(input), ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let steps = |fold| {
        let options = SimOptions { fold, ..LONG };
        simulate(&program, &platform, options.driver(), &options).expect("a prediction").timeline.step_times_s()
    };
    let (folded, whole) = (steps(FoldRule::Exact), steps(FoldRule::Never));
    assert!(folded.iter().zip(&whole).all(|(one, other)| (one / other - 1.0).abs() < 1e-9), "{folded:?} {whole:?}");
}

/// The times of one batch, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Stages {
    read: u64,
    /// Where threads transform, and where they do not.
    decode: [u64; 2],
    copy: u64,
    /// The transformation on the device.
    device: u64,
    step: u64,
}

/// When each step ends, computed batch by batch: each stage in order, and each batch after the one `ahead` before it
/// has freed its memory.
fn by_recurrence(of: Stages, ahead: usize, transform_at: TransformAt, batches: usize) -> Vec<u64> {
    let (mut loaded, mut ends) = (Vec::<u64>::new(), Vec::new());
    let (mut last_read, mut last_decoded, mut last_copied, mut free) = (0, 0, 0, 0);
    // Since when devices transform.
    let mut since = (transform_at == TransformAt::Device).then_some(0);
    for batch in 0..batches {
        let place = match ahead {
            0 => free,
            ahead => batch.checked_sub(ahead).map_or(0, |before| loaded[before]),
        };
        last_read = place.max(last_read) + of.read;
        let begins = last_read.max(last_decoded);
        let moved = transform_at == TransformAt::Device || since.is_some_and(|since| since < begins);
        last_decoded = begins + of.decode[usize::from(moved)];
        let at_once = last_decoded > last_copied;
        last_copied = last_decoded.max(last_copied) + of.copy;
        let late = batch > 0 && last_copied > free && at_once;
        let begins = last_copied.max(free);
        if late && transform_at == TransformAt::WhenLate {
            since.get_or_insert(begins);
        }
        loaded.push(begins + if since.is_some() { of.device } else { 0 });
        free = loaded[batch] + of.step;
        ends.push(free);
    }
    ends
}

/// The copy of eight samples of 784 fp32 after 700 ns, in nanoseconds: at 15 GB/s, of whose packets of 280 bytes 256
/// are payload.
const COPY: f64 = 8.0 * 784.0 * 4.0 / (15.0 * 256.0 / 280.0) + 700.0;

/// When each step of the simulated tasks ends, in nanoseconds; the first is not counted.
fn by_tasks(of: Stages, ahead: u32, transform_at: TransformAt, batches: u32) -> Vec<f64> {
    let program = program(&Job { ahead: Some(ahead), transform_at, ..mlp(1) });
    let world = World::new(tree(1, 1, 1, 1), 1, &HostingRule::PerHost);
    // All of a step's computation is in its forward and backward tasks of equal length.
    let computing = program.roles[0].tasks.iter().filter(|task| matches!(task.op, Op::Compute { .. }));
    let each = of.step as f64 * 1e-9 / computing.count() as f64;
    let costs = Flat { forward: each, backward: each, update: 0.0, load: of.device as f64 * 1e-9, ..Flat::default() };
    let of_sample = |nanos: u64| Time(nanos * 1000 / 2);
    let input = Input {
        decode: of_sample(of.decode[1]),
        transform: of_sample(of.decode[0] - of.decode[1]),
        prefetch: ahead,
        copied_by: if of.copy > 0 { CopiedBy::Upload } else { CopiedBy::Load },
        ..files(0.0, 4, 8e5 / (of.read as f64 * 1e-9))
    };
    let conditions = Conditions { input: Some(input), ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let options = SimOptions { warm_up: 0, counted: batches, ..SimOptions::SHORT };
    let prediction = simulate(&program, &platform, options.driver(), &options).expect("a prediction");
    prediction.timeline.steps().iter().map(|step| step.end.as_secs_f64() * 1e9).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Steps end at the times of the recurrence, and in the long run are as frequent as the slowest stage allows.
    #[test]
    fn tasks_follow_the_recurrence(
        (read, decode, transform, device) in (200u64..8000, 200u64..8000, 0u64..8000, 0u64..4000),
        step in 200u64..9000, ahead in 0u32..5,
        transform_at in prop::sample::select(vec![TransformAt::Host, TransformAt::Device, TransformAt::WhenLate]),
    ) {
        const BATCHES: u32 = 60;
        let copy = COPY.round() as u64;
        let of = Stages { read, decode: [decode + transform, decode], copy, device, step };
        let expected = by_recurrence(of, ahead as usize, transform_at, BATCHES as usize);
        let ends = by_tasks(of, ahead, transform_at, BATCHES);
        prop_assert_eq!(ends.len() + 1, expected.len());
        for (found, expected) in ends.iter().zip(expected.into_iter().skip(1)) {
            // The copy takes no whole number of nanoseconds.
            prop_assert!((found - expected as f64).abs() < f64::from(BATCHES), "{found}, not {expected}");
        }
        if transform_at != TransformAt::WhenLate {
            let [decode, device] = if transform_at == TransformAt::Device { [decode, device] } else { [decode + transform, 0] };
            let (stages, busy) = (read + decode + copy, step + device);
            let expected = match u64::from(ahead) {
                0 => (busy + stages) as f64,
                // Its memory is in use until the device has transformed it.
                ahead => [busy, read, decode, copy].into_iter().max().unwrap_or(0).max((stages + device) / ahead) as f64,
            };
            let found = (ends[58] - ends[38]) / 20.0;
            prop_assert!((found / expected - 1.0).abs() < 0.01, "{found}, not {expected}");
        }
    }
}

/// Batches of a device that computes for 10: threads take 14 with the transformation and 6 without, so that the device,
/// which takes 2 for it, bounds at 12. Transformations of threads that are in time stay there; a slow copy does not
/// move them either. In units of a copy, or of an eleventh of one.
#[test]
fn transformations_move_to_the_device_where_threads_are_too_slow() {
    let pace = |ahead, [with, without]: [f64; 2], unit: f64, transform_at| {
        let times = |units: f64| (units * unit).round() as u64;
        let decode = [with, without].map(times);
        let of = Stages { read: 1, decode, copy: 1, device: times(2.0), step: times(10.0) };
        let ends = by_tasks(of, ahead, transform_at, 100);
        (ends[98] - ends[48]) / 50.0 / unit
    };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02 * expected, "{found}, {expected}");
    close(pace(2, [14.0, 6.0], COPY, TransformAt::WhenLate), 12.0);
    close(pace(2, [14.0, 6.0], COPY, TransformAt::Host), 14.0);
    close(pace(2, [9.0, 6.0], COPY, TransformAt::WhenLate), 10.0);
    close(pace(3, [9.0, 6.0], COPY / 11.0, TransformAt::WhenLate), 11.0);
}

/// A rank on a CPU transforms its batch of eight itself: its load takes as long as a thread would.
#[test]
fn a_cpu_transforms_its_own_batch() {
    let step = |decode: f64, transform_at| {
        let program = program(&Job { ahead: Some(2), transform_at, ..mlp(1) });
        let world = World::host(4, 1);
        let computing = program.roles[0].tasks.iter().filter(|task| matches!(task.op, Op::Compute { .. }));
        let each = 10e-3 / computing.count() as f64;
        let costs = Flat { forward: each, backward: each, update: 0.0, ..Flat::default() };
        let input = Input { transform: ms(0.5), ..files(decode, 1, 1e12) };
        let conditions = Conditions { input: Some(input), ..Conditions::default() };
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        let prediction = simulate(&program, &platform, LONG.driver(), &LONG).expect("a prediction");
        let steps = prediction.timeline.step_times_s();
        1e3 * steps.iter().sum::<f64>() / steps.len() as f64
    };
    for (decode, transform_at, expected) in [
        (1.0, TransformAt::Host, 12.0),
        (1.0, TransformAt::Device, 14.0),
        (2.0, TransformAt::Host, 20.0),
        (2.0, TransformAt::Device, 16.0),
        (2.0, TransformAt::WhenLate, 16.0),
    ] {
        let found = step(decode, transform_at);
        assert!((found - expected).abs() < 0.02, "{found} ms, not {expected} ({decode}, {transform_at})");
    }
}

/// The begin and end in ms of the first `count` decodes of each rank of a CPU of `cores` cores, whose forward and
/// backward passes take `step` ms together.
fn decodes(cores: u32, ranks: u32, step: f64, input: Input, count: usize) -> Vec<Vec<(f64, f64)>> {
    let program = program(&Job { ahead: Some(2), ..mlp(ranks) });
    let world = World::host(cores, ranks);
    let computing = program.roles[0].tasks.iter().filter(|task| matches!(task.op, Op::Compute { .. }));
    let each = step * 1e-3 / computing.count() as f64;
    let costs = Flat { forward: each, backward: each, update: 0.0, ..Flat::default() };
    let conditions = Conditions { input: Some(input), ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let options = SimOptions { warm_up: 0, counted: 4, ..SimOptions::SHORT };
    let prediction = simulate(&program, &platform, options.driver(), &options).expect("a prediction");
    let of = |rank: u32| {
        let own = prediction.timeline.spans.iter().filter(|span| span.rank == rank);
        let tasks = &program.roles[program.role_of(rank)].tasks;
        let decodes = own.filter(|span| matches!(tasks[span.task as usize].op, Op::Decode { .. }));
        decodes.map(|span| (1e3 * span.start.as_secs_f64(), 1e3 * span.end.as_secs_f64())).take(count).collect()
    };
    (0..ranks).map(of).collect()
}

fn are(found: &[(f64, f64)], expected: &[(f64, f64)]) {
    let close = |one: f64, other: f64| (one - other).abs() < 1e-2;
    let all = found.iter().zip(expected).all(|(one, other)| close(one.0, other.0) && close(one.1, other.1));
    assert!(found.len() == expected.len() && all, "{found:?}, not {expected:?}");
}

/// One thread decodes for two ranks, 8 ms a batch: the second rank's is ready 8 ms after the first one's, where shares
/// of a thread would make both wait for 16.
#[test]
fn threads_beside_ranks_decode_the_oldest_batch_first() {
    let found = decodes(4, 2, 1.0, files(1.0, 1, 1e12), 2);
    are(&found[0], &[(0.0, 8.0), (16.0, 24.0)]);
    are(&found[1], &[(8.0, 16.0), (24.0, 32.0)]);
}

/// Three threads decode 24 ms of work on two cores: in 12 ms alone, and in 16 beside a rank that computes, of four
/// threads that each get half a core.
#[test]
fn each_decoding_thread_competes_as_a_rank_does() {
    let found = decodes(2, 1, 1e3, files(3.0, 3, 1e12), 3);
    are(&found[0], &[(0.0, 12.0), (12.0, 28.0), (28.0, 44.0)]);
}

/// Two ranks are bound to two cores. The thread decodes at full speed while a rank waits for its first batch; beside
/// two ranks that compute it takes turns with one of them, where equal shares would give it two thirds of a core. Its
/// first 2 ms of the second batch are still on the core of the rank that begins to compute then, and take 4. Three ranks
/// on two cores are not bound, and all four threads share.
#[test]
fn beside_ranks_that_fill_the_cores_a_thread_takes_turns_with_one() {
    let found = decodes(2, 2, 1e3, files(1.0, 1, 1e12), 2);
    are(&found[0], &[(0.0, 8.0), (18.0, 34.0)]);
    are(&found[1], &[(8.0, 18.0), (34.0, 50.0)]);
    let found = decodes(2, 3, 1e4, files(1.0, 1, 1e12), 2);
    are(&found[0], &[(0.0, 8.0), (28.0, 44.0)]);
    are(&found[2][..1], &[(16.0, 28.0)]);
}

/// Ranks of a process that get their batches in turn are not equal, and all of them are simulated.
#[test]
fn ranks_that_share_decoding_threads_of_a_cpu_do_not_fold() {
    for (hosting, in_turn) in [(HostingRule::PerHost, true), (HostingRule::PerRank, false)] {
        let program = program(&Job { ahead: Some(2), ..mlp(4) });
        let world = World::new(Cluster::load("ethernet-4").expect("a preset"), 4, &hosting);
        let costs = Flat::default();
        let conditions = Conditions { input: Some(files(1.0, 4, 1e9)), ..Conditions::default() };
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        let folding = simulate(&program, &platform, LONG.driver(), &LONG).expect("a prediction").folding.to_string();
        assert_eq!(folding.contains("one batch of a process after another"), in_turn, "{folding}");
    }
}
