//! The closed forms against counted steps, and the formulas of the documentation against the closed forms.

use super::super::{Action, Algorithm, Collective, Group, Schedule};
use super::every_schedule;
use super::twin::{self, Order};

/// One lane after the other: the longest chain is one of a lane.
const ORDER: Order = Order { seed: 7, window: 1 };

/// Messages, elements, the largest message: formula and count agree for every schedule.
#[test]
fn closed_forms_are_what_is_counted() {
    for members in 1..=33 {
        every_schedule(members, |name, schedule| {
            let mut largest = 0;
            for member in 0..members {
                let (mut messages, mut elements) = (0, 0);
                for step in (0..schedule.lanes()).flat_map(|index| schedule.lane(member, index)) {
                    assert!(step.start < step.end && step.peer < members, "{name}: {step:?}");
                    if step.action == Action::Send {
                        (messages, elements) = (messages + 1, elements + step.elements());
                    } else {
                        largest = largest.max(step.elements());
                    }
                }
                assert_eq!(schedule.messages(member), messages, "{name}: messages of {member}");
                assert_eq!(schedule.elements_sent(member), elements, "{name}: elements of {member}");
                assert_eq!(schedule.bytes_sent(member), 4 * elements, "{name}");
            }
            assert_eq!(schedule.chunk_elements(), largest, "{name}: largest message");
            assert!(schedule.window() >= 1 && schedule.window() <= schedule.lanes().max(1), "{name}");
        });
    }
}

/// The longest chain of dependent messages is `rounds`, where no message is empty and nodes are alike.
#[test]
fn rounds_are_the_longest_chain_of_messages() {
    for members in 1..=33 {
        every_schedule(members, |name, schedule| {
            if schedule.elements() < 64 && members > 8 {
                return; // most of these are empty: the 64 and the 1001 elements say enough
            }
            let chain = twin::run(schedule, ORDER).expect("runs");
            assert!(chain <= schedule.rounds(), "{name}: {chain} > {}", schedule.rounds());
            let alike = !name.contains("hierarchical") || name.ends_with(&format!("{:?}", Group::nodes(&[members])));
            let exchange = matches!(schedule.collective(), Collective::AllToAllV { .. });
            // a lane of an allgather or reduce-scatter holds a part of each shard
            if schedule.elements() == 1001 && alike && !exchange {
                assert_eq!(chain, schedule.rounds(), "{name}");
            }
        });
    }
}

/// Rounds, messages and elements of an algorithm for `p` members and `n` elements, as documented.
struct Row {
    algorithm: &'static str,
    /// Rounds.
    rounds: fn(u64) -> u64,
    /// Most elements sent by a member.
    most: fn(u64, u64) -> u64,
    /// Elements sent by all members together.
    total: fn(u64, u64) -> u64,
}

/// ⌈log2 p⌉.
fn log(p: u64) -> u64 {
    u64::from(p.next_power_of_two().ilog2())
}

/// The table of `docs/collectives.md`, for p = 2, 4, 8, 16, 32 and n a multiple of p (and of the number of servers).
const TABLE: [Row; 9] = [
    Row { algorithm: "ring", rounds: |p| 2 * (p - 1), most: |p, n| 2 * n * (p - 1) / p, total: |p, n| 2 * n * (p - 1) },
    Row {
        algorithm: "halving-doubling",
        rounds: |p| 2 * log(p),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row { algorithm: "binomial-tree", rounds: |p| 2 * log(p), most: |p, n| n * log(p), total: |p, n| 2 * n * (p - 1) },
    Row {
        algorithm: "pipelined-chain",
        rounds: |p| 2 * (p - 1),
        most: |p, n| if p == 2 { n } else { 2 * n },
        total: |p, n| 2 * n * (p - 1),
    },
    Row { algorithm: "parameter-server:1", rounds: |_| 2, most: |p, n| n * (p - 1), total: |p, n| 2 * n * (p - 1) },
    Row {
        algorithm: "parameter-server:2",
        rounds: |_| 2,
        // its own shard to p − 1 workers, and the other shard to its server
        most: |p, n| n / 2 * (p - 1) + n / 2,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        algorithm: "parameter-server:1:dedicated",
        rounds: |_| 2,
        most: |p, n| n * (p - 1),
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        algorithm: "multi-color:1",
        rounds: |p| 2 * (p - 1),
        most: |p, n| if p == 2 { n } else { 2 * n },
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        algorithm: "library:mpi",
        rounds: |p| 2 * (p - 1),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
];

#[test]
fn the_documented_formulas_hold() {
    for row in &TABLE {
        for p in [2u64, 4, 8, 16, 32] {
            let n = 3200;
            let algorithm: Algorithm = row.algorithm.parse().expect("a known algorithm");
            let group = Group::flat(p as u32);
            let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, n, n).expect("serves");
            let sent: Vec<u64> = (0..p as u32).map(|member| schedule.elements_sent(member)).collect();
            assert_eq!(u64::from(schedule.rounds()), (row.rounds)(p), "{} p = {p}", row.algorithm);
            assert_eq!(sent.iter().copied().max(), Some((row.most)(p, n)), "{} p = {p}", row.algorithm);
            assert_eq!(sent.iter().sum::<u64>(), (row.total)(p, n), "{} p = {p}", row.algorithm);
        }
    }
}

/// Binary blocks: 2·⌊log2 p⌋ rounds for every p, and nothing sent twice: 2n(p − 1) elements in all.
#[test]
fn binary_blocks_send_no_more_than_needed() {
    for p in 1u32..=33 {
        let n = 3200;
        let schedule =
            Schedule::new(&Collective::AllReduce, &Algorithm::HalvingDoubling, &Group::flat(p), n, 0).expect("serves");
        assert_eq!(schedule.rounds(), 2 * p.ilog2());
        let total: u64 = (0..p).map(|member| schedule.elements_sent(member)).sum();
        assert_eq!(total, 2 * n * u64::from(p - 1), "p = {p}");
    }
    // 5 members: the single one sends four quarters and gets them back; the four each send one quarter more
    let schedule =
        Schedule::new(&Collective::AllReduce, &Algorithm::HalvingDoubling, &Group::flat(5), 400, 0).expect("serves");
    assert_eq!((0..5).map(|m| schedule.messages(m)).collect::<Vec<_>>(), [5, 5, 5, 5, 4]);
    assert_eq!((0..5).map(|m| schedule.elements_sent(m)).collect::<Vec<_>>(), [700, 700, 700, 700, 400]);
}

/// A hierarchical allreduce on nodes of s members: 2(s − 1) rounds more than across the leaders, 2n(p − 1) elements.
#[test]
fn nodes_add_their_chains() {
    for (nodes, size) in [(1u32, 4u32), (2, 4), (4, 2), (3, 3), (8, 1)] {
        let n = 2400;
        let group = Group::nodes(&vec![size; nodes as usize]);
        let algorithm = Algorithm::Hierarchical(Box::new(Algorithm::Ring));
        let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, n, 300).expect("serves");
        assert_eq!(schedule.rounds(), 2 * (size - 1) + 2 * (nodes - 1));
        assert_eq!(twin::run(&schedule, ORDER), Ok(schedule.rounds()));
        let total: u64 = (0..nodes * size).map(|member| schedule.elements_sent(member)).sum();
        assert_eq!(total, 2 * n * u64::from(nodes * size - 1));
    }
}
