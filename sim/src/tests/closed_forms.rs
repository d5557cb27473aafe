//! Tests that collectives on networks without contention take the times of their closed forms.

use super::*;

const ALPHA: f64 = 3e-6;
const BETA: f64 = 2e-10;
const GAMMA: f64 = 5e-10;

/// Messages in a host's memory: α to wake, the receiver's thread copies at β or sums at γ.
fn in_memory() -> Flat {
    let message = MessageCost { latency: ALPHA, copy: BETA, sum: GAMMA, ..MessageCost::default() };
    Flat { message, ..Flat::default() }
}

/// log₂ of a power of two.
fn log(p: u32) -> f64 {
    f64::from(p.ilog2())
}

/// For each algorithm the seconds of an allreduce of n bytes among p ranks, one lane.
type Form = fn(p: f64, log: f64, n: f64) -> f64;

#[test]
fn allreduce_in_memory() {
    let forms: [(&str, Form); 5] = [
        // p − 1 rounds that sum n/p, p − 1 that copy n/p.
        ("ring", |p, _, n| 2.0 * (p - 1.0) * ALPHA + (p - 1.0) / p * n * (BETA + GAMMA)),
        // Halves, quarters …: n(p − 1)/p each way.
        ("halving-doubling", |p, log, n| 2.0 * log * ALPHA + (p - 1.0) / p * n * (BETA + GAMMA)),
        // The root's children come in one a round; all wait for the deepest.
        ("binomial-tree", |_, log, n| log * (2.0 * ALPHA + n * (BETA + GAMMA))),
        // One lane: from one end to the other and back.
        ("pipelined-chain", |p, _, n| (p - 1.0) * (2.0 * ALPHA + n * (BETA + GAMMA))),
        // The server adds p − 1 contributions one after the other; the others copy at the same time.
        ("parameter-server:1", |p, _, n| 2.0 * ALPHA + (p - 1.0) * n * GAMMA + n * BETA),
    ];
    for p in [2u32, 4, 8, 16] {
        let world = World::host(p, p);
        for (algorithm, form) in forms {
            let elements = 1 << 20;
            let run = world.allreduce(algorithm, elements, elements, &in_memory(), NetworkModel::MaxMin);
            let expected = form(f64::from(p), log(p), (elements * 4) as f64);
            assert_close(run.time.as_secs_f64(), expected, &format!("{algorithm} among {p}"));
        }
    }
}

#[test]
fn one_rank_needs_no_time() {
    let run = World::host(1, 1).allreduce("ring", 1000, 0, &in_memory(), NetworkModel::MaxMin);
    assert_eq!((run.time, run.busbw, run.traffic.total().messages), (Time::ZERO, 0.0, 0));
}

#[test]
fn busbw_of_a_ring_equals_the_link_bandwidth() {
    // Without latency a ring keeps each link busy all the time: 1 GB/s.
    let world = World::star(4);
    let run = world.allreduce("ring", 1 << 24, 0, &Flat::default(), NetworkModel::MaxMin);
    assert!((run.busbw / 1e9 - 1.0).abs() < 1e-2, "{}", run.busbw);
}

/// 10 µs and 1 GB/s, and threads that cost nothing.
const HOP: f64 = 10e-6;
const WIRE: f64 = 1e-9;

#[test]
fn allreduce_over_links() {
    for network in [NetworkModel::AlphaBeta, NetworkModel::MaxMin] {
        for p in [2u32, 4, 8] {
            let world = World::star(p);
            let elements = 1 << 20;
            let n = (elements * 4) as f64;
            let ring = world.allreduce("ring", elements, elements, &Flat::default(), network);
            let expected = 2.0 * f64::from(p - 1) * (HOP + n / f64::from(p) * WIRE);
            assert_close(ring.time.as_secs_f64(), expected, &format!("ring among {p}, {network:?}"));
            let halving = world.allreduce("halving-doubling", elements, elements, &Flat::default(), network);
            let expected = 2.0 * (log(p) * HOP + n * f64::from(p - 1) / f64::from(p) * WIRE);
            assert_close(halving.time.as_secs_f64(), expected, &format!("halving-doubling among {p}, {network:?}"));
        }
    }
}

#[test]
fn a_chain_is_pipelined_by_chunk() {
    // 2(p − 1) hops for the first of m chunks, and the others directly after it, one chunk's bytes apart.
    let (p, m, chunk) = (4u32, 16u32, 1u64 << 16);
    let run = World::star(p).allreduce(
        "pipelined-chain",
        u64::from(m) * chunk,
        chunk,
        &Flat::default(),
        NetworkModel::AlphaBeta,
    );
    let bytes = (chunk * 4) as f64 * WIRE;
    let expected = 2.0 * f64::from(p - 1) * (HOP + bytes) + f64::from(m - 1) * bytes;
    assert!((run.time.as_secs_f64() / expected - 1.0).abs() < 0.05, "{} instead of {expected}", run.time);
}

#[test]
fn overhead_is_counted_per_message_received() {
    // Each of 2(p − 1) rounds adds o; nothing else costs.
    let message = MessageCost { overhead: 7e-6, ..MessageCost::default() };
    let run =
        World::host(4, 4).allreduce("ring", 4096, 4096, &Flat { message, ..Flat::default() }, NetworkModel::MaxMin);
    assert_close(run.time.as_secs_f64(), 6.0 * 7e-6, "ring of overheads");
}

#[test]
fn traffic_equals_that_of_the_schedule() {
    for algorithm in [
        "ring",
        "halving-doubling",
        "binomial-tree",
        "tree:3",
        "pipelined-chain",
        "multi-color:2",
        "parameter-server:2",
    ] {
        for p in 2..=9 {
            let run = World::host(p, p).allreduce(algorithm, 1001, 100, &in_memory(), NetworkModel::MaxMin);
            let schedule = lockstep_topology::Schedule::new(
                &Collective::AllReduce,
                &algorithm.parse().expect("an algorithm"),
                &Group::flat(p),
                1001,
                100,
            )
            .expect("a schedule");
            for member in 0..p {
                let sent = run.traffic.pairs.iter().filter(|((from, _), _)| *from == member);
                let (messages, bytes) = sent.fold((0, 0), |sum, (_, s)| (sum.0 + s.messages, sum.1 + s.bytes));
                let expected = (schedule.messages(member), schedule.bytes_sent(member));
                assert_eq!((messages, bytes), expected, "{algorithm} among {p}, member {member}");
            }
        }
    }
}

#[test]
fn ranks_that_outnumber_their_cores_are_woken() {
    let time = |cores: u32, latency: f64, wake: f64| {
        let costs = Flat { message: MessageCost { latency, wake, ..MessageCost::default() }, ..Flat::default() };
        World::host(cores, 3).allreduce("ring", 300, 0, &costs, NetworkModel::MaxMin).time.as_secs_f64()
    };
    // Four steps, each of one message that is waited for.
    assert_close(time(1, 3e-6, 2e-5), 4.0 * 4.3e-5, "two others on the core");
    assert_close(time(2, 3e-6, 2e-5), 4.0 * 1.3e-5, "half another on each core");
    assert_close(time(3, 3e-6, 2e-5), 4.0 * 3e-6, "each on a core of its own");
}
