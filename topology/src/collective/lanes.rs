//! What every algorithm implements: the lanes of a collective among members, and the steps of a lane.
//!
//! Steps are asked for by number instead of kept by a state machine each: a lane is then a counter over pure arithmetic.

use std::fmt;
use std::sync::Arc;

use super::phase::Phase;
use super::shard::Split;
use super::step::{Action, Step};
use crate::symmetry::Permutations;

/// An algorithm bound to a collective among members. Each figure is a closed form that the tests hold to the steps.
pub(super) trait Lanes: fmt::Debug + Send + Sync {
    /// The steps of `lane` on `member`.
    fn steps(&self, member: u32, lane: u32, split: &Split) -> Arc<dyn Steps>;

    /// The longest chain of dependent messages in a lane with no empty part; 0 of a single member.
    fn rounds(&self) -> u32;

    /// Elements of the largest message, where there are lanes.
    fn largest_message(&self, split: &Split) -> u64;

    /// The permutations of several members that leave every lane as it is, peers renamed, where the elements are a multiple of the
    /// number: what each kind of step does must depend on members' differences alone, and all of its parts be equally long.
    fn symmetry(&self, _: &Split) -> (Permutations, u64) {
        (Permutations::Identity, 1)
    }

    /// The rounds of several members in one lane, if in each of them all send a block to the next one.
    fn pipeline(&self, _: &Split) -> Option<Vec<Phase>> {
        None
    }

    /// Lanes in flight that keep it busy.
    fn window(&self) -> u32 {
        // a second lane's messages travel while the first one's are added
        2
    }

    /// Roots among which the buffer is shared out.
    fn roots(&self) -> u32 {
        1
    }

    /// Whether chunks are small unless somebody names their size; else there is one lane for each root.
    fn is_pipelined(&self) -> bool {
        false
    }

    /// Lanes of each root for chunks of so many elements.
    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        elements.div_ceil(self.roots().into()).div_ceil(chunk)
    }

    /// Whether the buffer of `member` counts at the start of a sum, as far as it is not a dedicated server's.
    fn contributes(&self, _member: u32) -> bool {
        true
    }
}

/// The steps of one lane on one member. Steps may be empty (`start == end`); the lane leaves those out on both sides.
pub(super) trait Steps: fmt::Debug + Send + Sync {
    /// Number of steps, empty ones included.
    fn len(&self) -> u32;

    /// Step `k < len()`.
    fn step(&self, k: u32) -> Step;

    /// The first step in `at..end` that is not empty; `at` goes behind it. Compiled for each algorithm, so that `step` is inlined.
    fn next(&self, at: &mut u32, end: u32) -> Option<Step> {
        while *at < end {
            let step = self.step(*at);
            *at += 1;
            if step.start < step.end {
                return Some(step);
            }
        }
        None
    }

    /// What this lane sends: a closed form where counting would take long.
    fn sent(&self) -> Sent {
        let sends = (0..self.len()).map(|k| self.step(k)).filter(|step| step.action == Action::Send);
        sends.map(|step| Sent::message(step.elements())).sum()
    }
}

/// A member that takes no part in a lane.
#[derive(Debug)]
pub(super) struct Idle;

impl Steps for Idle {
    fn len(&self) -> u32 {
        0
    }

    fn step(&self, _: u32) -> Step {
        Step::new(Action::Send, 0, 0..0)
    }
}

/// Messages, empty ones not counted, and their elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) messages: u64,
    pub(super) elements: u64,
}

impl Sent {
    /// One message, which counts if it is not empty.
    pub(super) fn message(elements: u64) -> Sent {
        Sent { messages: u64::from(elements > 0), elements }
    }

    /// As much again, so many times.
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
