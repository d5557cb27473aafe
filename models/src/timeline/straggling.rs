//! Measures straggling: how much longer the slowest worker computes in a step than workers do on average.

use std::collections::BTreeMap;

use crate::{Op, Program, Stream, Timeline};

/// Seconds by which, averaged over the counted steps, the longest computation of a worker exceeds the mean of
/// all workers'.
///
/// With one independent factor per worker and step it is the expected largest of k draws less their mean, times the
/// work: of exponentials H_k − 1, of uniforms from 0 to 1 k/(k + 1) − 1/2. `None` where spans were not kept, or
/// represent others.
pub fn straggling_s(program: &Program, timeline: &Timeline) -> Option<f64> {
    let steps = timeline.steps();
    let first = steps.first()?.iteration;
    let mut busy: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for span in timeline.spans.iter().filter(|span| span.rank < program.workers() && span.iteration >= first) {
        let task = &program.roles[program.role_of(span.rank)].tasks[span.task as usize];
        if task.stream == Stream::Compute && !matches!(task.op, Op::Repeat { .. } | Op::Schedule(_)) {
            *busy.entry((span.iteration, span.rank)).or_default() += (span.end - span.start).as_secs_f64();
        }
    }
    let of_step = |iteration: u32| {
        let all = busy.range((iteration, 0)..=(iteration, u32::MAX)).map(|(_, seconds)| *seconds);
        let (most, sum, ranks) = all.fold((0.0f64, 0.0, 0u32), |(most, sum, n), s| (most.max(s), sum + s, n + 1));
        (ranks == program.workers()).then(|| most - sum / f64::from(ranks))
    };
    let each: Option<Vec<f64>> = steps.iter().map(|step| of_step(step.iteration)).collect();
    each.map(|each| each.iter().sum::<f64>() / each.len() as f64)
}
