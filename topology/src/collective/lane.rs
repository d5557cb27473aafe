//! `Lane`: yields the steps of one member in order.
//!
//! Steps are computed by number instead of kept by a state machine: a lane is then an index over pure arithmetic.

use std::fmt;
use std::sync::Arc;

use super::step::{Action, LaneStep};

/// The steps of one lane on one member, in order; the module's documentation says what lanes mean.
#[derive(Clone)]
pub struct Lane {
    at: u32,
    end: u32,
    step: Arc<dyn Fn(u32) -> LaneStep + Send + Sync>,
    sent: Option<Sent>,
}

impl Lane {
    /// A lane of `len` steps by number. Steps may be empty (`start == end`); those are left out on both sides.
    pub(super) fn new(len: u32, step: impl Fn(u32) -> LaneStep + Send + Sync + 'static) -> Lane {
        Lane { at: 0, end: len, step: Arc::new(step), sent: None }
    }

    /// A lane that a member does not take part in.
    pub(super) fn idle() -> Lane {
        Lane::new(0, |_| LaneStep::new(Action::Send, 0, 0..0))
    }

    /// Sets what the lane sends in closed form, where counting its steps would take long.
    pub(super) fn sending(self, sent: Sent) -> Lane {
        Lane { sent: Some(sent), ..self }
    }

    /// Skips the next `steps` steps, empty ones included.
    pub fn pass_over(&mut self, steps: u32) {
        self.at = self.at.saturating_add(steps).min(self.end);
    }

    /// Number of steps, empty ones included.
    pub(super) fn len(&self) -> u32 {
        self.end
    }

    /// Step `k < len()`.
    pub(super) fn step(&self, k: u32) -> LaneStep {
        (self.step)(k)
    }

    /// What it sends from its first step on.
    pub(super) fn sent(self) -> Sent {
        let count =
            |lane: Lane| lane.filter(|step| step.action == Action::Send).map(|step| Sent::message(step.elements()));
        self.sent.unwrap_or_else(|| count(self).sum())
    }
}

impl Iterator for Lane {
    type Item = LaneStep;

    fn next(&mut self) -> Option<LaneStep> {
        while self.at < self.end {
            let step = self.step(self.at);
            self.at += 1;
            if step.start < step.end {
                return Some(step);
            }
        }
        None
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({} of {})", self.at, self.end)
    }
}

/// Messages, empty ones not counted, and their elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) messages: u64,
    pub(super) elements: u64,
}

impl Sent {
    /// One message, counted if it is not empty.
    pub(super) fn message(elements: u64) -> Sent {
        Sent { messages: u64::from(elements > 0), elements }
    }

    /// The same steps, repeated this number of times.
    pub(super) fn times(self, count: u64) -> Sent {
        Sent { messages: self.messages * count, elements: self.elements * count }
    }
}

impl std::iter::Sum for Sent {
    fn sum<I: Iterator<Item = Sent>>(sent: I) -> Sent {
        sent.fold(Sent::default(), |sum, one| Sent {
            messages: sum.messages + one.messages,
            elements: sum.elements + one.elements,
        })
    }
}
