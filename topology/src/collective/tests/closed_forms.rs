//! Compares the closed forms with counted steps.

use super::super::{Action, Algorithm, Collective, Group, Schedule};
use super::reference::{self, Order};
use super::{every_schedule, sizes};
use crate::Dtype;

/// One lane after the other: the longest chain is one of a lane.
const ORDER: Order = Order { seed: 7, window: 1 };

/// Messages, elements, the largest message: formula and count agree for every schedule. The scratch of a lane has room
/// for the largest sum, and there is none where nothing is summed.
#[test]
fn closed_forms_equal_counts() {
    for members in sizes() {
        every_schedule(members, |name, schedule| {
            let (mut largest, mut summed) = (0, 0);
            for member in 0..members {
                let (mut messages, mut elements) = (0, 0);
                for step in (0..schedule.lanes()).flat_map(|index| schedule.lane(member, index)) {
                    assert!(step.start < step.end && step.peer < members, "{name}: {step:?}");
                    if step.action == Action::Send {
                        (messages, elements) = (messages + 1, elements + step.elements());
                    } else {
                        largest = largest.max(step.elements());
                    }
                    if step.action == Action::RecvSum {
                        summed = summed.max(step.elements());
                    }
                }
                assert_eq!(schedule.messages(member), messages, "{name}: messages of {member}");
                assert_eq!(schedule.elements_sent(member), elements, "{name}: elements of {member}");
                assert_eq!(schedule.bytes_sent(member), 4 * elements, "{name}");
            }
            assert_eq!(schedule.chunk_elements(), largest, "{name}: largest message");
            let scratch = schedule.scratch_elements(1);
            assert!(scratch >= summed, "{name}: largest sum");
            assert!(schedule.collective().sums() || scratch == 0, "{name}: nothing is summed");
            assert!(schedule.window() >= 1 && schedule.window() <= schedule.lanes().max(1), "{name}");
        });
    }
}

/// The longest chain of dependent messages is `rounds`, where no message is empty and nodes are alike.
#[test]
fn rounds_are_the_longest_chain_of_messages() {
    for members in sizes() {
        every_schedule(members, |name, schedule| {
            if schedule.elements() < 64 && members > 8 {
                return; // most of these are empty: the 64 and the 1001 elements say enough
            }
            let chain = reference::run(schedule, ORDER).expect("runs");
            assert!(chain <= schedule.rounds(), "{name}: {chain} > {}", schedule.rounds());
            let by_depth = name.contains("hierarchical") || name.contains("double-tree");
            // The longest chain occurs where all nodes are as large as the largest.
            let even = name.strip_prefix("allreduce by nvls-tree:").is_none_or(|rest| {
                let nodes: u32 =
                    rest.split(',').next().and_then(|nodes| nodes.parse().ok()).expect("a number of nodes");
                (members - nodes).is_multiple_of(nodes)
            });
            let alike = even && !by_depth || name.ends_with(&format!("{:?}", Group::nodes(&[members])));
            let exchange = matches!(schedule.collective(), Collective::AllToAllV { .. });
            // a lane of an allgather or reduce-scatter holds a part of each shard
            if schedule.elements() == 1001 && alike && !exchange {
                assert_eq!(chain, schedule.rounds(), "{name}");
            }
        });
    }
}

/// Binary blocks: 2·⌊log2 p⌋ rounds for every p, and nothing sent twice: 2n(p − 1) elements in all.
#[test]
fn binary_blocks_send_no_more_than_needed() {
    let halving: Algorithm = "halving-doubling".parse().expect("a known algorithm");
    for p in 1u32..=33 {
        let n = 3200;
        let schedule = Schedule::new(&Collective::AllReduce, &halving, &Group::flat(p), n, 0).expect("serves");
        assert_eq!(schedule.rounds(), 2 * p.ilog2());
        let total: u64 = (0..p).map(|member| schedule.elements_sent(member)).sum();
        assert_eq!(total, 2 * n * u64::from(p - 1), "p = {p}");
    }
    // 5 members: the single one sends four quarters and gets them back; the four each send one quarter more
    let schedule = Schedule::new(&Collective::AllReduce, &halving, &Group::flat(5), 400, 0).expect("serves");
    assert_eq!((0..5).map(|m| schedule.messages(m)).collect::<Vec<_>>(), [5, 5, 5, 5, 4]);
    assert_eq!((0..5).map(|m| schedule.elements_sent(m)).collect::<Vec<_>>(), [700, 700, 700, 700, 400]);
}

/// A hierarchical allreduce on nodes of s members: 2(s − 1) rounds more than across the leaders, 2n(p − 1) elements.
#[test]
fn nodes_add_the_cost_of_their_chains() {
    for (nodes, size) in [(1u32, 4u32), (2, 4), (4, 2), (3, 3), (8, 1)] {
        let n = 72_000; // 288,000 bytes
        let group = Group::nodes(&vec![size; nodes as usize]);
        let algorithm = Algorithm::hierarchical(Algorithm::ring());
        let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, n, 9000).expect("serves");
        assert_eq!(schedule.rounds(), 2 * (size - 1) + 2 * (nodes - 1));
        assert_eq!(reference::run(&schedule, ORDER), Ok(schedule.rounds()));
        let across =
            Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(nodes), n, 9000).expect("serves");
        let in_node = |member: u32| match (member % size, size) {
            (0, _) => across.elements_sent(member / size) + if size > 1 { n } else { 0 },
            (local, size) => {
                if local + 1 < size {
                    2 * n
                } else {
                    n
                }
            }
        };
        assert!((0..nodes * size).all(|member| schedule.elements_sent(member) == in_node(member)));
        let total: u64 = (0..nodes * size).map(|member| schedule.elements_sent(member)).sum();
        assert_eq!(total, 2 * n * u64::from(nodes * size - 1));
        // Where leaders alone get the sum, nothing is sent down: s − 1 rounds and n(p − g) elements more than
        // across g leaders.
        let once = Schedule::new(&Collective::AllReduceToLeaders, &algorithm, &group, n, 9000).expect("serves");
        assert_eq!(once.rounds(), size - 1 + 2 * (nodes - 1));
        assert_eq!(reference::run(&once, ORDER), Ok(once.rounds()));
        let total = |schedule: &Schedule| -> u64 { (0..schedule.members()).map(|m| schedule.elements_sent(m)).sum() };
        assert_eq!(total(&once), total(&across) + n * u64::from(nodes * size - nodes));
    }
}

/// Below 262,144 bytes the members of a node exchange with their leader directly: two rounds more than across the
/// leaders, whatever the node's size; a leader sends its s − 1 members a copy each, and they send theirs once.
#[test]
fn small_buffers_use_the_star() {
    let algorithm = Algorithm::hierarchical(Algorithm::ring());
    let group = Group::nodes(&[4, 4]);
    let of = |n| Schedule::new(&Collective::AllReduce, &algorithm, &group, n, 0).expect("serves");
    assert_eq!((of(65_535).rounds(), of(65_536).rounds()), (2 + 2, 6 + 2), "262,140 and 262,144 bytes");
    let n = 2400;
    assert_eq!(reference::run(&of(n), ORDER), Ok(4));
    let across = Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(2), n, 0).expect("serves");
    for member in 0..8 {
        let own = if member % 4 == 0 { across.elements_sent(member / 4) + 3 * n } else { n };
        assert_eq!(of(n).elements_sent(member), own);
    }
    // A node of two is a chain and a star at once, a node of one neither.
    for size in [1, 2] {
        let group = Group::nodes(&[size, size]);
        let rounds = |n| Schedule::new(&Collective::AllReduce, &algorithm, &group, n, 0).expect("serves").rounds();
        assert_eq!(rounds(65_535), rounds(65_536));
    }
}

/// Multi-colour trees: 2n elements at most from a member where inner members are disjoint, 2n(p − 1) in all, and
/// 2·(⌈log_k((k − 1)p + 1)⌉ − 1) rounds.
#[test]
fn colors_send_twice_the_buffer_at_most() {
    for colors in 2u32..=6 {
        for p in colors..=33 {
            let n = 60 * 7;
            let algorithm: Algorithm = format!("multi-color:{colors}").parse().expect("a known algorithm");
            let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(p), n, 70).expect("serves");
            let sent: Vec<u64> = (0..p).map(|member| schedule.elements_sent(member)).collect();
            assert_eq!(sent.iter().sum::<u64>(), 2 * n * u64::from(p - 1));
            if colors * (p - 1).div_ceil(colors) <= p {
                assert!(sent.iter().all(|sent| *sent <= 2 * n), "{colors} on {p}: {sent:?}");
            }
            let levels = (1..).find(|levels| colors.pow(*levels) > (colors - 1) * p).unwrap_or(0);
            // ⌈log_k(m + 1)⌉ is the first power above m
            assert_eq!(schedule.rounds(), 2 * (levels - 1), "{colors} on {p}");
        }
    }
}

/// A pairwise exchange with no empty block has p − 1 rounds, and p messages, one of which is to itself.
#[test]
fn an_exchange_takes_one_round_per_distance() {
    for p in 1u32..=9 {
        let collective = Collective::AllToAllV { counts: vec![2; (p * p) as usize].into() };
        let schedule = Schedule::new(&collective, &Algorithm::pairwise(), &Group::flat(p), 2 * u64::from(p), 0);
        let schedule = schedule.expect("serves");
        assert_eq!(schedule.rounds(), p - 1);
        assert_eq!(reference::run(&schedule, ORDER), Ok(p - 1));
        assert_eq!((schedule.messages(p - 1), schedule.elements_sent(p - 1)), (u64::from(p), 2 * u64::from(p)));
    }
}

/// Sizes of chunks, and where an algorithm changes its way, are bytes: twice as many elements of half the bytes take as
/// many lanes and rounds, and send as many bytes.
#[test]
fn thresholds_are_bytes_whatever_the_format() {
    for name in ["double-tree:4", "tree:1", "hierarchical:ring", "hierarchical:tree:1", "library:mpi", "ring"] {
        let algorithm: Algorithm = name.parse().expect("an algorithm");
        let group = if name.starts_with("hierarchical") { Group::nodes(&[4, 4]) } else { Group::flat(8) };
        for kib in [8, 64, 128, 192, 256, 512, 4096] {
            let of = |elements, dtype| {
                let schedule = Schedule::of(&Collective::AllReduce, &algorithm, &group, (elements, dtype), 0);
                let schedule = schedule.expect("it serves");
                (schedule.lanes(), schedule.rounds(), schedule.bytes_sent(1))
            };
            let half = of(kib << 9, Dtype::Bf16);
            assert_eq!(of(kib << 8, Dtype::F32), half, "{name}, {kib} KiB");
        }
    }
}
