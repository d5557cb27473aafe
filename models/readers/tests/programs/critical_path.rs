//! Compares critical paths with paths worked by hand, on explicit timelines.

use lockstep_models::WAIT;
use std::sync::Arc;

use super::*;
use lockstep_models::{Bucket, Job, Span, Stream, overlap};

const SECOND: u64 = 1_000_000_000_000;

/// Two ranks of a perceptron, one exchange of everything.
fn program() -> Program {
    let job = Job { bucket: Bucket::Whole, ..Job::new(Arc::new(load_model("mlp").unwrap()), 2, 4) };
    job.program().unwrap()
}

/// Rank r computes each task of the first stream in `seconds[r]`, the exchange takes `exchange` seconds from the last
/// arrival on, the update one; each step begins where the last one ended, on its own rank.
fn timeline(program: &Program, seconds: [u64; 2], exchange: u64, steps: u32) -> Timeline {
    let mut spans: Vec<Vec<Span>> = vec![Vec::new(); 2];
    let mut now = [0, 0];
    for iteration in 0..steps {
        let mut arrived = [0, 0];
        for (rank, rank_spans) in spans.iter_mut().enumerate() {
            for (task, at) in program.roles[0].tasks.iter().enumerate() {
                if at.stream == Stream::Compute && at.op.update().is_none() {
                    let (start, end) = (Time(now[rank]), Time(now[rank] + seconds[rank] * SECOND));
                    now[rank] = end.0;
                    let (rank, task) = (rank as u32, task as u32);
                    rank_spans.push(Span { rank, task, iteration, repetition: 0, ready: start, start, end });
                }
            }
            arrived[rank] = now[rank];
        }
        let end = arrived[0].max(arrived[1]) + exchange * SECOND;
        for (rank, rank_spans) in spans.iter_mut().enumerate() {
            let mut push = |kind: fn(&Op) -> bool, start: u64, end: u64| {
                let task = program.roles[0].tasks.iter().position(|task| kind(&task.op)).unwrap() as u32;
                let (start, end) = (Time(start), Time(end));
                rank_spans.push(Span { rank: rank as u32, task, iteration, repetition: 0, ready: start, start, end });
            };
            push(|op| matches!(op, Op::Exchange(_)), arrived[rank], end);
            push(|op| op.update().is_some(), end, end + SECOND);
            now[rank] = end + SECOND;
        }
    }
    Timeline::of(spans.concat(), 1)
}

#[test]
fn the_slower_rank_is_on_the_path() {
    let program = program();
    let computes = program.roles[0].tasks.iter().filter(|task| task.stream == Stream::Compute).count() as u64 - 1;
    let timeline = timeline(&program, [3, 5], 7, 3);
    let path = CriticalPath::of_median_step(&program, &timeline).unwrap();
    let kinds = path.time_by_kind(&program);
    assert_eq!(kinds["exchange"], Time(7 * SECOND), "from the arrival of the last member on");
    assert_eq!(kinds["update"], Time(SECOND));
    assert!(!kinds.contains_key(WAIT), "{kinds:?}");
    assert_eq!(kinds["load"] + kinds["forward"] + kinds["backward"], Time(computes * 5 * SECOND));
    assert_eq!(path.step.end - path.step.begin, Time((computes * 5 + 8) * SECOND));
    // All of rank 1's computation holds up the step, and none of rank 0's.
    let compute = path.segments.iter().filter(|s| kind(&program, s) == "forward" || kind(&program, s) == "backward");
    assert!(compute.map(|segment| segment.rank).all(|rank| rank == 1));
    assert_eq!(path.tasks(&program)[0].1, "allreduce hidden..scores");
}

#[test]
fn gaps_are_attributed_to_the_exchange_in_flight_or_are_waits() {
    // Both ranks pause two seconds before each update, for no reason in the program; and the last forward task of rank
    // 0 starts a second late.
    let program = program();
    let mut timeline = timeline(&program, [3, 3], 7, 3);
    for span in &mut timeline.spans {
        let late = span.iteration == 2 && program.roles[0].tasks[span.task as usize].op.update().is_some();
        if late {
            span.start += Time(2 * SECOND);
            span.end += Time(2 * SECOND);
        }
    }
    let step = *timeline.steps().last().unwrap();
    let path = CriticalPath::of(&program, &timeline, step);
    let kinds = path.time_by_kind(&program);
    assert_eq!((kinds[WAIT], kinds["exchange"]), (Time(2 * SECOND), Time(7 * SECOND)));
    // The same pause with the exchange still in flight is attributed to the exchange.
    for span in &mut timeline.spans {
        let exchange = matches!(program.roles[0].tasks[span.task as usize].op, Op::Exchange(_));
        let backward = program.roles[0].tasks[span.task as usize].name.starts_with("backward");
        if exchange && span.iteration == 2 {
            span.start = step.begin;
        }
        if backward && span.iteration == 2 {
            span.start += Time(SECOND);
        }
    }
    let path = CriticalPath::of(&program, &timeline, step);
    assert_eq!(path.segments.iter().map(|s| (s.end - s.begin).0).sum::<u64>(), (step.end - step.begin).0);
}

#[test]
fn exchanges_are_hidden_where_their_rank_computes() {
    let program = program();
    let mut timeline = timeline(&program, [3, 5], 7, 3);
    let of = |timeline: &Timeline| overlap::exchanges(&program, timeline).remove(0);
    let computes = program.roles[0].tasks.iter().filter(|task| task.stream == Stream::Compute).count() as f64 - 1.0;
    // Rank 0 waits for rank 1 during (5 − 3)·computes seconds more.
    let early = 2.0 * computes;
    assert_eq!(of(&timeline).hidden_s, 0.0);
    assert!((of(&timeline).exposed_s - (7.0 + early / 2.0)).abs() < 1e-9, "{:?}", of(&timeline));
    assert!((of(&timeline).exposed_s - timeline.exposed_comm_s(&program)).abs() < 1e-9);
    // Three seconds earlier, during rank 1's last task and none of rank 0's.
    for span in &mut timeline.spans {
        if program.roles[0].tasks[span.task as usize].stream == Stream::Exchange && span.rank == 1 {
            span.start = Time(span.start.0 - 3 * SECOND);
        }
    }
    assert!((of(&timeline).hidden_s - 1.5).abs() < 1e-9);
    assert!((of(&timeline).seconds - (7.0 + 1.5 + early / 2.0)).abs() < 1e-9);
}
