//! Indexes the spans of a step for the walk: by a rank's stream, by a task's run, by the members of an exchange.

use std::collections::BTreeMap;

use lockstep_topology::Time;

use crate::{Program, Role, Span, Step, Stream, Timeline};

/// What something waited for: the end of a span, or that it had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    End(usize),
    Start(usize),
}

/// A run of a task: rank, task, iteration, repetition.
type Run = (u32, u32, u32, u32);

/// The spans that a step's path can cross.
pub(super) struct Runs<'a> {
    program: &'a Program,
    step: Step,
    spans: Vec<Span>,
    by_run: BTreeMap<Run, usize>,
    /// By rank, in order of time; tasks of the synchronisation stream are among the exchanges.
    compute: BTreeMap<u32, Vec<usize>>,
    exchange: BTreeMap<u32, Vec<usize>>,
    /// Reads, decodes and uploads.
    input: [BTreeMap<u32, Vec<usize>>; Stream::INPUT.len()],
    /// For each role and task the number of its exchange, equal in the roles that take part in it.
    exchange_number: Vec<Vec<Option<u32>>>,
    /// By exchange, iteration and repetition.
    members: BTreeMap<(u32, u32, u32), Vec<usize>>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(program: &'a Program, timeline: &Timeline, step: Step) -> Runs<'a> {
        let inside = |span: &&Span| span.iteration <= step.iteration && span.end > step.begin && span.end <= step.end;
        let mut spans: Vec<Span> = timeline.spans.iter().filter(inside).copied().collect();
        spans.sort_by_key(|span| (span.rank, span.start, span.end));
        let mut runs = Runs {
            program,
            step,
            by_run: BTreeMap::new(),
            compute: BTreeMap::new(),
            exchange: BTreeMap::new(),
            input: Default::default(),
            exchange_number: program.exchange_numbers(),
            members: BTreeMap::new(),
            spans,
        };
        for (index, span) in runs.spans.iter().enumerate() {
            let role = program.role_of(span.rank);
            runs.by_run.insert((span.rank, span.task, span.iteration, span.repetition), index);
            match program.roles[role].tasks[span.task as usize].stream {
                Stream::Compute => runs.compute.entry(span.rank).or_default().push(index),
                Stream::Exchange | Stream::Receive | Stream::Synchronisation => {
                    runs.exchange.entry(span.rank).or_default().push(index);
                }
                input @ (Stream::Read | Stream::Decode | Stream::Upload) => {
                    let of_stream = input.input().and_then(|number| runs.input.get_mut(number));
                    of_stream.into_iter().for_each(|runs| runs.entry(span.rank).or_default().push(index));
                }
            }
            if let Some(exchange_number) = runs.exchange_number[role][span.task as usize] {
                runs.members.entry((exchange_number, span.iteration, span.repetition)).or_default().push(index);
            }
        }
        runs
    }

    pub(super) fn span(&self, index: usize) -> Span {
        self.spans[index]
    }

    /// The span that ends the step: of the lowest rank where several do.
    pub(super) fn last(&self) -> Option<usize> {
        let ends = |index: &usize| {
            let span = &self.spans[*index];
            span.iteration == self.step.iteration && span.end == self.step.end
        };
        (0..self.spans.len()).rev().filter(ends).min_by_key(|index| self.spans[*index].rank)
    }

    /// Of the members of the exchange `index` that came before `at`, the one that came last; its own rank if it is one
    /// of several. `None` for other tasks.
    pub(super) fn last_member(&self, index: usize, at: Time) -> Option<usize> {
        let span = self.spans[index];
        let exchange_number = self.exchange_number[self.program.role_of(span.rank)][span.task as usize]?;
        let members = self.members.get(&(exchange_number, span.iteration, span.repetition))?;
        let came = members.iter().copied().filter(|member| self.spans[*member].start < at);
        came.max_by_key(|member| {
            let member = &self.spans[*member];
            (member.start, member.rank == span.rank, std::cmp::Reverse(member.rank))
        })
    }

    /// What let the span `index` start: the latest of all that it waited for, not after `at`; ends before starts.
    pub(super) fn cause(&self, index: usize, at: Time) -> Option<(Time, Moment)> {
        let span = self.spans[index];
        let role = &self.program.roles[self.program.role_of(span.rank)];
        let task = &role.tasks[span.task as usize];
        let mut causes: Vec<Moment> = Vec::new();
        let (own, other) = match (task.stream, task.stream.input()) {
            // Input tasks wait for no iteration.
            (_, Some(number)) => (&self.input[number], &BTreeMap::new()),
            (Stream::Compute, None) => (&self.compute, &self.exchange),
            _ => (&self.exchange, &self.compute),
        };
        let position = own.get(&span.rank).and_then(|list| Some((list, list.iter().position(|i| *i == index)?)));
        if let Some((list, position)) = position {
            let before = position.checked_sub(1).map(|position| list[position]);
            match task.stream {
                Stream::Compute | Stream::Read | Stream::Decode | Stream::Upload => {
                    causes.extend(before.map(Moment::End));
                }
                // Exchanges of a rank start in program order and may be in flight together.
                Stream::Exchange | Stream::Receive | Stream::Synchronisation => {
                    causes.extend(before.map(Moment::Start));
                }
            }
        }
        // An iteration begins when the one before is computed and its exchanges have started, but for those that its own
        // passes wait for.
        let earlier = other.get(&span.rank).into_iter().flatten().copied();
        let earlier = earlier.filter(|other| self.spans[*other].iteration < span.iteration);
        match task.stream {
            Stream::Compute => causes.extend(earlier.map(Moment::Start)),
            Stream::Exchange | Stream::Receive => causes.extend(earlier.map(Moment::End)),
            // It may run whenever what it is after is done.
            Stream::Synchronisation | Stream::Read | Stream::Decode | Stream::Upload => {}
        }
        for run in waits_for(role, span) {
            causes.extend(self.by_run.get(&run).copied().filter(|other| *other != index).map(Moment::End));
        }
        let time = |moment: Moment| match moment {
            Moment::End(index) => self.spans[index].end,
            Moment::Start(index) => self.spans[index].start,
        };
        let timed = causes.into_iter().map(|moment| (time(moment), moment)).filter(|(time, _)| *time <= at);
        timed.max_by_key(|(time, moment)| (*time, matches!(moment, Moment::End(_))))
    }

    /// An exchange that is in flight on `rank` just before `at`: the one that started first.
    pub(super) fn in_flight(&self, rank: u32, at: Time) -> Option<Span> {
        let of_rank = self.exchange.get(&rank).into_iter().flatten().map(|index| self.spans[*index]);
        of_rank.filter(|span| span.start < at && span.end >= at).min_by_key(|span| (span.start, span.task))
    }

    /// When an exchange of `rank` last ended before `at`.
    pub(super) fn flight_before(&self, rank: u32, at: Time) -> Time {
        let of_rank = self.exchange.get(&rank).into_iter().flatten().map(|index| self.spans[*index].end);
        of_rank.filter(|end| *end < at).max().unwrap_or(Time::ZERO)
    }
}

/// The runs that a run is `after`, its own previous one among them.
fn waits_for(role: &Role, span: Span) -> Vec<Run> {
    let task = span.task as usize;
    let mut runs = Vec::new();
    match (span.repetition.checked_sub(1), span.iteration.checked_sub(1)) {
        (Some(repetition), _) => runs.push((span.rank, span.task, span.iteration, repetition)),
        (None, Some(iteration)) => runs.push((span.rank, span.task, iteration, role.runs_of(task) - 1)),
        (None, None) => {}
    }
    for need in role.needs(task) {
        let run = need.last_run(span.iteration, span.repetition);
        runs.extend(run.map(|(iteration, repetition)| (span.rank, need.task as u32, iteration, repetition)));
    }
    runs
}
