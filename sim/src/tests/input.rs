//! Tests input pipelines end to end: the slowest stage decides, prefetching hides the others, and the answer
//! names the stage.

use lockstep_models::{CopiedBy, Input, Op, SampleSource, SetPerNode, missed_share};
use lockstep_topology::{Bandwidth, Bytes};

use super::world::tree;
use super::*;
use crate::answer::bound;
use crate::{Conditions, shuffle_time};

/// Long enough for a pipeline to fill and to reach its pace.
const LONG: SimOptions = SimOptions { warm_up: 20, counted: 40, ..SimOptions::SHORT };

/// 3 GB/s of Ethernet, of whose frames of 1538 bytes 1448 are payload.
const WIRE: f64 = 3e9 * 1448.0 / 1538.0;

/// 15 GB/s of PCIe, of whose packets of 280 bytes 256 are payload.
const PCIE: f64 = 15e9 * 256.0 / 280.0;

fn rate(bytes_per_s: f64) -> Bandwidth {
    Bandwidth::new(bytes_per_s).expect("positive")
}

fn ms(millis: f64) -> Time {
    Time::from_secs_f64(millis * 1e-3)
}

/// Files of 100 kB, all of them on storage of 100 MB/s; decoding takes 4 ms of one of eight threads.
fn files() -> Input {
    Input {
        samples: 10_000,
        sample_bytes: Bytes(100_000),
        source: SampleSource::Files { bandwidth: rate(1e8), latency: Time::ZERO, page_cache: Bytes(0) },
        threads: 8,
        decode: ms(4.0),
        decode_memory: 0.0,
        transform: Time::ZERO,
        prefetch: 2,
        copied_by: CopiedBy::Upload,
    }
}

fn in_memory(groups: u32, shuffle_every: Option<u32>) -> Input {
    Input { source: SampleSource::Memory { groups, shuffle_every }, ..files() }
}

/// GPUs of a host that compute for `step` seconds a chain and phase, batches of eight 28 × 28 samples.
fn predicted(gpus: u32, step: f64, strategy: &str, input: Option<Input>) -> (Program, Prediction, String) {
    predicted_of(&Job { strategy: strategy.parse().expect("a strategy"), ..mlp(gpus) }, step, input)
}

/// The same of a job with a GPU for each worker.
fn predicted_of(job: &Job, step: f64, input: Option<Input>) -> (Program, Prediction, String) {
    let ahead = input.as_ref().map(|input| input.prefetch);
    let (program, gpus) = (program(&Job { ahead, ..job.clone() }), job.workers);
    let world = World::new(tree(gpus, 1, 1, 1), gpus, &HostingRule::PerHost);
    let costs = Flat { forward: step, backward: step, ..Flat::default() };
    let conditions = Conditions { input, ..Conditions::default() };
    let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let prediction = simulate(&program, &platform, LONG.driver(), &LONG).expect("a prediction");
    let by = bound(&program, &platform, &LONG, &prediction).by;
    (program, prediction, by)
}

fn mean_s(prediction: &Prediction) -> f64 {
    let steps = prediction.timeline.step_times_s();
    steps.iter().sum::<f64>() / steps.len() as f64
}

/// With T of computation, R of reading and D of decoding for 8 samples per GPU, and copies C, for storage, threads and
/// depths.
#[test]
fn the_slowest_stage_determines_the_step() {
    // 8 samples of 100 kB at 100 MB/s are 8 ms; 4 ms each on four cores 8 ms; the copy is microseconds.
    for gpus in [1u32, 2] {
        let computes = mean_s(&predicted(gpus, 1e-3, "ssgd", None).1);
        for (storage, threads, prefetch) in
            [(1e8, 8, 2), (1e8, 8, 1), (1e8, 8, 0), (1e9, 1, 2), (1e9, 1, 0), (1e9, 8, 2), (1e10, 64, 3), (3e7, 8, 2)]
        {
            let source = SampleSource::Files { bandwidth: rate(storage), latency: Time::ZERO, page_cache: Bytes(0) };
            let (_, prediction, by) =
                predicted(gpus, 1e-3, "ssgd", Some(Input { source, threads, prefetch, ..files() }));
            let samples = 8.0 * f64::from(gpus);
            let (read, decoded) = (samples * 1e5 / storage, samples * 4e-3 / f64::from(threads.min(4)));
            // Plus a link's latency.
            let copied = 8.0 * 784.0 * 4.0 / PCIE + 7e-7;
            let all = read + decoded + copied;
            let expected = match prefetch {
                0 => computes + all,
                ahead => computes.max(read).max(decoded).max(copied).max(all / f64::from(ahead)),
            };
            let found = mean_s(&prediction);
            // Ranks may alternate on a shared resource where it is not the bottleneck.
            let close = (found / expected - 1.0).abs() < if gpus == 1 { 1e-3 } else { 0.05 };
            assert!(close, "{gpus}, {storage}, {threads}, {prefetch}: {found}, {expected}");
            let (first, second) = if read > decoded { (read, decoded) } else { (decoded, read) };
            if prefetch > 1 && first > 1.2 * computes.max(second) {
                let of_threads = if threads < 4 { "node0 decode threads" } else { "node0.cpu cores" };
                assert_eq!(by, if read > decoded { "node0 storage" } else { of_threads });
            }
        }
    }
}

/// Koliousis et al. 2019, §4.5: learners that claim their batches prepare them ahead for each other, as others do for
/// themselves; with none ahead each waits for all of the batch that it has claimed.
#[test]
fn learners_that_claim_batches_read_ahead() {
    for gpus in [1u32, 2, 4] {
        let step = |strategy: &str, prefetch: u32| {
            let source = SampleSource::Files { bandwidth: rate(1e9), latency: Time::ZERO, page_cache: Bytes(0) };
            mean_s(&predicted(gpus, 1e-3, strategy, Some(Input { source, prefetch, ..files() })).1)
        };
        for prefetch in [0, 1, 2] {
            let [own, claimed, in_turn] = ["sma", "sma:first-come", "sma:round-robin"].map(|of| step(of, prefetch));
            for found in [claimed, in_turn] {
                // Ranks may alternate on a shared resource where it is not the bottleneck.
                let close = (found / own - 1.0).abs() < if gpus == 1 { 1e-9 } else { 0.05 };
                assert!(close, "{gpus}, {prefetch}: {found}, {own}");
            }
        }
        assert!(step("sma:first-come", 2) < 0.8 * step("sma:first-come", 0), "{gpus}: what is ahead is hidden");
    }
}

/// A rank with nothing ahead waits for threads, and not for messages.
#[test]
fn a_rank_waits_for_the_threads_that_make_its_batch() {
    let slow = Input { threads: 2, prefetch: 0, ..in_memory(1, None) };
    let (_, prediction, by) = predicted(2, 1e-3, "ssgd", Some(slow));
    assert_eq!(by, "node0 decode threads", "{}", mean_s(&prediction));
}

/// A batch arrives every R of reading; the part of that without computation is time waiting for it, not communication.
#[test]
fn waits_for_batches_are_not_communication() {
    let (alone, prediction, _) = predicted(1, 1e-3, "ssgd", None);
    assert_eq!(prediction.timeline.exposed_input_s(&alone), None);
    let computes = prediction.timeline.step_time_s();
    let (program, prediction, _) = predicted(1, 1e-3, "ssgd", Some(files()));
    let found = prediction.timeline.exposed_input_s(&program).expect("input is tasks");
    assert!((found / (8e-3 - computes) - 1.0).abs() < 1e-3, "{found}, {computes}");
    assert!(prediction.timeline.exposed_comm_s(&program) < 1e-9);
    for gpus in [1, 2] {
        let (program, prediction, _) = predicted(gpus, 1e-3, "ssgd", Some(Input { prefetch: 0, ..files() }));
        for (kinds, step) in prediction.timeline.kinds_by_step(&program).iter().zip(prediction.timeline.step_times_s())
        {
            let ahead = ["read", "decode", "upload"];
            let all: f64 = kinds.iter().filter(|(kind, _)| !ahead.contains(kind)).map(|(_, seconds)| seconds).sum();
            assert!((all / step - 1.0).abs() < 1e-9 && kinds[lockstep_models::INPUT_WAIT] > 0.5 * step, "{kinds:?}");
        }
    }
}

/// A request's latency occupies a thread, but no core: more threads hide it; what is in the page cache
/// needs no request.
#[test]
fn latency_is_hidden_by_threads_and_caches() {
    let with = |latency: f64, threads: u32, page_cache: u64| {
        let source = SampleSource::Files { bandwidth: rate(1e12), latency: ms(latency), page_cache: Bytes(page_cache) };
        let input = Input { source, threads, decode: ms(2.0), prefetch: 4, ..files() };
        mean_s(&predicted(1, 1e-4, "ssgd", Some(input)).1)
    };
    let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 2e-3, "{found}, {expected}");
    close(with(0.0, 8, 0), 4e-3);
    close(with(12.0, 8, 0), 14e-3);
    close(with(12.0, 32, 0), 4e-3);
    // Half of the set of 1 GB is in memory, and 0.5·(1 + ln 2) of the reads miss it.
    close(with(12.0, 8, 500_000_000), (0.5 * (1.0 + libm::log(2.0)) * 12.0 + 2.0) * 1e-3);
    close(with(12.0, 8, 2_000_000_000), 4e-3);
}

/// The slow reference is a list of the samples in the order of their last use, cut at the size of the cache.
#[test]
fn reshuffled_epochs_miss_a_cache_as_the_closed_form_says() {
    use rand_chacha::rand_core::{Rng, SeedableRng};
    const SAMPLES: usize = 1_000;
    const EPOCHS: usize = 6;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(17);
    for share in [0.0, 0.1, 0.3, 0.5, 0.8, 0.95, 1.0] {
        let room = (share * SAMPLES as f64) as usize;
        let (mut order, mut cache, mut missed) = ((0..SAMPLES).collect::<Vec<_>>(), Vec::new(), 0);
        for epoch in 0..EPOCHS {
            (1..SAMPLES).rev().for_each(|last| order.swap(last, rng.next_u32() as usize % (last + 1)));
            for sample in &order {
                match cache.iter().rposition(|kept| kept == sample) {
                    Some(at) => drop(cache.remove(at)),
                    // The first epoch misses all.
                    None => missed += usize::from(epoch > 0),
                }
                cache.push(*sample);
                cache.drain(..cache.len().saturating_sub(room));
            }
        }
        let found = missed as f64 / (SAMPLES * (EPOCHS - 1)) as f64;
        assert!((found - missed_share(share)).abs() < 0.03, "{share}: {found}, {}", missed_share(share));
    }
}

/// GPUs on one PCIe switch get their batches over one link of it.
#[test]
fn copies_share_links() {
    let cluster = Cluster::load("dgx-a100").expect("a preset");
    let copied = |gpus: u32| {
        let program = program(&Job { ahead: Some(0), ..mlp(gpus) });
        let world = World::new(cluster.clone(), gpus, &HostingRule::PerHost);
        let conditions =
            Conditions { input: Some(Input { prefetch: 0, ..in_memory(1, None) }), ..Conditions::default() };
        let costs = Flat::default();
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        let prediction = simulate(&program, &platform, LONG.driver(), &LONG).expect("a prediction");
        let is_upload = |task: u32| matches!(program.roles[0].tasks[task as usize].op, Op::Upload { .. });
        let of = |span: &&lockstep_models::Span| span.rank == 0 && span.iteration == 30 && is_upload(span.task);
        prediction.timeline.spans.iter().find(of).map(|span| (span.end - span.start).as_secs_f64()).expect("an upload")
    };
    // The first two GPUs are on one switch.
    let devices = [0, 1].map(|device| cluster.hosts()[0].devices[device]);
    let latency = cluster.route(devices[0], devices[1]).expect("a route").latency.as_secs_f64();
    let (one, two) = (copied(1), copied(2));
    assert!((two - one - (one - latency)).abs() < 1e-11, "{one} {two} {latency}");
}

/// In memory nothing is read; groups that hold the set together shuffle it; a group of a single node moves nothing.
#[test]
fn shuffles_are_spread_over_steps() {
    let shuffled = |groups, every| {
        let program = program(&Job { ahead: Some(2), ..mlp(4) });
        let world = World::new(tree(1, 4, 1, 1), 4, &HostingRule::PerHost);
        let costs = Flat { forward: 1e-3, backward: 1e-3, ..Flat::default() };
        let input = Input { decode: ms(0.1), ..in_memory(groups, every) };
        let conditions = Conditions { input: Some(input), ..Conditions::default() };
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        mean_s(&simulate(&program, &platform, LONG.driver(), &LONG).expect("a prediction"))
    };
    let never = shuffled(1, None);
    assert!(shuffled(1, Some(100)) > shuffled(1, Some(1000)) && shuffled(1, Some(1000)) > never);
    assert!((shuffled(4, Some(100)) / never - 1.0).abs() < 1e-9, "a node that holds all draws other indices");
    // Three quarters of 250 MB leave a node: packed and unpacked at 8 GB/s, and sent.
    let leaving = 0.75 * 0.25e9;
    let expected = 2.0 * leaving / 8e9 + leaving / WIRE;
    let spread = (shuffled(1, Some(100)) - never) * 100.0;
    assert!((spread / expected - 1.0).abs() < 0.01, "{spread}, {expected}");
}

#[test]
fn groups_must_divide_nodes_and_fit_their_memory() {
    let refused = |input: Input| {
        let world = World::new(tree(1, 4, 1, 1), 4, &HostingRule::PerHost);
        let (costs, conditions) = (Flat::default(), Conditions { input: Some(input), ..Conditions::default() });
        let platform = Platform { conditions: &conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
        let program = program(&Job { ahead: Some(2), ..mlp(4) });
        simulate(&program, &platform, SimOptions::SHORT.driver(), &SimOptions::SHORT).expect_err("refused").to_string()
    };
    assert!(refused(in_memory(3, None)).contains("divisor of the 4 nodes"));
    let large = Input { samples: 1 << 21, ..in_memory(4, None) };
    assert!(refused(large).contains("use fewer groups"));
}

/// Where everything goes through the first device, it copies the batches of all, and its main thread ends
/// jobs one by one.
#[test]
fn the_table_copies_all_to_one_device_and_ends_jobs_one_by_one() {
    let with = |strategy: &str, callback| {
        let job = Job { strategy: strategy.parse().expect("a strategy"), callback, ..mlp(2) };
        predicted_of(&job, 1e-3, Some(Input { prefetch: 0, ..in_memory(1, None) })).1
    };
    // After the claim, a read and a decode.
    let upload = |prediction: &Prediction| {
        let of = |span: &&lockstep_models::Span| span.rank == 0 && span.task == 3 && span.iteration == 30;
        prediction.timeline.spans.iter().find(of).map(|span| (span.end - span.start).as_secs_f64()).expect("an upload")
    };
    let (plain, table) = (with("ssgd", Time::ZERO), with("first-device-table", Time::ZERO));
    let batch = 8.0 * 784.0 * 4.0 / PCIE;
    assert!((upload(&table) - upload(&plain) - batch).abs() < 1e-11, "{} {}", upload(&table), upload(&plain));
    // Two devices end a job of the forward and one of the backward pass each.
    let slower = mean_s(&with("first-device-table", ms(1.0))) - mean_s(&table);
    assert!((slower - 4e-3).abs() < 1e-6, "{slower}");
    assert_close(mean_s(&with("ssgd", ms(1.0))), mean_s(&plain), "the optimised table has no such thread");
}

/// Each of N nodes packs, sends and unpacks N − 1 of N parts of what it holds; nothing else moves.
#[test]
fn the_time_of_a_shuffle_by_itself() {
    let world = World::new(tree(1, 4, 1, 1), 4, &HostingRule::PerHost);
    let costs = Flat::default();
    let platform = world.platform(&costs, NetworkModel::MaxMin);
    let seconds = |nodes, bytes| shuffle_time(&platform, SetPerNode { nodes, bytes }).map(Time::as_secs_f64);
    assert_eq!(seconds(1, 1 << 30).expect("nothing to do"), 0.0);
    for nodes in 2..=4u32 {
        let leaving = 1.2e9 * f64::from(nodes - 1) / f64::from(nodes);
        let expected = 2.0 * leaving / 8e9 + leaving / WIRE;
        let found = seconds(nodes, 1_200_000_000).expect("as many nodes");
        assert!((found / expected - 1.0).abs() < 0.001, "{nodes}: {found}, {expected}");
    }
    assert!(seconds(5, 1).expect_err("there are four").to_string().contains("only 4"));
}
