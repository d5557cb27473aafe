//! Proves every algorithm among the leaders of nodes: few and many nodes, even and uneven ones, buffers on both sides
//! of the star's limit, one lane and several, with remainders.

use super::super::algorithms::tests::with;
use super::super::{Action, Algorithm, Collective, Group, Schedule, check};
use super::reference::{self, Order};

/// Elements from which nodes are chains and no longer stars.
const CHAINS: u64 = 65_536;

/// The algorithms that may run among `leaders`: with a single one any number of servers, since it exchanges nothing.
fn across(leaders: u32) -> Vec<Algorithm> {
    let most = if leaders == 1 { 5 } else { leaders };
    let serves = |one: &Algorithm| {
        one.serves(&Collective::AllReduce) && one.library().is_none() && !one.by_nodes() && one.servers() == 0
    };
    with(&(1..=most).collect::<Vec<_>>(), &[]).into_iter().filter(serves).collect()
}

fn nested(collective: &Collective, across: Algorithm, sizes: &[u32], elements: u64, chunk: u64) -> Schedule {
    let algorithm = Algorithm::hierarchical(across);
    Schedule::new(collective, &algorithm, &Group::nodes(sizes), elements, chunk)
        .unwrap_or_else(|error| panic!("{algorithm} {sizes:?} {elements} {chunk}: {error}"))
}

/// Proves the collective, compares closed forms with lanes, and proves it again rounded up to even parts.
fn holds(schedule: &Schedule, name: &str) {
    let sums = check(schedule).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    assert_eq!(sums.ranges().map(|(range, _)| range.end - range.start).sum::<u64>(), schedule.elements(), "{name}");
    for member in 0..schedule.members() {
        let sent: Vec<u64> = (0..schedule.lanes())
            .flat_map(|lane| schedule.lane(member, lane))
            .filter(|step| step.action == Action::Send)
            .map(|step| step.end - step.start)
            .collect();
        assert_eq!(schedule.messages(member), sent.len() as u64, "{name}: messages of {member}");
        assert_eq!(schedule.elements_sent(member), sent.iter().sum::<u64>(), "{name}: elements of {member}");
        assert!(sent.iter().all(|length| *length <= schedule.chunk_elements()), "{name}: a message of {member}");
    }
}

#[test]
fn every_nesting_is_proven_at_every_size() {
    let shapes: [&[u32]; 12] = [
        &[1],
        &[3],
        &[8],
        &[1, 1],
        &[8, 8],
        &[1, 4],
        &[4, 1],
        &[2, 3, 1],
        &[4, 4, 4, 4],
        &[3, 1, 2, 5, 1],
        &[2; 8],
        &[1, 2, 1, 2, 1, 2, 1],
    ];
    let mut proofs = 0;
    for sizes in shapes {
        for algorithm in across(sizes.len() as u32) {
            for collective in [Collective::AllReduce, Collective::AllReduceToLeaders] {
                // Nothing, fewer than members, remainders; just below the limit, at it and above with a remainder.
                for (elements, chunk) in [
                    (0, 0),
                    (1, 0),
                    (7, 3),
                    (101, 0),
                    (101, 17),
                    (CHAINS - 1, 20_000),
                    (CHAINS, 0),
                    (CHAINS, 20_000),
                    (2 * CHAINS + 31, 0),
                    (2 * CHAINS + 31, 50_001),
                ] {
                    let schedule = nested(&collective, algorithm.clone(), sizes, elements, chunk);
                    let name = format!("{} by {algorithm} {sizes:?} {elements} {chunk}", collective.name());
                    holds(&schedule, &name);
                    holds(&schedule.padded(), &format!("{name}, padded"));
                    proofs += 2;
                }
            }
        }
    }
    assert!(proofs > 5_000, "{proofs} proofs");
}

/// Small buffers of integers are moved, in random orders and with several windows.
#[test]
fn nested_steps_give_the_result_of_the_collective() {
    for (seed, sizes) in (0..).zip([&[3][..], &[2, 2], &[2, 3, 1], &[1, 3, 2, 2]]) {
        for algorithm in across(sizes.len() as u32) {
            for (elements, chunk) in [(5, 2), (37, 10), (64, 0)] {
                let schedule = nested(&Collective::AllReduce, algorithm.clone(), sizes, elements, chunk);
                for window in [1, 2, schedule.window()] {
                    let run = reference::run(&schedule, Order { seed, window });
                    run.unwrap_or_else(|wrong| panic!("{algorithm} {sizes:?} {elements} {chunk}: {wrong}"));
                }
            }
        }
    }
}

/// Two nodes of two members, two lanes: between the leaders each half of a lane goes once each way.
#[test]
fn direct_among_two_leaders_by_hand() {
    let schedule = nested(&Collective::AllReduce, Algorithm::direct(), &[2, 2], 2 * CHAINS, CHAINS);
    assert_eq!(schedule.lanes(), 2);
    // Per lane: half to be summed, the own half to be broadcast, and the whole lane down to the other member.
    assert_eq!(schedule.elements_sent(0), 2 * (CHAINS / 2 + CHAINS / 2 + CHAINS));
    assert_eq!(schedule.elements_sent(1), 2 * CHAINS);
    assert_eq!(schedule.messages(0), 2 * 3);
}
