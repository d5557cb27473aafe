//! Tests broken schedules: the checker refuses each and names member, lane, step and reason.

use super::super::checker::{check, prove};
use super::super::contract::Contract;
use super::super::{Action, Algorithm, Collective, Group, LaneStep, Reason, Schedule, ScheduleError, Wait};
use super::{allreduces, small_exchange};

/// Proves `schedule` with each lane changed by `mutate(member, lane, steps)`.
fn mutant(schedule: &Schedule, mutate: impl Fn(u32, u32, &mut Vec<LaneStep>)) -> Result<(), ScheduleError> {
    let lanes = |member, index| {
        let mut steps: Vec<LaneStep> = schedule.lane(member, index).collect();
        mutate(member, index, &mut steps);
        steps.into_iter()
    };
    prove(&schedule.contract(), lanes).map(|_| ())
}

/// Proves three or fewer members' steps, written out, as an allreduce of four elements in one lane.
fn written(lanes: &[&[LaneStep]]) -> Result<(), ScheduleError> {
    let members = lanes.len() as u32;
    let contract = Contract {
        collective: Collective::AllReduce,
        members,
        contributors: members,
        receives: vec![true; members as usize].into(),
        elements: 4,
        lanes: 1,
        buffered_sends: false,
    };
    prove(&contract, |member, _| lanes[member as usize].iter().copied()).map(|_| ())
}

fn step(action: Action, peer: u32, start: u64, end: u64) -> LaneStep {
    LaneStep { action, peer, start, end }
}

fn fault(member: u32, step: u32, reason: Reason) -> Result<(), ScheduleError> {
    Err(ScheduleError { member, lane: Some(0), step: Some(step), reason })
}

/// A ring of four, 12 elements, two lanes.
fn ring() -> Schedule {
    Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(4), 12, 6).expect("serves")
}

/// A change of the step at an index of a member's lane.
type Change = fn(&mut Vec<LaneStep>, usize, u32);

/// Changes of single steps.
const CHANGES: [(&str, Change); 6] = [
    ("dropped", |steps, at, _| {
        steps.remove(at);
    }),
    ("repeated", |steps, at, _| steps.insert(at, steps[at])),
    ("to another peer", |steps, at, member| {
        steps[at].peer = (0..5).find(|peer| *peer != steps[at].peer && *peer != member).unwrap_or(0);
    }),
    ("to itself", |steps, at, member| steps[at].peer = member),
    ("shorter", |steps, at, _| steps[at].end -= 1),
    ("of another action", |steps, at, _| {
        steps[at].action = match steps[at].action {
            Action::Send | Action::RecvSum => Action::RecvInto,
            Action::RecvInto => Action::RecvSum,
        };
    }),
];

/// Any change of one step of any algorithm is refused, in that lane.
#[test]
fn every_single_change_is_detected() {
    let mut mutants = 0;
    for algorithm in allreduces() {
        let group = Group::nodes(&[2, 2, 1]);
        let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, 20, 10).expect("serves");
        check(&schedule).expect("proven");
        let places = (0..5).flat_map(|member| (0..schedule.lanes()).map(move |lane| (member, lane)));
        for (member, lane) in places {
            for at in 0..schedule.lane(member, lane).count() {
                for (name, change) in CHANGES {
                    let broken = mutant(&schedule, |m, l, steps| {
                        if (m, l) == (member, lane) {
                            change(steps, at, member);
                        }
                    });
                    let refused = broken.is_err_and(|fault| fault.lane == Some(lane));
                    assert!(refused, "{algorithm}: member {member}, lane {lane}, step {at} {name}");
                    mutants += 1;
                }
            }
        }
    }
    assert!(mutants > 2000, "{mutants} mutants");
}

/// A dropped send: its receiver waits for a member that has ended, or for a message that comes too late.
#[test]
fn a_dropped_step_is_a_deadlock_that_names_the_waiting_member() {
    let broken = mutant(&ring(), |member, lane, steps| {
        if (member, lane) == (2, 1) {
            steps.retain(|step| step.action != Action::Send);
        }
    });
    // 3 gets nothing from 2, so 0 nothing from 3 after its first message, and so on round the ring
    let broken = broken.expect_err("refused");
    assert_eq!((broken.member, broken.lane), (0, Some(1)));
    let text = broken.to_string();
    assert!(
        text.starts_with("lane 1, member 0, step 3: deadlock: waits in step 3 for member 3, which waits"),
        "{text}"
    );
    // a receive more than messages
    let ended = written(&[
        &[step(Action::Send, 1, 0, 4), step(Action::RecvInto, 1, 0, 4)],
        &[step(Action::RecvSum, 0, 0, 4), step(Action::RecvSum, 0, 0, 4), step(Action::Send, 0, 0, 4)],
    ]);
    let waits =
        vec![Wait { member: 0, step: 1, peer: 1, ended: false }, Wait { member: 1, step: 1, peer: 0, ended: false }];
    assert_eq!(ended, fault(0, 1, Reason::Deadlock { waits }));
}

#[test]
fn a_cyclic_wait_is_shown_as_a_cycle() {
    // each waits for the next before it sends
    let lane = |next, before| [step(Action::RecvSum, next, 0, 4), step(Action::Send, before, 0, 4)];
    let broken = written(&[&lane(1, 2), &lane(2, 0), &lane(0, 1)]).expect_err("refused");
    assert_eq!(
        broken.to_string(),
        "lane 0, member 0, step 0: deadlock: waits in step 0 for member 1, which waits in step 0 for member 2, \
         which waits in step 0 for member 0"
    );
}

#[test]
fn waiting_for_a_member_that_has_ended_is_reported() {
    let broken = written(&[&[step(Action::RecvSum, 1, 0, 4)], &[]]).expect_err("refused");
    assert_eq!(
        broken.to_string(),
        "lane 0, member 0, step 0: deadlock: waits in step 0 for member 1, which has ended its lane"
    );
}

#[test]
fn a_double_sum_names_the_contributor() {
    let broken = written(&[
        &[step(Action::Send, 1, 0, 4), step(Action::Send, 1, 0, 4), step(Action::RecvInto, 1, 0, 4)],
        &[step(Action::RecvSum, 0, 0, 4), step(Action::RecvSum, 0, 0, 4), step(Action::Send, 0, 0, 4)],
    ]);
    assert_eq!(broken, fault(1, 1, Reason::SumsTwice { element: 0, contributor: 0 }));
}

/// Each sends its buffer and sums into it at once: right in a lucky order, wrong if the peer reads late.
#[test]
fn overwriting_before_consumption_is_refused() {
    let lane = |peer| [step(Action::Send, peer, 0, 4), step(Action::RecvSum, peer, 0, 4)];
    let broken = written(&[&lane(1), &lane(0)]).expect_err("refused");
    assert!(matches!(broken.reason, Reason::Overwrites { sent_at: 0, .. }), "{broken}");
    assert_eq!(broken.step, Some(1));
    // the library's small allreduce does so, on copies; without them it is refused
    let mpi = "library:mpi".parse().expect("a known algorithm");
    let schedule = Schedule::new(&Collective::AllReduce, &mpi, &Group::flat(4), 8, 0).expect("serves");
    check(&schedule).expect("proven with copies");
    let contract = Contract { buffered_sends: false, ..schedule.contract() };
    let broken = prove(&contract, |member, index| schedule.lane(member, index)).expect_err("refused");
    assert!(matches!(broken.reason, Reason::Overwrites { .. }), "{broken}");
}

/// A message back that is not caused by the consumption does not prove it: 2 lets 0 continue while 1 may still read.
#[test]
fn an_unrelated_message_does_not_prove_consumption() {
    let broken = written(&[
        &[step(Action::Send, 1, 0, 4), step(Action::RecvSum, 2, 0, 4)],
        &[step(Action::RecvSum, 0, 0, 4)],
        &[step(Action::Send, 0, 0, 4)],
    ]);
    assert_eq!(broken, fault(0, 1, Reason::Overwrites { sent_at: 0, reader: 1 }));
}

#[test]
fn a_message_that_does_not_fit_is_refused() {
    let moved = written(&[
        &[step(Action::Send, 1, 0, 2), step(Action::RecvInto, 1, 0, 2)],
        &[step(Action::RecvSum, 0, 2, 4), step(Action::Send, 0, 0, 2)],
    ]);
    assert_eq!(moved, fault(1, 0, Reason::Mismatch { from: 0, sent_at: 0, sent: 0..2, received: 2..4 }));
}

#[test]
fn results_without_a_contribution_are_refused() {
    // no member does anything in elements 2..4
    let broken = written(&[
        &[step(Action::Send, 1, 0, 2), step(Action::RecvInto, 1, 0, 2)],
        &[step(Action::RecvSum, 0, 0, 2), step(Action::Send, 0, 0, 2)],
    ]);
    let reason = Reason::Missing { range: 2..4, contributor: 1 };
    assert_eq!(broken, Err(ScheduleError { member: 0, lane: None, step: None, reason }));
    // member 1 sums and never sends back
    let broken = written(&[&[step(Action::Send, 1, 0, 4)], &[step(Action::RecvSum, 0, 0, 4)]]);
    let reason = Reason::Missing { range: 0..4, contributor: 1 };
    assert_eq!(broken, Err(ScheduleError { member: 0, lane: Some(0), step: None, reason }));
}

/// Every member sends to every other and adds in member order: 0 and 1 end with (0 + 1) + 2, and 2 with (0 + 2) + 1.
#[test]
fn sums_in_different_orders_are_refused() {
    let contract = Contract {
        collective: Collective::AllReduce,
        members: 3,
        contributors: 3,
        receives: [true; 3].into(),
        elements: 4,
        lanes: 1,
        buffered_sends: true,
    };
    let lane = |a, b| {
        let all = |action, peer| step(action, peer, 0, 4);
        [all(Action::Send, a), all(Action::Send, b), all(Action::RecvSum, a), all(Action::RecvSum, b)]
    };
    let lanes = [lane(1, 2), lane(0, 2), lane(0, 1)];
    let broken = prove(&contract, |member, _| lanes[member as usize].into_iter()).map(|_| ());
    let reason = Reason::Differs { range: 0..4, from: 0 };
    assert_eq!(broken, Err(ScheduleError { member: 2, lane: Some(0), step: None, reason }));
}

#[test]
fn ranges_and_peers_outside_are_refused() {
    let outside = written(&[&[step(Action::Send, 1, 2, 5)], &[step(Action::RecvSum, 0, 2, 5)]]);
    assert_eq!(outside, fault(0, 0, Reason::BadRange { range: 2..5, elements: 4 }));
    let stranger = written(&[&[step(Action::Send, 2, 0, 4)], &[]]);
    assert_eq!(stranger, fault(0, 0, Reason::BadPeer { peer: 2 }));
}

#[test]
fn lanes_with_common_elements_are_refused() {
    let schedule = ring();
    let contract = Contract { lanes: 3, ..schedule.contract() };
    // a third lane does what the second one has done
    let broken = prove(&contract, |member, index| schedule.lane(member, index.min(1))).map(|_| ());
    let reason = Reason::LanesOverlap { other: 1, range: 6..12 };
    assert_eq!(broken, Err(ScheduleError { member: 0, lane: Some(2), step: None, reason }));
}

#[test]
fn a_broken_exchange_is_refused() {
    let schedule = Schedule::new(&small_exchange(), &Algorithm::pairwise(), &Group::flat(3), 4, 0).expect("serves");
    // 0's block for 1 has two elements: the first one alone is sent, and received
    let short = mutant(&schedule, |_, _, steps| {
        steps.iter_mut().filter(|step| step.elements() == 2).for_each(|step| step.end -= 1);
    });
    let reason = Reason::Missing { range: 2..3, contributor: 2 };
    assert_eq!(short, Err(ScheduleError { member: 0, lane: None, step: None, reason }));
    // 1 puts what comes from 0 where its own block belongs
    let misplaced = mutant(&schedule, |member, _, steps| {
        let mine = steps.iter_mut().filter(|step| step.action != Action::Send && step.peer == 0 && member == 1);
        mine.for_each(|step| (step.start, step.end) = (1, 3));
    });
    let reason = Reason::Mismatch { from: 0, sent_at: 2, sent: 1..3, received: 1..3 };
    assert_eq!(misplaced, fault(1, 3, reason));
}
