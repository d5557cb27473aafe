//! Tests that schedules take the times of their papers, and that the check accepts exactly the lists that a
//! tick-by-tick simulation completes.

use proptest::prelude::*;

use crate::pipeline::{
    PipelinePass, PipelineSchedule, PipelineStep, check, check_within, idle_shares, makespan, times,
};

type Lists = Vec<Vec<PipelineStep>>;

const FORWARD: PipelinePass = PipelinePass::Forward;
const BACKWARD: PipelinePass = PipelinePass::Backward;
const WEIGHT: PipelinePass = PipelinePass::Weight;

/// Runs the lists tick by tick: the ticks that they take, `None` where no stage can begin and steps are left.
fn ticks(lists: &Lists, chunks: u32, time: impl Fn(u32, PipelinePass) -> u64) -> Option<u64> {
    let last = chunks * lists.len() as u32 - 1;
    let mut ended: Vec<(u32, u32, PipelinePass)> = Vec::new();
    let mut next = vec![0; lists.len()];
    let mut running: Vec<Option<(PipelineStep, u64)>> = vec![None; lists.len()];
    for now in 0.. {
        for step in running.iter_mut() {
            if let Some((done, _)) = step.take_if(|(_, end)| *end == now) {
                ended.push((done.micro_batch, done.chunk, done.pass));
            }
        }
        for (stage, list) in lists.iter().enumerate() {
            let Some(step) = list.get(next[stage]).filter(|_| running[stage].is_none()) else { continue };
            let (m, c) = (step.micro_batch, step.chunk);
            let can = match step.pass {
                PipelinePass::Forward => c == 0 || ended.contains(&(m, c - 1, FORWARD)),
                PipelinePass::Backward => {
                    ended.contains(&(m, c, FORWARD)) && (c == last || ended.contains(&(m, c + 1, BACKWARD)))
                }
                PipelinePass::Weight => ended.contains(&(m, c, BACKWARD)),
            };
            if can {
                running[stage] = Some((*step, now + time(c, step.pass)));
                next[stage] += 1;
            }
        }
        if running.iter().all(Option::is_none) {
            return lists.iter().zip(&next).all(|(list, next)| list.len() == *next).then_some(now);
        }
    }
    None
}

/// Whether the lists have each step once, on its stage, with backward and weight passes that ascend, and end.
fn holds(lists: &Lists, passes: &[PipelinePass], chunks: u32, micro_batches: u32) -> bool {
    let all = chunks * lists.len() as u32;
    let count: usize = lists.iter().map(Vec::len).sum();
    let once = (0..all).all(|chunk| {
        let list = &lists[chunk as usize % lists.len()];
        (0..micro_batches).all(|micro_batch| {
            passes.iter().all(|pass| list.contains(&PipelineStep { micro_batch, chunk, pass: *pass }))
        })
    });
    let ascends = (0..all).all(|chunk| {
        let list = &lists[chunk as usize % lists.len()];
        [BACKWARD, WEIGHT].into_iter().all(|pass| {
            let order = list.iter().filter(|step| step.chunk == chunk && step.pass == pass);
            order.map(|step| step.micro_batch).is_sorted()
        })
    });
    count as u32 == passes.len() as u32 * all * micro_batches
        && once
        && ascends
        && ticks(lists, chunks, |_, _| 1).is_some()
}

/// Schedules with the micro-batches that they take.
fn settings() -> impl Strategy<Value = (PipelineSchedule, u32, u32)> {
    (0..4_u32, 1..6_u32, 1..7_u32, 2..4_u32).prop_map(|(which, stages, micro_batches, chunks)| match which {
        0 => (PipelineSchedule::GPipe, stages, micro_batches),
        1 => (PipelineSchedule::OneForwardOneBackward, stages, micro_batches),
        2 => (PipelineSchedule::ZeroBubbleH1, stages, micro_batches),
        _ => (PipelineSchedule::Interleaved { chunks }, stages, stages * micro_batches.min(3)),
    })
}

proptest! {
    #[test]
    fn schedules_are_valid_and_take_the_time_of_their_papers(
        (schedule, stages, micro_batches) in settings(), forward in 1..5_u64, backward in 1..7_u64,
    ) {
        prop_assume!(schedule != PipelineSchedule::ZeroBubbleH1);
        let (chunks, lists) = (schedule.chunks(), schedule.lists(stages, micro_batches).unwrap());
        let in_flight = check(&lists, schedule.passes(), chunks, micro_batches).unwrap();
        let time = |_, pass| if pass == FORWARD { forward } else { backward };
        let spans = times(&lists, chunks, time).unwrap();
        // With v chunks a stage, a chunk takes 1/v of its stage: work m·v, bubble s − 1, both times the
        // time of a chunk.
        let (s, m, v) = (u64::from(stages), u64::from(micro_batches), u64::from(chunks));
        prop_assert_eq!(makespan(&spans), (m * v + s - 1) * (forward + backward));
        prop_assert_eq!(ticks(&lists, chunks, time), Some(makespan(&spans)));
        let bubble = (s - 1) as f64 / (m * v + s - 1) as f64;
        prop_assert!(idle_shares(&spans).iter().all(|share| (share - bubble).abs() < 1e-12));
        for (stage, in_flight) in (0..stages).zip(in_flight) {
            match schedule {
                PipelineSchedule::GPipe => prop_assert_eq!(in_flight, micro_batches),
                PipelineSchedule::OneForwardOneBackward => prop_assert_eq!(in_flight, micro_batches.min(stages - stage)),
                PipelineSchedule::Interleaved { chunks } => {
                    let ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages;
                    prop_assert_eq!(in_flight, (ahead + 1).min(micro_batches * chunks));
                }
                PipelineSchedule::ZeroBubbleH1 => unreachable!("left out above"),
            }
        }
    }

    /// Without its weight passes it is 1F1B. With them each stage holds as many micro-batches as the first one under 1F1B
    /// until they have ended, and m ≥ s micro-batches take m(F + B + W) + (s − 1)(F + B − W), where a weight pass is the
    /// shortest (Qi et al. 2023 §2.3); a longer one fills the time of the shortest of the others.
    #[test]
    fn zero_bubble_h1_is_1f1b_with_weight_passes_where_stages_would_wait(
        stages in 1..7_u32, micro_batches in 1..13_u32, (forward, backward, weight) in (1..7_u64, 1..7_u64, 1..7_u64),
    ) {
        let schedule = PipelineSchedule::ZeroBubbleH1;
        let lists = schedule.lists(stages, micro_batches).unwrap();
        let plain = PipelineSchedule::OneForwardOneBackward.lists(stages, micro_batches).unwrap();
        let most = micro_batches.min(stages);
        prop_assert_eq!(check(&lists, schedule.passes(), 1, micro_batches).unwrap(), vec![most; stages as usize]);
        for (list, plain) in lists.iter().zip(&plain) {
            let weights: Vec<u32> = list.iter().filter(|step| step.pass == WEIGHT).map(|step| step.micro_batch).collect();
            prop_assert_eq!(weights, (0..micro_batches).collect::<Vec<_>>());
            let others: Vec<PipelineStep> = list.iter().copied().filter(|step| step.pass != WEIGHT).collect();
            prop_assert_eq!(&others, plain);
        }
        let time = |_, pass| match pass {
            PipelinePass::Forward => forward,
            PipelinePass::Backward => backward,
            PipelinePass::Weight => weight,
        };
        let spans = times(&lists, 1, time).unwrap();
        let (s, m) = (u64::from(stages), u64::from(micro_batches));
        let (work, saved) = (m * (forward + backward + weight), weight.min(forward).min(backward));
        let step = makespan(&spans);
        if m >= s {
            prop_assert_eq!(step, work + (s - 1) * (forward + backward - saved));
        } else if weight == saved {
            // Too few to fill all waits: one micro-batch after the other, and the last one's weight pass.
            prop_assert_eq!(step, (s + m - 1) * (forward + backward) + weight);
        }
        prop_assert_eq!(ticks(&lists, 1, time), Some(step));
        prop_assert!(spans.iter().all(|list| list.iter().map(|span| span.end - span.start).sum::<u64>() == work));
        let together = times(&plain, 1, |_, pass| if pass == FORWARD { forward } else { backward + weight }).unwrap();
        prop_assert!(step <= makespan(&together));
        // With equal passes the bubble is a third of 1F1B's.
        let spans = times(&lists, 1, |_, _| 1).unwrap();
        prop_assert!(m < s || makespan(&spans) - 3 * m == s - 1);
    }

    #[test]
    fn times_equal_those_of_a_simulation_in_ticks(
        (schedule, stages, micro_batches) in settings(), costs in prop::collection::vec(1..9_u64, 45),
    ) {
        let (chunks, lists) = (schedule.chunks(), schedule.lists(stages, micro_batches).unwrap());
        let time = |chunk, pass| costs[PipelinePass::ALL.len() * chunk as usize + pass as usize];
        let spans = times(&lists, chunks, time).unwrap();
        prop_assert_eq!(ticks(&lists, chunks, time), Some(makespan(&spans)));
        for (list, spans) in lists.iter().zip(&spans) {
            prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(list.iter().zip(spans).all(|(step, span)| span.end - span.start == time(step.chunk, step.pass)));
        }
    }

    #[test]
    fn changed_lists_are_accepted_exactly_where_they_are_valid(
        (schedule, stages, micro_batches) in settings(), change in 0..5_u32, at in any::<[prop::sample::Index; 3]>(),
    ) {
        let (chunks, mut lists) = (schedule.chunks(), schedule.lists(stages, micro_batches).unwrap());
        let stage = at[0].index(lists.len());
        let list = &mut lists[stage];
        let (one, other) = (at[1].index(list.len()), at[2].index(list.len()));
        match change {
            0 => list.swap(one, other),
            1 => {
                list.remove(one);
            }
            2 => list.insert(other, list[one]),
            3 => list[one] = list[other],
            _ => {
                let step = list.remove(one);
                list.insert(other.min(list.len()), step);
            }
        }
        let passes = schedule.passes();
        let checked = check(&lists, passes, chunks, micro_batches);
        prop_assert_eq!(checked.is_ok(), holds(&lists, passes, chunks, micro_batches), "{:?}", checked);
        prop_assert!(checked.is_err() || ![1, 2].contains(&change));
        // Times of incomplete lists end, or name what is missing.
        let _ = times(&lists, chunks, |_, _| 1);
    }

    #[test]
    fn checking_arbitrary_lists_never_panics(
        lists in prop::collection::vec(prop::collection::vec((0..3_u32, 0..3_u32, 0..3_usize), 0..6), 0..4),
        chunks in 0..3_u32, micro_batches in 0..3_u32, passes in 0..=3_usize,
    ) {
        let step = |&(micro_batch, chunk, pass): &(u32, u32, usize)| {
            PipelineStep { micro_batch, chunk, pass: PipelinePass::ALL[pass] }
        };
        let passes = &PipelinePass::ALL[..passes];
        let lists: Lists = lists.iter().map(|list| list.iter().map(step).collect()).collect();
        let checked = check(&lists, passes, chunks, micro_batches).is_ok();
        let _ = times(&lists, chunks, |_, _| u64::MAX);
        if chunks > 0 && !lists.is_empty() {
            prop_assert_eq!(checked, holds(&lists, passes, chunks, micro_batches));
        }
    }
}

#[test]
fn two_stages_by_hand() {
    // 1F1B, two stages, three micro-batches, a tick each. Stage 0: 0 1 . a 2 b . c, stage 1: . 0 a 1 b 2 c .
    let lists = PipelineSchedule::OneForwardOneBackward.lists(2, 3).unwrap();
    let spans = times(&lists, 1, |_, _| 1).unwrap();
    let begins: Vec<Vec<u64>> = spans.iter().map(|spans| spans.iter().map(|span| span.start).collect()).collect();
    assert_eq!(begins, [vec![0, 1, 3, 4, 5, 7], vec![1, 2, 3, 4, 5, 6]]);
    assert_eq!(idle_shares(&spans), [0.25; 2]);
}

#[test]
fn two_stages_of_zero_bubble_h1_by_hand() {
    // Passes of a tick, weight passes as capitals. Stage 0: 0 1 . a A 2 b B c C, stage 1: . 0 a 1 b A 2 c B C.
    let lists = PipelineSchedule::ZeroBubbleH1.lists(2, 3).unwrap();
    let spans = times(&lists, 1, |_, _| 1).unwrap();
    let shown = |stage: usize| {
        let mut line = vec!['.'; makespan(&spans) as usize];
        for (step, span) in lists[stage].iter().zip(&spans[stage]) {
            line[span.start as usize] =
                ["012", "abc", "ABC"][step.pass as usize].as_bytes()[step.micro_batch as usize].into();
        }
        line.into_iter().collect::<String>()
    };
    assert_eq!([shown(0), shown(1)], ["01.aA2bBcC", ".0a1bA2cBC"]);
    assert_eq!(idle_shares(&spans), [0.1; 2]);
}

#[test]
fn errors_name_stage_and_step() {
    let lists = || PipelineSchedule::OneForwardOneBackward.lists(2, 3).unwrap();
    let message = |change: &dyn Fn(&mut Lists)| {
        let mut lists = lists();
        change(&mut lists);
        check(&lists, &PipelinePass::CROSSING, 1, 3).unwrap_err().to_string()
    };
    // Stage 1 takes 0 a 1 b 2 c.
    assert_eq!(
        message(&|lists| lists[1].swap(0, 2)),
        "stage 1: backward of chunk 1, micro-batch 0: waits forever for the forward of chunk 1, micro-batch 0, which comes \
         later in the same list: change the order"
    );
    assert_eq!(
        message(&|lists| lists[0].truncate(5)),
        "stage 0: backward of chunk 0, micro-batch 2: is not in the list: add it"
    );
    let twice = message(&|lists| {
        let step = lists[1][0];
        lists[1].push(step);
    });
    assert_eq!(twice, "stage 1: forward of chunk 1, micro-batch 0: is in the list twice: leave one out");
    assert!(message(&|lists| lists.swap(0, 1)).contains("the chunk is that of stage 1: move the step there"));
    assert!(message(&|lists| lists[1][0].chunk = 2).contains("only 2 chunks"));
    assert!(message(&|lists| lists[1][0].micro_batch = 3).contains("only 3 micro-batches"));
    let weight = message(&|lists| lists[1][0].pass = WEIGHT);
    assert_eq!(
        weight,
        "stage 1: weight of chunk 1, micro-batch 0: the passes of a micro-batch are forward, backward: leave it out"
    );
    // 0 a 1 c 2 b: the gradient of micro-batch 1 comes last.
    let descends = message(&|lists| {
        lists[1].swap(3, 5);
        lists[1].swap(3, 4);
    });
    assert_eq!(
        descends,
        "stage 1: backward of chunk 1, micro-batch 1: comes after that of micro-batch 2, and gradients are added in ascending \
         micro-batch: change the order"
    );
    // Stage 0 wants the first gradient before the second micro-batch, stage 1 both micro-batches before a gradient.
    let waits = message(&|lists| {
        lists[0].swap(1, 2);
        lists[0].swap(2, 3);
        lists[0].swap(2, 3);
        lists[1].swap(1, 2);
    });
    assert_eq!(
        waits,
        "stage 0: backward of chunk 0, micro-batch 0: waits forever for the backward of chunk 1, micro-batch 0, which stage 1 \
         has only after its forward of chunk 1, micro-batch 1, and that waits too: change the order"
    );
}

#[test]
fn a_limit_names_the_step_that_exceeds_it() {
    let within = |lists: &Lists, limit: u32| check_within(lists, &PipelinePass::CROSSING, (1, 4), limit);
    let lists = PipelineSchedule::GPipe.lists(2, 4).unwrap();
    assert_eq!(within(&lists, 4), Ok(vec![4, 4]));
    assert_eq!(
        within(&lists, 2).unwrap_err().to_string(),
        "stage 0: forward of chunk 0, micro-batch 2: is activation 3 in flight, and 2 are allowed: allow 4, or use a schedule \
         that holds fewer"
    );
    let lists = PipelineSchedule::OneForwardOneBackward.lists(2, 4).unwrap();
    assert_eq!(within(&lists, 2), Ok(vec![2, 1]));
}

#[test]
fn names_round_trip() {
    for name in ["gpipe", "1f1b", "interleaved:2", "interleaved:7", "zb-h1"] {
        assert_eq!(name.parse::<PipelineSchedule>().unwrap().to_string(), name);
    }
    for other in ["zero-bubble", "ZB_H1", "zb"] {
        assert_eq!(other.parse(), Ok(PipelineSchedule::ZeroBubbleH1));
    }
    for (name, message) in [
        ("f1b1", "write gpipe, 1f1b, interleaved:2 or zb-h1"),
        ("zb-h1:2", "write zb-h1 without a number, or interleaved:2"),
        ("zb-v", "write zb-h1, which has one chunk a stage"),
        ("interleaved", "write interleaved:2"),
        ("interleaved:1", "or 1f1b for one chunk a stage"),
        ("interleaved:-1", "is not a number of chunks from 2"),
        ("interleaved:99999999999", "is not a number of chunks from 2"),
    ] {
        let error = name.parse::<PipelineSchedule>().unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn numbers_that_a_schedule_does_not_support_are_refused() {
    let interleaved = PipelineSchedule::Interleaved { chunks: 2 };
    for (schedule, stages, micro_batches, message) in [
        (interleaved, 4, 6, "needs a multiple of 4 micro-batches: use 4 or 8"),
        (interleaved, 4, 3, "needs a multiple of 4 micro-batches: use 4, or 1f1b"),
        (PipelineSchedule::Interleaved { chunks: 1 }, 4, 8, "or 1f1b"),
        (PipelineSchedule::Interleaved { chunks: u32::MAX }, u32::MAX, u32::MAX, "use fewer micro-batches"),
        (PipelineSchedule::ZeroBubbleH1, 1000, 334, "take 1002000 steps, and at most 1000000 are listed"),
        (PipelineSchedule::GPipe, 0, 1, "at least 1"),
        (PipelineSchedule::GPipe, 1, 0, "at least 1"),
    ] {
        let error = schedule.lists(stages, micro_batches).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(interleaved.steps(4, 4, 8).unwrap_err().to_string().starts_with("stage: 4"));
}
