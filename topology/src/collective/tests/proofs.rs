//! Tests the checker's proof of every algorithm, and its agreement with a replay on plain integers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::algorithms::tests::with;
use super::super::{Algorithm, Collective, Group, Schedule, check};
use super::reference::{self, Order};
use super::{every_schedule, sizes};

/// Every algorithm, up to 33 members, lengths that do not divide: proven, and the reduction order covers the buffer with
/// every contribution once.
#[test]
fn every_algorithm_is_proven_for_every_group() {
    let (mut proofs, mut proven) = (0, BTreeSet::new());
    for members in sizes() {
        every_schedule(members, |name, schedule| {
            let sums = check(schedule).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            proofs += 1;
            proven.extend(name.split(", ").next().map(str::to_owned));
            let summing = matches!(
                schedule.collective(),
                Collective::AllReduce
                    | Collective::AllReduceToLeaders
                    | Collective::ReduceScatter
                    | Collective::ReduceScatterV { .. }
                    | Collective::Reduce { .. }
            );
            if matches!(schedule.collective(), Collective::AllToAllV { .. }) {
                assert_eq!(sums.ranges().count(), 0, "{name}");
                return;
            }
            let mut end = 0;
            for (range, id) in sums.ranges() {
                assert_eq!(range.start, end, "{name}");
                end = range.end;
                // each contributor counts 2^m, so that the sum is all ones exactly if each is there once
                let folded = sums.fold(id, |member| 1u128 << member, |a, b| a + b);
                let everyone: u128 = (0..members).filter(|m| schedule.contributes(*m)).map(|m| 1 << m).sum();
                assert!(if summing { folded == everyone } else { folded.is_power_of_two() }, "{name}: {folded:b}");
            }
            assert_eq!(end, schedule.elements(), "{name}");
        });
    }
    assert!(proofs > 10_000, "{proofs} proofs");
    let collectives = super::collectives(3).into_iter().chain(super::counted(3).into_iter().map(|(one, ..)| one));
    for (collective, algorithm) in collectives.flat_map(|one| Algorithm::all().map(move |of| (one.clone(), of))) {
        let name = format!("{collective} by {algorithm}");
        assert_eq!(proven.contains(&name), algorithm.serves(&collective), "{name}");
    }
}

/// The same schedules run on integers, in random orders and with any window, by the simplest executor.
#[test]
fn integers_moved_by_the_steps_give_the_result_of_the_collective() {
    for members in [1, 2, 3, 4, 5, 7, 8, 11, 16, 23, 33] {
        let mut seed = 0;
        every_schedule(members, |name, schedule| {
            seed += 1;
            let window = [1, 2, schedule.window()][seed as usize % 3];
            reference::run(schedule, Order { seed, window }).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        });
    }
}

/// Floats added by the steps have the bits of the reduction order that the checker reports.
#[test]
fn the_reduction_order_gives_the_bits_of_the_sum() {
    // values whose sum depends on the reduction order
    let value = |member: u32, element: u64| (1.0 + f32::from(member as u16)).powi(9) / (element + 3) as f32;
    for members in [2, 3, 5, 8, 13] {
        for algorithm in super::allreduces() {
            let group = Group::nodes(&[members - members / 2, members / 2]);
            let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, 37, 10).expect("serves");
            let sums = check(&schedule).expect("proven");
            let ended = reference::floats(&schedule, value);
            for (range, id) in sums.ranges() {
                for element in range {
                    let expected = sums.fold(id, |member| value(member, element), |a, b| a + b);
                    for (member, buffer) in ended.iter().enumerate() {
                        let got = buffer[element as usize];
                        assert_eq!(got.to_bits(), expected.to_bits(), "{algorithm}: member {member}, {element}");
                    }
                }
            }
        }
    }
}

/// A ring of three by hand: block b starts at member b + 1 and is summed last by member b.
#[test]
fn the_reduction_order_of_a_ring_of_three() {
    let schedule = Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(3), 6, 0).expect("serves");
    let sums = check(&schedule).expect("proven");
    let shown: Vec<String> = sums.ranges().map(|(range, id)| format!("{range:?} {}", sums.describe(id))).collect();
    assert_eq!(shown, ["0..2 (0+(1+2))", "2..4 (1+(0+2))", "4..6 (2+(0+1))"]);
}

/// A server sums in member order, its own contribution first; a dedicated one starts with member 0.
#[test]
fn servers_sum_in_member_order() {
    let sum = |text: &str, members| {
        let algorithm = text.parse::<Algorithm>().expect("a known algorithm");
        let group = Group::flat(members);
        let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, 4, 0).expect("serves");
        let sums = check(&schedule).expect("proven");
        sums.ranges().map(|(_, id)| sums.describe(id).replace(['(', ')'], "")).collect::<Vec<_>>()
    };
    assert_eq!(sum("parameter-server:1", 4), ["3+2+0+1"]);
    assert_eq!(sum("parameter-server:1:dedicated", 4), ["2+0+1"]);
    // server 1 starts with its own: (1 + 0) + 2 is (0 + 1) + 2, so both shards have the same sum
    assert_eq!(sum("parameter-server:2", 3), ["2+0+1"]);
    assert_eq!(sum("parameter-server:3", 3), ["2+0+1", "1+0+2"]);
}

/// Long buffers cost steps and not elements: 1.1 million elements among 8 members.
#[test]
fn long_buffers_are_checked_by_segments() {
    for algorithm in super::allreduces() {
        let group = Group::nodes(&[4, 4]);
        let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, 1_111_946, 16 * 1024).expect("serves");
        let sums = check(&schedule).unwrap_or_else(|fault| panic!("{algorithm}: {fault}"));
        assert!(sums.ranges().count() <= 8 * schedule.lanes() as usize, "{algorithm}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Groups beyond the systematic ones, with any nodes, lengths, chunks, colours and servers.
    #[test]
    fn larger_groups_are_proven(
        sizes in prop::collection::vec(1u32..9, 1..16),
        elements in 0u64..5000,
        lanes in 1u64..6,
        pick in 0usize..100,
        count in 1u32..12,
        large: bool,
    ) {
        // Nodes form chains for large buffers.
        let elements = elements + if large { 65_536 } else { 0 };
        let group = Group::nodes(&sizes);
        let mut algorithms = with(&[1, count], &[1, count]);
        algorithms.retain(|one| one.serves(&Collective::AllReduce));
        let algorithm = &algorithms[pick % algorithms.len()];
        let more = count > group.node_count() || count + 1 > group.members();
        prop_assume!(!(algorithm.to_string().contains("server") && more));
        // A member with data in each of its nodes.
        prop_assume!(algorithm.switches() == 0 || algorithm.switches() + count.max(2) <= group.members());
        let schedule = Schedule::new(&Collective::AllReduce, algorithm, &group, elements, elements.div_ceil(lanes));
        let schedule = schedule.map_err(|refusal| TestCaseError::fail(refusal.to_string()))?;
        check(&schedule).map_err(|fault| TestCaseError::fail(format!("{algorithm}: {fault}")))?;
    }
}
