//! Measures how much of each exchange is hidden by computation: splits its time in flight by whether its rank computes.

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
    /// Seconds in flight while the worker's compute stream is idle, in equal parts where several are in flight: those
    /// of all exchanges add up to the time that exchanges cost.
    pub exposed_s: f64,
}

/// The exchanges of the workers, in program order.
pub fn exchanges(program: &Program, timeline: &Timeline) -> Vec<ExchangeOverlap> {
    exchanges_until(program, timeline, |span| span.end)
}

/// The same, where each exchange ends when `end` says.
pub fn exchanges_until(program: &Program, timeline: &Timeline, end: impl Fn(&Span) -> Time) -> Vec<ExchangeOverlap> {
    let steps = timeline.steps();
    let Some(first) = steps.first().map(|step| step.iteration) else { return Vec::new() };
    // Spans of a rank are consecutive, in as many runs as the timeline was put together from.
    let mut of_rank: BTreeMap<u32, Vec<&[Span]>> = BTreeMap::new();
    for run in of_workers(program, timeline) {
        of_rank.entry(run[0].rank).or_default().push(run);
    }
    let mut sums: Vec<Vec<[f64; 3]>> = program.roles.iter().map(|role| vec![[0.0; 3]; role.tasks.len()]).collect();
    for (rank, runs) in &of_rank {
        let role = program.role_of(*rank);
        sweep(&program.roles[role].tasks, runs, (first, &end), &mut sums[role]);
    }
    let each = (steps.len() * of_rank.len()).max(1) as f64;
    let mut overlaps: Vec<ExchangeOverlap> = Vec::new();
    let workers = program.roles.iter().enumerate().filter(|(_, role)| role.ranks.first() < program.workers());
    for ((role, task), name) in
        workers.flat_map(|(at, role)| role.exchanges().map(move |(task, _)| ((at, task), &role.tasks[task].name)))
    {
        let [seconds, hidden_s, exposed_s] = sums[role][task].map(|sum| sum / each);
        // Roles that take part in an exchange have one name for it.
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

/// The spans of workers, in runs of one rank each.
pub fn of_workers<'a>(program: &Program, timeline: &'a Timeline) -> impl Iterator<Item = &'a [Span]> {
    let workers = program.workers();
    timeline.spans.chunk_by(|one, next| one.rank == next.rank).filter(move |run| run[0].rank < workers)
}

/// The share of the time in flight that computation hides, over those exchanges of the workers for which `of` holds;
/// `None` where none of them takes any time.
pub fn hidden_share(program: &Program, timeline: &Timeline, of: impl Fn(&Exchange) -> bool) -> Option<f64> {
    let (mut seconds, mut hidden) = (0.0, 0.0);
    for overlap in exchanges(program, timeline) {
        if matches!(&program.roles[overlap.role].tasks[overlap.task].op, Op::Exchange(exchange) if of(exchange)) {
            (seconds, hidden) = (seconds + overlap.seconds, hidden + overlap.hidden_s);
        }
    }
    (seconds > 0.0).then(|| hidden / seconds)
}

/// Adds seconds in flight, hidden and exposed of one rank's spans by task, counting exchanges from
/// iteration `first` on.
fn sweep(tasks: &[Task], runs: &[&[Span]], (first, end): (u32, &impl Fn(&Span) -> Time), sums: &mut [[f64; 3]]) {
    // Ends before starts, so that consecutive spans do not overlap. Spans are in order of their ends, so hardly
    // any is early.
    let mut ordered: Vec<Moment> = Vec::with_capacity(2 * runs.iter().map(|run| run.len()).sum::<usize>());
    let mut early: Vec<Moment> = Vec::new();
    for (index, span) in (0..).zip(runs.iter().copied().flatten()) {
        let task = &tasks[span.task as usize];
        let exchange = matches!(task.stream, Stream::Exchange | Stream::Receive);
        let until = if exchange { end(span) } else { span.end };
        let counts = (!exchange || span.iteration >= first) && task.stream.input().is_none();
        if counts && span.start < until && !matches!(task.op, Op::Repeat { .. } | Op::Schedule(_)) {
            for moment in [(span.start, true, index, span.task), (until, false, index, span.task)] {
                let follows = ordered.last().is_none_or(|last| *last < moment);
                if follows { ordered.push(moment) } else { early.push(moment) }
            }
        }
    }
    early.sort_unstable();
    let (mut computing, mut flying, mut since) = (0u32, Vec::<(u32, u32)>::new(), Time::ZERO);
    let mut pass = |(time, starts, index, task): Moment| {
        for (_, exchange) in &flying {
            let (sum, seconds) = (&mut sums[*exchange as usize], (time - since).as_secs_f64());
            sum[0] += seconds;
            if computing > 0 {
                sum[1] += seconds;
            } else {
                sum[2] += seconds / flying.len() as f64;
            }
        }
        since = time;
        match (tasks[task as usize].stream, starts) {
            (Stream::Compute | Stream::Synchronisation, true) => computing += 1,
            (Stream::Compute | Stream::Synchronisation, false) => computing -= 1,
            (Stream::Read | Stream::Decode | Stream::Upload, _) => {}
            (Stream::Exchange | Stream::Receive, true) => flying.push((index, task)),
            (Stream::Exchange | Stream::Receive, false) => flying.retain(|(other, _)| *other != index),
        }
    };
    let mut early = early.into_iter().peekable();
    for moment in ordered {
        while let Some(before) = early.next_if(|other| *other < moment) {
            pass(before);
        }
        pass(moment);
    }
    early.for_each(pass);
}

/// When a span starts (true) or ends, which one it is, and its task.
type Moment = (Time, bool, u32, u32);
