//! How much of each exchange computation hides: the time that it is in flight, split by whether its rank computes.

use std::collections::BTreeMap;

use lockstep_topology::Time;

use crate::{Exchange, Op, Program, Span, Stream, Task, TaskId, Timeline};

/// An exchange per counted step, mean over the workers.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeOverlap {
    /// The index of the first role that takes part.
    pub role: usize,
    /// The exchange's index there.
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
    let steps = timeline.steps();
    let Some(first) = steps.first().map(|step| step.iteration) else { return Vec::new() };
    let mut of_rank: BTreeMap<u32, Vec<&Span>> = BTreeMap::new();
    for span in timeline.spans.iter().filter(|span| span.rank < program.workers()) {
        of_rank.entry(span.rank).or_default().push(span);
    }
    let mut sums: Vec<Vec<[f64; 3]>> = program.roles.iter().map(|role| vec![[0.0; 3]; role.tasks.len()]).collect();
    for (rank, spans) in &of_rank {
        let role = program.role_of(*rank);
        sweep(&program.roles[role].tasks, spans, first, &mut sums[role]);
    }
    let each = (steps.len() * of_rank.len()).max(1) as f64;
    let mut overlaps: Vec<ExchangeOverlap> = Vec::new();
    let workers = program.roles.iter().enumerate().filter(|(_, role)| role.ranks.first() < program.workers());
    for ((role, task), name) in
        workers.flat_map(|(at, role)| role.exchanges().map(move |(task, _)| ((at, task), &role.tasks[task].name)))
    {
        let [seconds, hidden_s, exposed_s] = sums[role][task].map(|sum| sum / each);
        // Roles that meet in an exchange have one name for it.
        match overlaps.iter_mut().find(|overlap| overlap.role != role && overlap.name == *name) {
            Some(of) => {
                (of.seconds, of.hidden_s, of.exposed_s) =
                    (of.seconds + seconds, of.hidden_s + hidden_s, of.exposed_s + exposed_s);
            }
            None => overlaps.push(ExchangeOverlap { role, task, name: name.clone(), seconds, hidden_s, exposed_s }),
        }
    }
    overlaps
}

/// The share of the time in flight that computation hides, over those exchanges of the workers for which `of` holds; none where
/// none of them takes any time.
pub fn hidden_share(program: &Program, timeline: &Timeline, of: impl Fn(&Exchange) -> bool) -> Option<f64> {
    let (mut seconds, mut hidden) = (0.0, 0.0);
    for overlap in exchanges(program, timeline) {
        if matches!(&program.roles[overlap.role].tasks[overlap.task].op, Op::Exchange(exchange) if of(exchange)) {
            (seconds, hidden) = (seconds + overlap.seconds, hidden + overlap.hidden_s);
        }
    }
    (seconds > 0.0).then(|| hidden / seconds)
}

/// Adds seconds in flight, hidden and exposed of one rank's spans by task, counting exchanges from iteration `first` on.
fn sweep(tasks: &[Task], spans: &[&Span], first: u32, sums: &mut [[f64; 3]]) {
    let task = |span: &Span| &tasks[span.task as usize];
    // Ends before starts, so that what follows at once does not overlap.
    let mut events: Vec<(Time, bool, usize)> = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        let counts = !matches!(task(span).stream, Stream::Exchange | Stream::Receive) || span.iteration >= first;
        let counts = counts && !matches!(task(span).stream, Stream::Read | Stream::Decode);
        if counts && span.start < span.end && !matches!(task(span).op, Op::Repeat { .. } | Op::Schedule(_)) {
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
            (Stream::Read | Stream::Decode, _) => {}
            (Stream::Exchange | Stream::Receive, true) => flying.push(index),
            (Stream::Exchange | Stream::Receive, false) => flying.retain(|other| *other != index),
        }
    }
}
