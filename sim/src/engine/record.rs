//! `Record`: keeps spans while they are few enough, else totals.

use lockstep_models::{Span, Total, Totals};
use lockstep_topology::Time;

/// The work done so far.
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
    /// Iterations that were recorded without being simulated, and their time: everything added later is
    /// shifted by these.
    pub(super) skipped: (u32, Time),
}

/// The work done up to some moment.
#[derive(Debug)]
pub(super) enum Mark {
    Spans(usize),
    Totals(Totals),
}

impl Default for Record {
    fn default() -> Record {
        let (spans, totals, roles) = (Vec::new(), Totals::default(), Vec::new());
        Record { spans, totals, roles, limit: usize::MAX, end: Time::ZERO, skipped: (0, Time::ZERO) }
    }
}

impl Record {
    /// Adds a run of a task of `role`.
    pub(super) fn add(&mut self, role: u32, span: Span) {
        let span = later(&span, self.skipped);
        self.end = self.end.max(span.end);
        if self.makes_room(1) {
            self.spans.push(span);
            self.roles.push(role);
        } else {
            self.totals.add(role as usize, &span);
        }
    }

    /// Adds `times` repetitions of a part of `role`'s stream, `span` each; `tasks` are the first.
    pub(super) fn add_repetitions(&mut self, role: u32, tasks: &[Span], times: u32, span: Time) {
        let tasks: Vec<Span> = tasks.iter().map(|task| later(task, self.skipped)).collect();
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
        for task in &tasks {
            let Total { busy_ps, waited_ps, end, .. } = Total::of(task);
            let (runs, each) = (u64::from(times), u128::from(times));
            let all = Total { runs, busy_ps: busy_ps * each, waited_ps: waited_ps * each, end: later(end, times - 1) };
            self.totals.add_runs(role as usize, task, all);
        }
    }

    /// The present as a mark.
    pub(super) fn mark(&self) -> Mark {
        if self.totals.is_empty() { Mark::Spans(self.spans.len()) } else { Mark::Totals(self.totals.clone()) }
    }

    /// Adds what was done since `mark`, `times` times more, each later by `period` iterations and `span`, except for
    /// iterations from `first` on; `None` (and nothing added) where spans became totals meanwhile.
    pub(super) fn repeat(&mut self, mark: &Mark, times: u32, (period, span): (u32, Time), first: u32) -> Option<()> {
        let by = |again: u32| (again * period, Time(span.0 * u64::from(again)));
        let once = match mark {
            Mark::Spans(_) if !self.totals.is_empty() => return None,
            Mark::Spans(from) => {
                let (spans, roles) = (self.spans[*from..].to_vec(), self.roles[*from..].to_vec());
                let beyond = spans.iter().filter(|span| span.iteration + by(times).0 >= first).count();
                if self.makes_room(spans.len().saturating_mul(times as usize).saturating_sub(beyond)) {
                    for again in 1..=times {
                        let all = spans.iter().map(|span| later(span, by(again))).zip(&roles);
                        for (span, role) in all.filter(|(span, _)| span.iteration < first) {
                            self.spans.push(span);
                            self.roles.push(*role);
                        }
                    }
                    Totals::default()
                } else {
                    let mut once = Totals::default();
                    roles.iter().zip(&spans).for_each(|(role, span)| once.add(*role as usize, span));
                    once
                }
            }
            Mark::Totals(before) => self.totals.since(before),
        };
        (1..=times).for_each(|again| self.totals.add_later(&once, by(again)));
        self.totals.cut(first);
        let ends = self.spans.iter().map(|span| span.end).chain(self.totals.iter().map(|(.., total)| total.end));
        (self.end, self.skipped) = (ends.max().unwrap_or(Time::ZERO), by(times));
        Some(())
    }

    /// Whether `more` spans may be kept; if not, those before them become totals.
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

/// A span, later by this many iterations and this much time.
fn later(span: &Span, (iterations, by): (u32, Time)) -> Span {
    let Span { iteration, ready, start, end, .. } = *span;
    Span { iteration: iteration + iterations, ready: ready + by, start: start + by, end: end + by, ..*span }
}
