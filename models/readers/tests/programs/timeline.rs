//! Tests steps and medians of a timeline.

use super::*;
use lockstep_models::WAIT;

#[test]
fn steps_run_from_last_end_to_last_end() {
    // Two ranks; iteration ends at 3 and 4, then at 9 and 7: steps of 4 and 5 seconds.
    let second = |s: u64| Time(s * 1_000_000_000_000);
    let span = |rank, iteration, start, end| Span {
        rank,
        task: 0,
        iteration,
        repetition: 0,
        ready: second(start),
        start: second(start),
        end: second(end),
    };
    let spans = vec![span(0, 0, 0, 3), span(1, 0, 0, 4), span(0, 1, 4, 9), span(1, 1, 4, 7)];
    let timeline = Timeline::of(spans, 1);
    assert_eq!(timeline.step_times_s(), vec![5.0]);
    assert_eq!(Timeline { warm_up: 0, ..timeline }.step_times_s(), vec![5.0]); // the first step fills caches
}

/// Steps of 4, 2 and 6 s in which a worker computes 1, 2 and 1 s, the last of them in two kinds.
#[test]
fn parts_of_steps_are_of_one_statistic() {
    use lockstep_models::Job;
    let program = Job::new(Arc::new(load_model("mlp").unwrap()), 1, 4).program().unwrap();
    let kind = |task: usize| program.roles[0].tasks[task].op.kind();
    let load = (0..).find(|task| kind(*task) == "load").unwrap();
    let update = (0..).find(|task| kind(*task) == "update").unwrap();
    let span = |task: usize, iteration, start: f64, end: f64| {
        let [start, end] = [start, end].map(|s| Time((s * 1e12) as u64));
        Span { rank: 0, task: task as u32, iteration, repetition: 0, ready: start, start, end }
    };
    let spans = vec![
        span(load, 0, 0.0, 1.0),
        span(load, 1, 4.0, 5.0),
        span(load, 2, 5.0, 7.0),
        span(load, 3, 12.0, 12.5),
        span(update, 3, 12.5, 13.0),
    ];
    let timeline = Timeline::of(spans, 1);
    let parts = timeline.kinds_by_step(&program);
    assert_eq!(timeline.step_times_s(), [4.0, 2.0, 6.0]);
    let of = |kind: &str| parts.iter().map(|step| step.get(kind).copied().unwrap_or(0.0)).collect::<Vec<f64>>();
    assert_eq!(of("load"), [1.0, 2.0, 0.5]);
    let waits = of(WAIT);
    assert!((median(waits.clone()) - timeline.exposed_comm_s(&program)).abs() < 1e-9, "{waits:?}");
    assert!(waits.iter().zip(timeline.step_times_s()).all(|(wait, step)| *wait <= step), "{waits:?}");
    assert!(median(waits) <= timeline.step_time_s());
    assert_eq!(of("update"), [0.0, 0.0, 0.5]);
}

/// A worker is free when a step begins and has its batch 5 s later; the load begins 1 s after that.
#[test]
fn a_wait_for_a_batch_ends_with_its_upload() {
    use lockstep_models::{INPUT_WAIT, Job};
    let job = Job { ahead: Some(2), ..Job::new(Arc::new(load_model("mlp").unwrap()), 1, 4) };
    let program = job.program().unwrap();
    let role = &program.roles[0];
    let load = (0..role.tasks.len()).find(|task| role.input_of(*task).is_some()).unwrap();
    let [.., upload] = role.input_of(load).unwrap();
    let update = (0..role.tasks.len()).find(|task| role.tasks[*task].op.kind() == "update").unwrap();
    let span = |task: usize, iteration, start: u64, end: u64| {
        let [start, end] = [start, end].map(|s| Time(s * 1_000_000_000_000));
        Span { rank: 0, task: task as u32, iteration, repetition: 0, ready: start, start, end }
    };
    let late = [span(upload, 1, 9, 15), span(load, 1, 16, 18), span(update, 1, 20, 21)];
    let first = [span(upload, 0, 0, 1), span(load, 0, 1, 2), span(update, 0, 5, 10)];
    // Another one's batch was there before the worker was free.
    let early = [span(upload, 2, 18, 19), span(load, 2, 22, 23), span(update, 2, 23, 25)];
    let timeline = Timeline::of([first, late, early].concat(), 1);
    let kinds = timeline.kinds_by_step(&program);
    let of = |kind: &str| kinds.iter().map(|step| step[kind]).collect::<Vec<f64>>();
    assert_eq!(timeline.step_times_s(), [11.0, 4.0]);
    assert_eq!((of(INPUT_WAIT), of("load"), of(WAIT)), (vec![5.0, 0.0], vec![2.0, 1.0], vec![3.0, 1.0]));
    assert_eq!(timeline.exposed_input_s(&program), Some(2.5));
    assert_eq!(timeline.exposed_comm_s(&program), 2.0);
    assert_eq!(timeline.seconds_by_kind(&program)[INPUT_WAIT], 2.5);
}

#[test]
fn median_of_even_and_odd() {
    assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(median(vec![]), 0.0);
}

#[test]
fn quantiles_by_hand() {
    let values = [1.0, 2.0, 4.0];
    assert_eq!(quantile(&values, 0.5), 2.0);
    assert_eq!(quantile(&values, 0.25), 1.5);
    assert_eq!(quantile(&values, 0.9), 2.0 + 2.0 * 0.8);
    assert_eq!(quantile(&[], 0.9), 0.0);
    assert_eq!(quantile(&[7.0], 0.1), 7.0);
}
