//! Tests the data-parallel table whose batches go through a node's first device: its timeline by hand, and its traffic.

use lockstep_models::Bucket;

use super::world::tree;
use super::*;

fn job(ranks: u32, nodes: Vec<u32>) -> Job {
    let strategy = "first-device-table".parse().expect("a strategy");
    Job { strategy, bucket: Bucket::Whole, node_sizes: Some(nodes), ..mlp(ranks) }
}

/// A node of two: forward 10 ms and backward 20 ms a chain, 5 ms a copy or an update, 1 ms for each message received.
#[test]
fn one_node_of_two_devices_by_hand() {
    let message = MessageCost { overhead: 1e-3, ..MessageCost::default() };
    let costs = Flat { forward: 10e-3, backward: 20e-3, update: 5e-3, message, ..Flat::default() };
    let program = program(&job(2, vec![2]));
    let prediction = World::host(2, 2).predict(&program, &costs, &SimOptions::default()).expect("a prediction");
    let of = |rank: u32| -> Vec<(&str, u64, u64)> {
        let spans = prediction.timeline.spans.iter().filter(|span| span.rank == rank && span.iteration == 0);
        let millis = |time: Time| time.0 / 1_000_000_000;
        let name = |task: u32| program.roles[program.role_of(rank)].tasks[task as usize].name.as_str();
        let mut all: Vec<_> = spans.map(|span| (span.task, millis(span.start), millis(span.end))).collect();
        all.sort_unstable();
        all.into_iter().map(|(task, start, end)| (name(task), start, end)).collect()
    };
    // The first rank computes the loss of both batches, while the other one waits; it has no copy of others'
    // samples either.
    let expected = |first: bool| {
        let own = |start, end, idle: (u64, u64)| if first { (start, end) } else { idle };
        let mut rows = vec![("load", 0, 0), ("scatter inputs", 0, 1), ("unpack inputs", 1, 6)];
        rows.extend([("forward hidden+relu", 6, 16), ("forward scores", 16, 26), ("pack scores", 26, 31)]);
        rows.push(("gather scores", 31, 32));
        for (name, own) in [
            ("end forward jobs scores", own(32, 32, (32, 32))),
            ("unpack scores", own(32, 37, (32, 32))),
            ("forward loss", own(37, 47, (32, 32))),
            ("backward-data loss", own(47, 67, (32, 32))),
            ("pack scores gathered gradient", own(67, 72, (32, 32))),
            ("scatter scores gradient", own(72, 73, (32, 73))),
        ] {
            rows.push((name, own.0, own.1));
        }
        rows.extend([("unpack scores gradient", 73, 78), ("backward scores", 78, 98)]);
        rows.extend([("backward-weight hidden+relu", 98, 118), ("end backward jobs", 118, 118)]);
        rows.extend([("allreduce hidden..scores", 118, 120)]);
        rows.push(("update hidden..scores", 120, 125));
        rows
    };
    let named = |(name, start, end): &(&str, u64, u64)| (name.replace("relu1", "relu"), *start, *end);
    for rank in 0..2 {
        let found: Vec<_> = of(rank).iter().map(named).collect();
        let expected: Vec<_> = expected(rank == 0).iter().map(|(n, s, e)| ((*n).to_owned(), *s, *e)).collect();
        assert_eq!(found, expected, "rank {rank}");
    }
    assert_close(prediction.timeline.step_time_s(), 125e-3, "a step");
}

/// The first device of each node sends (g − 1)·b samples and as many gradients of scores; the others send their
/// scores back.
#[test]
fn batches_leave_the_first_device_and_scores_come_back() {
    let program = program(&job(6, vec![3, 3]));
    let options = SimOptions::default();
    let world = World::new(tree(3, 2, 1, 1), 6, &HostingRule::PerHost);
    let prediction = world.predict(&program, &Flat::default(), &options).expect("a prediction");
    let ring = program.schedule(program.roles[0].exchanges().last().expect("an allreduce").1, 0).expect("serves");
    let steps = u64::from(options.warm_up + options.counted);
    let (inputs, scores) = (8 * 28 * 28 * 4, 8 * 10 * 4);
    for rank in 0..6 {
        let sent: u64 =
            prediction.traffic.pairs.iter().filter(|((from, _), _)| *from == rank).map(|(_, sent)| sent.bytes).sum();
        let in_node = if rank % 3 == 0 { 2 * (inputs + scores) } else { scores };
        assert_eq!(sent, steps * (in_node + ring.bytes_sent(rank)), "rank {rank}");
    }
}
