//! Straggling: how much longer the slowest worker computes in a step than workers do on average.

use std::collections::BTreeMap;

use crate::{Op, Program, Stream, Timeline};

/// Seconds by which, averaged over the counted steps, the longest computation of a worker exceeds the mean of all workers'.
///
/// With one independent factor per worker and step it is the expected largest of k draws less their mean, times the work:
/// of exponentials H_k − 1, of uniforms from 0 to 1 k/(k + 1) − 1/2. `None` where spans were not kept, or stand for others.
pub fn straggling_s(program: &Program, timeline: &Timeline) -> Option<f64> {
    let steps = timeline.steps();
    let first = steps.first()?.iteration;
    let mut busy: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for span in timeline.spans.iter().filter(|span| span.rank < program.workers && span.iteration >= first) {
        let task = &program.roles[program.role_of(span.rank)].tasks[span.task as usize];
        if task.stream == Stream::Compute && !matches!(task.op, Op::Repeat { .. }) {
            *busy.entry((span.iteration, span.rank)).or_default() += (span.end - span.start).as_secs_f64();
        }
    }
    let of_step = |iteration: u32| {
        let all = busy.range((iteration, 0)..=(iteration, u32::MAX)).map(|(_, seconds)| *seconds);
        let (most, sum, ranks) = all.fold((0.0f64, 0.0, 0u32), |(most, sum, n), s| (most.max(s), sum + s, n + 1));
        (ranks == program.workers).then(|| most - sum / f64::from(ranks))
    };
    let each: Option<Vec<f64>> = steps.iter().map(|step| of_step(step.iteration)).collect();
    each.map(|each| each.iter().sum::<f64>() / each.len() as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_topology::Time;

    use super::*;
    use crate::{Job, Model, Span};

    #[test]
    fn the_slowest_against_the_mean_by_hand() {
        // One task each: ranks compute 2 and 4 s, then 3 and 3 s: (4 − 3 + 3 − 3) / 2 = 0.5 s; the warm-up does not count.
        let job = Job::new(Arc::new(Model::load("mlp").expect("in the zoo")), 2, 8);
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
}
