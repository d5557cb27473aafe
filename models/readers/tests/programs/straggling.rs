//! Tests how much of a step is spent waiting for the last rank.

use std::sync::Arc;

use lockstep_topology::Time;

use super::*;
use lockstep_models::{Job, Span};

#[test]
fn the_slowest_against_the_mean_by_hand() {
    // One task each: ranks compute 2 and 4 s, then 3 and 3 s: (4 − 3 + 3 − 3) / 2 = 0.5 s; the warm-up does not count.
    let job = Job::new(Arc::new(load_model("mlp").expect("in the zoo")), 2, 8);
    let program = job.program().expect("a job that works");
    let task = program.roles[0].tasks.iter().position(|task| task.stream == Stream::Compute).expect("one") as u32;
    let second = |s: u64| Time(s * 1_000_000_000_000);
    let span = |rank, iteration, start, end| Span {
        rank,
        task,
        iteration,
        repetition: 0,
        ready: second(start),
        start: second(start),
        end: second(end),
    };
    let spans = vec![
        span(0, 0, 0, 9),
        span(0, 1, 10, 12),
        span(0, 2, 14, 17),
        span(1, 0, 0, 1),
        span(1, 1, 10, 14),
        span(1, 2, 14, 17),
    ];
    assert_eq!(straggling_s(&program, &Timeline::of(spans.clone(), 1)), Some(0.5));
    assert_eq!(straggling_s(&program, &Timeline::of(spans[..3].to_vec(), 1)), None, "a rank is missing");
}
