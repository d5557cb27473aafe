//! Records when each task of each rank was ready, started and ended: a timeline, predicted or measured in one form.

pub mod critical_path;
pub mod overlap;
mod totals;
mod waits;

use std::borrow::Cow;
use std::collections::BTreeMap;

use lockstep_topology::Time;

use crate::{Op, Periodic, PeriodicSpan, Program, Span, Stream, TaskId};
pub use critical_path::CriticalPath;
pub use totals::{Total, Totals};
pub use waits::straggling_s;

/// One optimizer step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which iteration it is.
    pub iteration: u32,
    /// When the last rank ended the iteration before, and the work between the two.
    pub begin: Time,
    /// When the last rank ended this one.
    pub end: Time,
}

impl Step {
    /// How long it took.
    pub fn seconds(self) -> f64 {
        (self.end - self.begin).as_secs_f64()
    }
}

/// The kind under which reports count the time in which a worker's compute stream is idle for other reasons than
/// [`INPUT_WAIT`].
pub const WAIT: &str = "wait";

/// The kind under which they count the time in which it waits for the batch that it loads next.
pub const INPUT_WAIT: &str = "input wait";

/// All spans of a run; iterations before `warm_up` are kept but not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// In the order in which they ended, rank by rank.
    pub spans: Vec<Span>,
    /// Iterations at the start that statistics leave out.
    pub warm_up: u32,
    /// Instead of the spans, where those were too many to keep; else empty.
    pub totals: Totals,
    /// The work between steps: shuffles, evaluations, checkpoints.
    pub periodic: Vec<PeriodicSpan>,
}

impl Timeline {
    /// The timeline of these spans.
    pub fn of(spans: Vec<Span>, warm_up: u32) -> Timeline {
        Timeline { spans, warm_up, ..Timeline::default() }
    }

    /// Totals by iteration, role and task, whether or not the spans were kept.
    pub fn totals(&self, program: &Program) -> Cow<'_, Totals> {
        match self.totals.is_empty() {
            true => Cow::Owned(Totals::of(&self.spans, program)),
            false => Cow::Borrowed(&self.totals),
        }
    }

    /// The counted steps: from the last rank's end of one iteration to the last rank's end of the next, without the
    /// work between them.
    pub fn steps(&self) -> Vec<Step> {
        let ends = self.ends();
        let first = (self.warm_up as usize).max(1);
        let mut begins: Vec<Time> = std::iter::once(Time::ZERO).chain(ends.iter().copied()).collect();
        for PeriodicSpan { span, .. } in &self.periodic {
            if let Some(begin) = begins.get_mut(span.iteration as usize) {
                *begin = span.end.max(*begin);
            }
        }
        let begin = |i: usize| begins[i];
        // Where overlapping iterations end out of order, the later one has a time of zero.
        let step = |i: usize| Step { iteration: i as u32, begin: begin(i), end: ends[i].max(begin(i)) };
        (if ends.len() <= first { 0 } else { first }..ends.len()).map(step).collect()
    }

    /// Seconds of each counted step.
    pub fn step_times_s(&self) -> Vec<f64> {
        self.steps().into_iter().map(Step::seconds).collect()
    }

    /// Median of [`Timeline::step_times_s`].
    pub fn step_time_s(&self) -> f64 {
        median(self.step_times_s())
    }

    /// Median over counted steps of the time in which a worker's compute stream was idle, except for waits for a batch,
    /// averaged over workers: what communication costs beyond what computation hides.
    pub fn exposed_comm_s(&self, program: &Program) -> f64 {
        let mut busy: BTreeMap<u32, f64> = BTreeMap::new();
        let totals = self.totals(program);
        let workers = f64::from(workers(program, &totals));
        for (iteration, _, _, total) in totals.iter().filter(|run| computes(program, run.1, run.2)) {
            *busy.entry(iteration).or_default() += total.busy_s();
        }
        let busy = |step: &Step| busy.get(&step.iteration).copied().unwrap_or(0.0) / workers;
        let steps = self.steps();
        let waits = self.input_waits_s(program, &steps);
        let exposed = steps.iter().zip(waits).map(|(step, wait)| (step.seconds() - busy(step) - wait).max(0.0));
        median(exposed.collect())
    }

    /// Median over counted steps of the time in which a worker's compute stream waited for a batch, averaged over
    /// workers: what reading and decoding cost beyond what computation hides. `None` for a program without input tasks.
    pub fn exposed_input_s(&self, program: &Program) -> Option<f64> {
        program.has_input().then(|| median(self.input_waits_s(program, &self.steps())))
    }

    /// Mean seconds per counted step and worker of each task kind on the compute stream, [`INPUT_WAIT`] where there are
    /// input tasks, and [`WAIT`] for the rest of the step.
    pub fn seconds_by_kind(&self, program: &Program) -> BTreeMap<&'static str, f64> {
        let steps = self.ends().len().saturating_sub(self.warm_up as usize).max(1) as f64;
        let mut kinds: BTreeMap<&'static str, f64> = BTreeMap::new();
        let totals = self.totals(program);
        let workers = f64::from(workers(program, &totals));
        let counted = totals.iter().filter(|run| run.0 >= self.warm_up && computes(program, run.1, run.2));
        for (_, role, task, total) in counted {
            let kind = program.roles[role].tasks[task].op.kind();
            *kinds.entry(kind).or_default() += total.busy_s() / steps / workers;
        }
        let steps = self.steps();
        let mean = |all: &mut dyn Iterator<Item = f64>| all.sum::<f64>() / steps.len().max(1) as f64;
        if program.has_input() {
            kinds.insert(INPUT_WAIT, mean(&mut self.input_waits_s(program, &steps).into_iter()));
        }
        let busy: f64 = kinds.values().sum();
        let step = mean(&mut steps.iter().map(|step| step.seconds()));
        kinds.insert(WAIT, (step - busy).max(0.0));
        kinds
    }

    /// Mean seconds per counted step and worker in which the compute stream is busy.
    pub fn computation_s(&self, program: &Program) -> f64 {
        let kinds = self.seconds_by_kind(program);
        kinds.iter().filter(|(kind, _)| ![WAIT, INPUT_WAIT].contains(kind)).map(|(_, seconds)| seconds).sum()
    }

    /// Seconds per worker of each kind of task on the compute stream in each counted step, [`INPUT_WAIT`] where there
    /// are input tasks, and [`WAIT`] for the rest of it, which is never longer than the step; their medians are
    /// [`Timeline::exposed_input_s`] and [`Timeline::exposed_comm_s`]. Also includes what was read and decoded ahead.
    pub fn kinds_by_step(&self, program: &Program) -> Vec<BTreeMap<&'static str, f64>> {
        let totals = self.totals(program);
        let workers = f64::from(workers(program, &totals));
        let by_iteration = |counts: fn(&Program, usize, TaskId) -> bool| {
            let mut kinds: BTreeMap<u32, BTreeMap<&'static str, f64>> = BTreeMap::new();
            for (iteration, role, task, total) in totals.iter().filter(|run| counts(program, run.1, run.2)) {
                let kind = program.roles[role].tasks[task].op.kind();
                *kinds.entry(iteration).or_default().entry(kind).or_default() += total.busy_s() / workers;
            }
            kinds
        };
        let (mut computed, mut input) = (by_iteration(computes), by_iteration(is_input));
        let steps = self.steps();
        let waits = self.input_waits_s(program, &steps);
        let of_step = |(step, wait): (Step, f64)| {
            let mut kinds = computed.remove(&step.iteration).unwrap_or_default();
            if program.has_input() {
                kinds.insert(INPUT_WAIT, wait);
            }
            let busy: f64 = kinds.values().sum();
            kinds.insert(WAIT, (step.seconds() - busy).max(0.0));
            kinds.extend(input.remove(&step.iteration).unwrap_or_default());
            kinds
        };
        steps.into_iter().zip(waits).map(of_step).collect()
    }

    /// Seconds per worker of each task on the compute stream, by name, in each counted step.
    pub fn tasks_by_step<'p>(&self, program: &'p Program) -> Vec<BTreeMap<&'p str, f64>> {
        let totals = self.totals(program);
        let workers = f64::from(workers(program, &totals));
        let mut tasks: BTreeMap<u32, BTreeMap<&str, f64>> = BTreeMap::new();
        for (iteration, role, task, total) in totals.iter().filter(|run| computes(program, run.1, run.2)) {
            let name = program.roles[role].tasks[task].name.as_str();
            *tasks.entry(iteration).or_default().entry(name).or_default() += total.busy_s() / workers;
        }
        self.steps().into_iter().map(|step| tasks.remove(&step.iteration).unwrap_or_default()).collect()
    }

    /// Seconds of each shuffle, evaluation or checkpoint: from its first task's start, or the last rank's end of the
    /// step before if that is later (the time until then is the step's), to its last task's end on any rank.
    ///
    /// ```
    /// use lockstep_models::{Periodic, PeriodicSpan, Span, Timeline};
    /// use lockstep_topology::Time;
    /// let span = |rank, iteration, [start, end]: [u64; 2]| {
    ///     let [start, end] = [start, end].map(Time::from_nanos);
    ///     Span { rank, task: 0, iteration, repetition: 0, ready: start, start, end }
    /// };
    /// // Rank 1 ends the first step 4 ns after rank 0, which is packing by then.
    /// let shuffle = |rank, times| PeriodicSpan { kind: Periodic::Shuffle, span: span(rank, 1, times) };
    /// let spans = vec![span(0, 0, [0, 10]), span(1, 0, [0, 14]), span(0, 1, [17, 27]), span(1, 1, [17, 27])];
    /// let timeline = Timeline { periodic: vec![shuffle(0, [10, 12]), shuffle(1, [14, 17])], ..Timeline::of(spans, 1) };
    /// let [step, shuffle] = [timeline.step_times_s()[0], timeline.periodic_times_s(Periodic::Shuffle)[0]];
    /// // 14 ns of the first step, 3 of the shuffle, 10 of the second step.
    /// assert_eq!([step, shuffle].map(|seconds| (seconds * 1e9).round()), [10.0, 3.0]);
    /// ```
    pub fn periodic_times_s(&self, kind: Periodic) -> Vec<f64> {
        let ends = self.ends();
        let mut times: BTreeMap<u32, (Time, Time)> = BTreeMap::new();
        for PeriodicSpan { span, .. } in self.periodic.iter().filter(|run| run.kind == kind) {
            let (start, end) = times.entry(span.iteration).or_insert((span.start, span.end));
            (*start, *end) = (span.start.min(*start), span.end.max(*end));
        }
        let seconds = |(iteration, (start, end)): (u32, (Time, Time))| {
            let before = iteration.checked_sub(1).and_then(|before| ends.get(before as usize));
            end.since(before.map_or(start, |before| start.max(*before))).as_secs_f64()
        };
        times.into_iter().map(seconds).collect()
    }

    /// The median of these; `None` where there was none.
    pub fn periodic_time_s(&self, kind: Periodic) -> Option<f64> {
        let times = self.periodic_times_s(kind);
        (!times.is_empty()).then(|| median(times))
    }

    /// When the last rank ended the last iteration, and how many iterations there are.
    pub fn end(&self) -> (Time, u32) {
        let ends = self.ends();
        (ends.iter().copied().max().unwrap_or(Time::ZERO), ends.len() as u32)
    }

    /// When the last rank ended the first iteration, in seconds from the start; zero where there is none.
    pub fn first_end_s(&self) -> f64 {
        self.ends().first().map_or(0.0, |end| end.as_secs_f64())
    }

    /// When the last rank ended each iteration.
    fn ends(&self) -> Vec<Time> {
        if !self.totals.is_empty() {
            return self.totals.ends();
        }
        let mut ends: Vec<Time> = Vec::new();
        for span in &self.spans {
            match ends.get_mut(span.iteration as usize) {
                Some(end) => *end = span.end.max(*end),
                None => {
                    ends.resize(span.iteration as usize, Time::ZERO);
                    ends.push(span.end);
                }
            }
        }
        ends
    }
}

/// The number of workers that ran; the first ones represent all where a simulation was folded.
fn workers(program: &Program, totals: &Totals) -> u32 {
    let roles = (0..program.roles.len()).filter(|role| is_worker(program, *role));
    match roles.map(|role| totals.ranks(role)).max() {
        Some(ranks) if ranks > 0 => ranks,
        _ => program.workers(),
    }
}

fn is_worker(program: &Program, role: usize) -> bool {
    program.roles[role].ranks.first() < program.workers()
}

/// Whether this reads, decodes or uploads samples ahead.
fn is_input(program: &Program, role: usize, task: TaskId) -> bool {
    program.roles[role].tasks[task].stream.input().is_some()
}

/// Whether this is a worker's task on its compute stream.
pub(crate) fn computes(program: &Program, role: usize, task: TaskId) -> bool {
    let plan = &program.roles[role].tasks[task];
    is_worker(program, role)
        && plan.stream == Stream::Compute
        && !matches!(plan.op, Op::Repeat { .. } | Op::Schedule(_))
}

/// The middle value, the mean of the two middle ones, or zero for none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The value below which `share` of the ascending `values` are, interpolated; zero for none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (values[at.floor() as usize], values[at.ceil() as usize]);
    below + (above - below) * at.fract()
}
