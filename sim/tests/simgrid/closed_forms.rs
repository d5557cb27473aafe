//! Tests that each algorithm on a network without contention takes the time of its closed form, to 1e-6.
//!
//! Ranks cost nothing and messages are sent when they are posted, so that a message takes T(m) = α + m·β and a
//! collective as many of them as the longest chain of dependent ones in `docs/collectives.md` has. The additional time
//! of receivers' threads is tested in the crate's own tests.

use lockstep_sim::{CollectiveRun, FoldRule, MessageCost, NetworkModel, Platform, simulate_collective};
use lockstep_topology::{Collective, Dtype, Group, Hosting, HostingRule, Placement, PlacementRule};

use crate::clusters::{self, EDGE, Latencies, Shape, UNIT_PS};
use crate::world::Flat;

/// Elements of the buffer: one chunk of the pipelined algorithms, a multiple of all group sizes and server counts here.
const ELEMENTS: u64 = 61_440;

/// Seconds of a message with the `part`-th part of the buffer.
fn message(part: f64) -> f64 {
    2.0 * UNIT_PS as f64 * 1e-12 + (ELEMENTS * 4) as f64 / part / EDGE
}

/// log₂ of a power of two.
fn log(p: f64) -> f64 {
    p.log2()
}

/// Levels below the root of a k-ary tree of p members numbered breadth first: ⌈log_k((k − 1)p + 1)⌉ − 1.
fn depth(k: u32, p: f64) -> f64 {
    f64::from((1..).find(|levels| f64::from(k.pow(*levels)) > f64::from(k - 1) * p).unwrap_or(0)) - 1.0
}

/// A collective, an algorithm, whether no two messages of it share a link of a star, and its seconds among p ranks.
type Row = (&'static str, &'static str, bool, fn(f64) -> f64);

const ROWS: [Row; 18] = [
    ("allreduce", "ring", true, |p| 2.0 * (p - 1.0) * message(p)),
    // A half with the first partner, a quarter with the second …, and back.
    ("allreduce", "halving-doubling", true, |p| 2.0 * (1..=log(p) as i32).map(|k| message(2f64.powi(k))).sum::<f64>()),
    ("allreduce", "binomial-tree", false, |p| 2.0 * log(p) * message(1.0)),
    ("allreduce", "pipelined-chain", true, |p| 2.0 * (p - 1.0) * message(1.0)),
    ("allreduce", "multi-color:2", false, |p| 2.0 * depth(2, p) * message(2.0)),
    ("allreduce", "multi-color:3", false, |p| 2.0 * depth(3, p) * message(3.0)),
    ("allreduce", "parameter-server:1", false, |_| 2.0 * message(1.0)),
    ("allreduce", "parameter-server:2", false, |_| 2.0 * message(2.0)),
    ("allreduce", "parameter-server:1:dedicated", false, |_| 2.0 * message(1.0)),
    ("allreduce", "library:mpi", true, |p| 2.0 * (1..=log(p) as i32).map(|k| message(2f64.powi(k))).sum::<f64>()),
    // Nodes of two: a message up, the ring of the leaders, a message down.
    ("allreduce", "hierarchical:ring", true, |p| 2.0 * message(1.0) + 2.0 * (p / 2.0 - 1.0) * message(p / 2.0)),
    ("allreduce", "hierarchical:binomial-tree", false, |p| 2.0 * log(p) * message(1.0)),
    ("reduce-scatter", "ring", true, |p| (p - 1.0) * message(p)),
    ("allgather", "ring", true, |p| (p - 1.0) * message(p)),
    ("broadcast", "binomial-tree", false, |p| log(p) * message(1.0)),
    ("broadcast", "pipelined-chain", true, |p| (p - 1.0) * message(1.0)),
    ("reduce", "binomial-tree", false, |p| log(p) * message(1.0)),
    ("reduce", "pipelined-chain", true, |p| (p - 1.0) * message(1.0)),
];

/// Seconds of a collective among `ranks` hosts of a star.
fn seconds(collective: &Collective, algorithm: &str, ranks: u32, elements: u64, network: NetworkModel) -> f64 {
    let cluster = clusters::shaped(Shape::Star { jitter: false }, ranks, 0, Latencies::Equal);
    let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack).expect("there are places");
    let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("a process each");
    let costs = Flat { message: MessageCost { eager_bytes: u64::MAX, ..MessageCost::default() }, ..Flat::default() };
    let platform = Platform {
        cluster: &cluster,
        placement: &placement,
        hosting: &hosting,
        costs: &costs,
        network,
        conditions: lockstep_sim::Conditions::none(),
    };
    let nodes = algorithm.starts_with("hierarchical").then(|| Group::nodes(&vec![2; ranks as usize / 2]));
    let run = CollectiveRun {
        collective: collective.clone(),
        algorithm: algorithm.parse().expect("an algorithm"),
        group: nodes.unwrap_or(Group::flat(ranks)),
        elements,
        dtype: Dtype::F32,
        chunk: 0,
        window: 0,
        fold: FoldRule::Never,
        padded: false,
        long_way: false,
    };
    simulate_collective(&run, &platform).expect("it runs").time.as_secs_f64()
}

#[track_caller]
fn assert_close(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{what}: {found} s instead of {expected} s");
}

#[test]
fn every_algorithm_takes_its_closed_form() {
    for (collective, algorithm, alone, form) in ROWS {
        let meaning: Collective = collective.parse().expect("a collective");
        for p in [4u32, 8, 16] {
            let expected = form(f64::from(p));
            let networks =
                if alone { vec![NetworkModel::AlphaBeta, NetworkModel::MaxMin] } else { vec![NetworkModel::AlphaBeta] };
            for network in networks {
                let what = format!("{collective} by {algorithm} among {p}, {network:?}");
                assert_close(seconds(&meaning, algorithm, p, ELEMENTS, network), expected, &what);
            }
        }
    }
}

#[test]
fn an_all_to_all_takes_a_message_per_other_rank() {
    for p in [2u32, 3, 8, 15] {
        for network in [NetworkModel::AlphaBeta, NetworkModel::MaxMin] {
            let collective = Collective::AllToAllV { counts: vec![ELEMENTS; (p * p) as usize].into() };
            let found = seconds(&collective, "pairwise", p, ELEMENTS * u64::from(p), network);
            assert_close(found, f64::from(p - 1) * message(1.0), &format!("pairwise among {p}, {network:?}"));
        }
    }
}

#[test]
fn a_library_sends_small_buffers_by_recursive_doubling() {
    // The whole buffer, log₂ p times, both partners at once.
    let small = 1_000u32;
    let once = 2.0 * UNIT_PS as f64 * 1e-12 + f64::from(small) * 4.0 / EDGE;
    for p in [2u32, 8, 16] {
        for network in [NetworkModel::AlphaBeta, NetworkModel::MaxMin] {
            let found = seconds(&Collective::AllReduce, "library:mpi", p, u64::from(small), network);
            assert_close(found, log(f64::from(p)) * once, &format!("recursive doubling among {p}, {network:?}"));
        }
    }
}
