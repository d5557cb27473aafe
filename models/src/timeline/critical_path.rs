//! Finds the critical path of a step: from its last span back through what each span waited for, so that its parts add
//! up to the step's time exactly.
//!
//! A pure function of program and timeline, so it explains predicted and measured runs alike. A span waits for the task
//! before it in its rank's stream, for what it is `after`, and in an exchange for the member that came last. Time
//! between a compute task and what it waited for is attributed to an exchange in flight on its rank (on a CPU the
//! rank's thread then handles messages), else it is called `wait`.

mod runs;

use std::collections::BTreeMap;

use lockstep_topology::Time;

use crate::{Op, Program, Step, Timeline};
use runs::{Moment, Runs};

/// The name of time that no task accounts for.
pub const WAIT: &str = "wait";

/// A part of the path: what one rank does in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The rank.
    pub rank: u32,
    /// Which task of the rank's role; `None` where it waits for no task that is known.
    pub task: Option<u32>,
    /// When it begins to hold up the step.
    pub begin: Time,
    /// When it ends.
    pub end: Time,
}

/// What a step's time consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriticalPath {
    /// The step.
    pub step: Step,
    /// Its parts in order of time, without gap or overlap from the step's begin to its end.
    pub segments: Vec<Segment>,
}

impl CriticalPath {
    /// The path of one of the timeline's [`Timeline::steps`].
    pub fn of(program: &Program, timeline: &Timeline, step: Step) -> CriticalPath {
        let runs = Runs::new(program, timeline, step);
        let mut walk = Walk { step, runs: &runs, at: step.end, segments: Vec::new() };
        walk.run();
        walk.segments.reverse();
        CriticalPath { step, segments: walk.segments }
    }

    /// The path of the counted step of median length, the shorter of the two where there are two; `None` of no step.
    pub fn of_median_step(program: &Program, timeline: &Timeline) -> Option<CriticalPath> {
        let mut steps = timeline.steps();
        steps.sort_by_key(|step| (step.end - step.begin, step.iteration));
        let middle = steps.len().checked_sub(1)? / 2;
        Some(CriticalPath::of(program, timeline, steps[middle]))
    }

    /// Time by kind of task: `load`, `forward`, `backward`, `update`, `exchange`, `wait`. Adds up to the step.
    pub fn time_by_kind(&self, program: &Program) -> BTreeMap<&'static str, Time> {
        let mut kinds: BTreeMap<&'static str, Time> = BTreeMap::new();
        for segment in &self.segments {
            *kinds.entry(kind(program, segment)).or_default() += segment.end - segment.begin;
        }
        kinds
    }

    /// Kind, name and time of each task on the path over all ranks and repetitions, the longest first.
    pub fn tasks(&self, program: &Program) -> Vec<(&'static str, String, Time)> {
        let mut tasks: BTreeMap<(&'static str, String), Time> = BTreeMap::new();
        for segment in &self.segments {
            let name = match segment.task {
                Some(task) => program.roles[program.role_of(segment.rank)].tasks[task as usize].name.clone(),
                None => WAIT.to_owned(),
            };
            *tasks.entry((kind(program, segment), name)).or_default() += segment.end - segment.begin;
        }
        let mut tasks: Vec<_> = tasks.into_iter().map(|((kind, name), time)| (kind, name, time)).collect();
        tasks.sort_by_key(|(_, _, time)| std::cmp::Reverse(*time));
        tasks
    }
}

/// The kind of a segment, both backward phases being one.
pub fn kind(program: &Program, segment: &Segment) -> &'static str {
    let Some(task) = segment.task else { return WAIT };
    match &program.roles[program.role_of(segment.rank)].tasks[task as usize].op {
        Op::Compute { phase, .. } if !phase.makes_outputs() => "backward",
        op => op.kind(),
    }
}

/// The walk from the step's end to its begin.
struct Walk<'a> {
    step: Step,
    runs: &'a Runs<'a>,
    at: Time,
    segments: Vec<Segment>,
}

impl Walk<'_> {
    fn run(&mut self) {
        let Some(mut span) = self.runs.last() else {
            self.cover(0, None, self.step.begin);
            return;
        };
        while self.at > self.step.begin {
            let this = self.runs.span(span);
            // An exchange progresses only once its last member has started, so the path continues with what that
            // one waited for.
            let holder = self.runs.last_member(span, self.at).unwrap_or(span);
            self.cover(this.rank, Some(this.task), self.runs.span(holder).start);
            match self.before(holder) {
                Some(earlier) => span = earlier,
                None => return,
            }
        }
    }

    /// The span whose end let `span` start; the time between the two is attributed. `None` at the step's begin.
    fn before(&mut self, mut span: usize) -> Option<usize> {
        while self.at > self.step.begin {
            let cause = self.runs.cause(span, self.at);
            let since = cause.map_or(self.step.begin, |(time, _)| time);
            self.idle(self.runs.span(span).rank, since);
            match cause?.1 {
                Moment::End(earlier) => return Some(earlier),
                Moment::Start(earlier) => span = earlier,
            }
        }
        None
    }

    /// Attributes the time of `rank` back to `since`, in which its stream was idle.
    fn idle(&mut self, rank: u32, since: Time) {
        let since = since.max(self.step.begin);
        while self.at > since {
            match self.runs.in_flight(rank, self.at) {
                Some(exchange) => self.cover(rank, Some(exchange.task), exchange.start.max(since)),
                None => self.cover(rank, None, self.runs.flight_before(rank, self.at).max(since)),
            }
        }
    }

    fn cover(&mut self, rank: u32, task: Option<u32>, since: Time) {
        let begin = since.max(self.step.begin);
        if begin < self.at {
            self.segments.push(Segment { rank, task, begin, end: self.at });
            self.at = begin;
        }
    }
}
