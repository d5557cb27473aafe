//! Collects the losses and task times of an asynchronous device after an iteration's tasks have been submitted to it.
//!
//! The next iteration is submitted before this one is done, so that the device never waits for its host.

use std::collections::VecDeque;
use std::time::Instant;

use lockstep_models::Stream;
use lockstep_topology::Time;

use super::Worker;
use crate::device::{IterationResults, Mark};
use crate::error::ExecError;
use crate::replica::Replica;

/// Outstanding results.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    present: Outstanding,
    /// Submitted iterations, the oldest first.
    submitted: VecDeque<(Submitted, Outstanding)>,
}

/// The outstanding results of an iteration.
#[derive(Debug, Default)]
struct Outstanding {
    /// For each loss its chain, and whether its samples are those of a pass that all ranks share.
    losses: Vec<(usize, bool)>,
    /// Spans by their number, with the marks of their start and end.
    marks: Vec<(usize, Mark, Mark)>,
}

/// A submitted iteration and its number of samples.
#[derive(Debug)]
struct Submitted {
    iteration: u32,
    /// Its number since training began.
    batch: u64,
    samples: f64,
}

impl Deferred {
    /// Records that the loss of a chain is outstanding.
    pub(super) fn expect_loss(&mut self, chain: usize, in_pass: bool) {
        self.present.losses.push((chain, in_pass));
    }
}

impl Worker<'_> {
    /// Whether the device runs asynchronously.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.memory.replica.as_ref().is_some_and(Replica::is_asynchronous)
    }

    /// Sets a mark before a task, where the device times its tasks.
    pub(super) fn mark(&mut self) -> Result<Option<Mark>, ExecError> {
        if !self.setup.options.timed || !self.is_asynchronous() {
            return Ok(None);
        }
        Ok(Some(self.memory.device().mark()?))
    }

    /// Sets a mark after the task of the latest span.
    pub(super) fn note_marks(&mut self, from: Option<Mark>) -> Result<(), ExecError> {
        if let (Some(from), Some(to)) = (from, self.mark()?) {
            self.deferred.present.marks.push((self.spans.len() - 1, from, to));
        }
        Ok(())
    }

    /// Ends an iteration, step `batch` since training began, whose tasks have all been submitted.
    pub(super) fn end_iteration(&mut self, batch: u64) -> Result<(), ExecError> {
        let submitted = Submitted { iteration: self.iteration, batch, samples: self.samples };
        if !self.is_asynchronous() {
            self.report(&submitted);
            return Ok(());
        }
        self.memory.device().end_iteration()?;
        let outstanding = std::mem::take(&mut self.deferred.present);
        self.deferred.submitted.push_back((submitted, outstanding));
        // Losses of single samples must be read before the next iteration overwrites them.
        if self.setup.program.takes_losses_by_node() { self.collect_finished(0) } else { Ok(()) }
    }

    /// Waits until at most `left` iterations are in flight on the device, advances exchanges, and records results.
    pub(super) fn collect_finished(&mut self, left: usize) -> Result<(), ExecError> {
        while self.deferred.submitted.len() > left {
            let results = self.await_device()?;
            let Some((submitted, outstanding)) = self.deferred.submitted.pop_front() else { return Ok(()) };
            for (of, loss) in outstanding.losses.into_iter().zip(results.losses) {
                self.count(loss, of, (submitted.iteration, submitted.batch))?;
            }
            let zero = self.clock;
            let time = |at: Instant| Time::from_nanos(at.saturating_duration_since(zero).as_nanos() as u64);
            for (span, from, to) in outstanding.marks {
                let span = &mut self.spans[span];
                let passed = |mark: Mark| results.times.get(mark.0).map_or(span.end, |at| time(*at));
                (span.start, span.end) = (passed(from), passed(to));
                span.ready = span.ready.min(span.start);
            }
            if let (false, Some(end)) = (self.setup.options.timed, results.end) {
                // The step ends when the device is done, not when the last task was submitted.
                let computes = |task: u32| self.role.tasks[task as usize].stream == Stream::Compute;
                let of = |iteration| iteration == submitted.iteration;
                let last = self.spans.iter().rposition(|span| of(span.iteration) && computes(span.task));
                if let Some(span) = last.map(|last| &mut self.spans[last]) {
                    span.end = time(end).max(span.start);
                }
            }
            self.report(&submitted);
        }
        Ok(())
    }

    /// Reports an iteration's mean local loss to the observer.
    fn report(&self, of: &Submitted) {
        let rank = self.transport.rank().0;
        // In a pipeline the first rank that has the loss reports it.
        if rank == self.setup.program.first_with_loss() {
            let each = self.setup.program.losses_of(rank);
            let own = &self.losses[of.iteration as usize * each..][..each];
            self.setup
                .options
                .observer
                .stepped(of.iteration, own.iter().sum::<f64>() / of.samples.max(f64::MIN_POSITIVE));
        }
    }

    fn await_device(&mut self) -> Result<IterationResults, ExecError> {
        let began = Instant::now();
        loop {
            while self.progress()? {}
            if let Some(results) = self.memory.device().finished_iteration()? {
                return Ok(results);
            }
            if began.elapsed() > self.setup.guard.limit {
                return Err(self.give_up(began.elapsed()));
            }
            std::thread::yield_now();
        }
    }
}
