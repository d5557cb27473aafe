//! The record of a run: spans while they are few enough, else totals.

use lockstep_models::{Span, Total, Totals};
use lockstep_topology::Time;

/// What has been done so far.
#[derive(Debug)]
pub(crate) struct Record {
    /// In the order in which they ended; empty once there were more than `limit`.
    pub(crate) spans: Vec<Span>,
    pub(crate) totals: Totals,
    /// The role of each span.
    roles: Vec<u32>,
    /// Spans that are kept at most.
    pub(crate) limit: usize,
    /// When the last task ended.
    pub(crate) end: Time,
}

impl Default for Record {
    fn default() -> Record {
        let (spans, totals, roles) = (Vec::new(), Totals::default(), Vec::new());
        Record { spans, totals, roles, limit: usize::MAX, end: Time::ZERO }
    }
}

impl Record {
    /// Adds a run of a task of `role`.
    pub(super) fn add(&mut self, role: u32, span: Span) {
        self.end = self.end.max(span.end);
        if self.makes_room(1) {
            self.spans.push(span);
            self.roles.push(role);
        } else {
            self.totals.add(role as usize, &span);
        }
    }

    /// Adds `times` repetitions of a part of `role`'s stream, `span` each, which `tasks` were the first of.
    pub(super) fn add_repetitions(&mut self, role: u32, tasks: &[Span], times: u32, span: Time) {
        let later = |at: Time, repetition: u32| at + Time(span.0 * u64::from(repetition));
        self.end = tasks.iter().map(|task| later(task.end, times - 1)).fold(self.end, Time::max);
        if self.makes_room(tasks.len() * times as usize) {
            for again in 0..times {
                let moved = |task: &Span| Span {
                    repetition: task.repetition + again,
                    ready: later(task.ready, again),
                    start: later(task.start, again),
                    end: later(task.end, again),
                    ..*task
                };
                self.spans.extend(tasks.iter().map(moved));
            }
            self.roles.resize(self.spans.len(), role);
            return;
        }
        for task in tasks {
            let Total { busy_ps, waited_ps, end, .. } = Total::of(task);
            let (runs, each) = (u64::from(times), u128::from(times));
            let all = Total { runs, busy_ps: busy_ps * each, waited_ps: waited_ps * each, end: later(end, times - 1) };
            self.totals.add_runs(role as usize, task, all);
        }
    }

    /// Whether `more` spans may be kept; where they may not, those before them become totals.
    fn makes_room(&mut self, more: usize) -> bool {
        if !self.totals.is_empty() || self.spans.len().saturating_add(more) > self.limit {
            for (role, span) in self.roles.drain(..).zip(self.spans.drain(..)) {
                self.totals.add(role as usize, &span);
            }
            return false;
        }
        true
    }
}
