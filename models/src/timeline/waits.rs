//! Measures how long workers wait: for input batches, and for the slowest of them.

use std::collections::BTreeMap;

use lockstep_topology::Time;

use crate::{Op, Program, Span, Step, Stream, Timeline, overlap};

impl Timeline {
    /// For each of these steps the seconds in which a worker's compute stream waits for the batch that it loads next,
    /// averaged over workers; zero where a program has no input tasks, and where spans were not kept.
    ///
    /// A load's wait begins when the stream is free and the step has begun, and ends with the last of its input tasks.
    pub(crate) fn input_waits_s(&self, program: &Program, steps: &[Step]) -> Vec<f64> {
        if !program.has_input() {
            return vec![0.0; steps.len()];
        }
        let begins: BTreeMap<u32, Time> = steps.iter().map(|step| (step.iteration, step.begin)).collect();
        let mut of_rank: BTreeMap<u32, Vec<&Span>> = BTreeMap::new();
        for run in overlap::of_workers(program, self) {
            of_rank.entry(run[0].rank).or_default().extend(run);
        }
        let mut waits: BTreeMap<u32, f64> = BTreeMap::new();
        for (rank, spans) in &of_rank {
            let role = &program.roles[program.role_of(*rank)];
            let stream = |span: &Span| role.tasks[span.task as usize].stream;
            let run = |span: &Span| (span.iteration, span.repetition);
            let uploaded: BTreeMap<_, Time> = spans
                .iter()
                .filter(|span| stream(span) == Stream::Upload)
                .map(|span| ((span.task as usize, run(span)), span.end))
                .collect();
            let mut free = Time::ZERO;
            for span in spans.iter().filter(|span| stream(span) == Stream::Compute) {
                let last = role.input_of(span.task as usize).and_then(|input| input.last().copied());
                let there = last.and_then(|upload| uploaded.get(&(upload, run(span))));
                if let (Some(there), Some(begin)) = (there, begins.get(&span.iteration)) {
                    let wait = (*there).min(span.start).since(free.max(*begin)).as_secs_f64();
                    *waits.entry(span.iteration).or_default() += wait;
                }
                free = span.end;
            }
        }
        let workers = of_rank.len().max(1) as f64;
        steps.iter().map(|step| waits.get(&step.iteration).copied().unwrap_or(0.0) / workers).collect()
    }
}

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
