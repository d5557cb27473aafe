//! How much of each exchange computation hides: the time that it is in flight, split by whether its rank computes.

use std::collections::BTreeMap;

use lockstep_topology::Time;

use crate::{Exchange, Op, Program, Span, Stream, TaskId, Timeline};

/// An exchange per counted step, mean over the workers.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeOverlap {
    /// The exchange's index in the workers' role.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Seconds in flight.
    pub seconds: f64,
    /// Seconds in flight while the worker computes.
    pub hidden_s: f64,
    /// Seconds in flight while the worker's compute stream stands still, in equal parts where several are in flight: those
    /// of all exchanges add up to the time that exchanges cost.
    pub exposed_s: f64,
}

/// The exchanges of the workers, in program order.
pub fn exchanges(program: &Program, timeline: &Timeline) -> Vec<ExchangeOverlap> {
    let role = &program.roles[0];
    let steps = timeline.steps();
    let Some(first) = steps.first().map(|step| step.iteration) else { return Vec::new() };
    let mut of_rank: BTreeMap<u32, Vec<&Span>> = BTreeMap::new();
    for span in timeline.spans.iter().filter(|span| span.rank < program.workers()) {
        of_rank.entry(span.rank).or_default().push(span);
    }
    let mut sums: Vec<[f64; 3]> = vec![[0.0; 3]; role.tasks.len()];
    for spans in of_rank.values() {
        sweep(program, spans, first, &mut sums);
    }
    let each = (steps.len() * of_rank.len()).max(1) as f64;
    let overlap = |(task, _): (TaskId, &Exchange)| {
        let [seconds, hidden, exposed] = sums[task].map(|sum| sum / each);
        ExchangeOverlap { task, name: role.tasks[task].name.clone(), seconds, hidden_s: hidden, exposed_s: exposed }
    };
    role.exchanges().map(overlap).collect()
}

/// The share of the time in flight that computation hides, over those exchanges of the workers for which `of` holds; none where
/// none of them takes any time.
pub fn hidden_share(program: &Program, timeline: &Timeline, of: impl Fn(&Exchange) -> bool) -> Option<f64> {
    let (mut seconds, mut hidden) = (0.0, 0.0);
    for overlap in exchanges(program, timeline) {
        if matches!(&program.roles[0].tasks[overlap.task].op, Op::Exchange(exchange) if of(exchange)) {
            (seconds, hidden) = (seconds + overlap.seconds, hidden + overlap.hidden_s);
        }
    }
    (seconds > 0.0).then(|| hidden / seconds)
}

/// Adds seconds in flight, hidden and exposed of one rank's spans by task, counting exchanges from iteration `first` on.
fn sweep(program: &Program, spans: &[&Span], first: u32, sums: &mut [[f64; 3]]) {
    let task = |span: &Span| &program.roles[0].tasks[span.task as usize];
    // Ends before starts, so that what follows at once does not overlap.
    let mut events: Vec<(Time, bool, usize)> = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        let counts = task(span).stream != Stream::Exchange || span.iteration >= first;
        if counts && span.start < span.end && !matches!(task(span).op, Op::Repeat { .. }) {
            events.extend([(span.start, true, index), (span.end, false, index)]);
        }
    }
    events.sort_unstable();
    let (mut computing, mut flying, mut since) = (0u32, Vec::<usize>::new(), Time::ZERO);
    for (time, starts, index) in events {
        let seconds = (time - since).as_secs_f64();
        for exchange in &flying {
            let sum = &mut sums[spans[*exchange].task as usize];
            sum[0] += seconds;
            if computing > 0 {
                sum[1] += seconds;
            } else {
                sum[2] += seconds / flying.len() as f64;
            }
        }
        since = time;
        match (task(spans[index]).stream, starts) {
            (Stream::Compute | Stream::Synchronisation, true) => computing += 1,
            (Stream::Compute | Stream::Synchronisation, false) => computing -= 1,
            (Stream::Exchange, true) => flying.push(index),
            (Stream::Exchange, false) => flying.retain(|other| *other != index),
        }
    }
}
