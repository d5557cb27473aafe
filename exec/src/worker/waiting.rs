//! Waits for a condition: makes progress on everything else, sleeps where nothing moves, and gives up at the stall
//! limit.

use std::time::{Duration, Instant};

use lockstep_models::{Stream, TaskId};
use lockstep_topology::Time;

use super::Worker;
use crate::error::ExecError;

/// The longest sleep of a rank that waits.
pub(super) const NAP: Duration = Duration::from_millis(500);

impl Worker<'_> {
    /// Whether the dependencies of `task` are done.
    pub(super) fn satisfied(&self, task: TaskId, iteration: u32, repetition: u32) -> bool {
        self.needs[task].0.iter().all(|need| self.done[need.task] >= need.runs(iteration, repetition))
    }

    /// When the last dependency of `task` ended, or the task before it on its stream.
    pub(super) fn ready(&self, task: TaskId) -> Time {
        let after = self.needs[task].0.iter().map(|need| self.ended[need.task]).max().unwrap_or(Time::ZERO);
        let before = self.spans.last().map_or(Time::ZERO, |span| span.end);
        if self.role.tasks[task].stream == Stream::Compute { after.max(before) } else { after }
    }

    /// Makes progress until the condition holds; blocks where nothing moves, and gives up at the stall limit.
    pub(super) fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> Result<(), ExecError> {
        self.wait_napping((self.setup.guard.limit / 8).min(NAP), condition)
    }

    /// Ends the job because nothing has moved for `waited`.
    pub(super) fn give_up(&mut self, waited: Duration) -> ExecError {
        let error = self.setup.guard.give_up(self.transport.rank().0, waited.as_secs_f64());
        self.transport.abort(&error.to_string());
        error
    }

    /// As [`Worker::wait_until`], with sleeps of at most `nap`, for conditions that no message signals.
    pub(super) fn wait_napping(&mut self, nap: Duration, condition: impl Fn(&Self) -> bool) -> Result<(), ExecError> {
        let mut last_move = Instant::now();
        let mut messages = self.messages();
        let (limit, mut reported) = (self.setup.guard.limit, false);
        while !condition(self) {
            if self.progress()? {
                last_move = Instant::now();
                continue;
            }
            // A long exchange makes progress message by message.
            let now = self.messages();
            if now != messages {
                (last_move, messages) = (Instant::now(), now);
                self.flight.moved(self.now());
            }
            let waited = last_move.elapsed();
            if waited > limit / 4 {
                reported = true;
                self.record_waits();
            }
            if waited > limit {
                return Err(self.give_up(waited));
            }
            if self.awaits_arrivals() {
                std::thread::yield_now();
            } else {
                self.transport.wait(Some(Instant::now() + nap))?;
            }
        }
        if reported {
            self.flight.wait_for(std::iter::empty());
        }
        Ok(())
    }
}
