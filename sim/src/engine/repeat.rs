//! Repetitions that pass alike: a rank that has its device to itself and exchanges nothing does the second micro-batch
//! in the very picoseconds of every other, so all but the first and the last are one event.
//!
//! Nothing can come between: only ranks on the device use its cores and memory, messages reach a rank's units only
//! through exchanges that it has started, and what waits for the body of a `Repeat` waits for its last repetition. A GPU's
//! memory is also used by messages that left it and are still on their way: there none may be.

use lockstep_models::Span;
use lockstep_topology::Time;

use super::{Engine, Job};
use crate::fluid::Fluid;
use crate::plan::{RolePlan, Slot};

/// The part of the compute stream that repeats from `position` on: its slots, and how often it runs.
fn part(role: &RolePlan, position: u32) -> Option<(&[Slot], u32)> {
    let from = role.compute.get(position as usize..)?;
    let last = from.iter().position(|slot| slot.repeat.is_some())?;
    let (first, count) = from[last].repeat?;
    (first == position).then_some((&from[..=last], count))
}

impl<F: Fluid> Engine<'_, F> {
    /// Has `rank` do, from now on, all repetitions of its compute stream but the last, and says until when; `None` where
    /// something might disturb it, and at the first.
    pub(super) fn repetitions(&mut self, rank: u32) -> Option<Time> {
        let state = &self.ranks[rank as usize];
        let role = &self.plan.roles[state.role as usize];
        let cursor = state.compute;
        let undisturbed = state.sole && state.noise.is_none() && state.flights.is_empty() && role.repeats_alone;
        let undisturbed = undisturbed && state.synchronised(role, cursor.iteration) && !role.claims();
        let undisturbed = undisturbed && state.ready == Some(self.now) && self.platform.conditions.apart().is_none();
        let left_behind = state.apart && self.messages.len() > 0;
        if self.long_way || !self.feeds.is_empty() || cursor.repetition == 0 || !undisturbed || left_behind {
            return None;
        }
        let (slots, count) = part(role, cursor.position)?;
        let times = (count - 1).checked_sub(cursor.repetition).filter(|times| *times > 1)?;
        let once = self.once(rank, slots);
        let span = once.last()?.end - self.now;
        let end = span.0.checked_mul(u64::from(times))?.checked_add(self.now.0).map(Time)?;
        if end == Time::MAX {
            return None;
        }
        let state = &mut self.ranks[rank as usize];
        (state.ready, state.compute.repetition) = (None, cursor.repetition + times);
        for span in &once {
            state.done[span.task as usize] += u64::from(times);
            if let Some(Job { class, seconds }) = self.job_lists[state.jobs as usize][span.task as usize] {
                self.resources.take(class, seconds * f64::from(times));
            }
        }
        self.record.add_repetitions(state.role, &once, times, span);
        Some(end)
    }

    /// One repetition of `rank` from now on, task by task.
    fn once(&mut self, rank: u32, slots: &[Slot]) -> Vec<Span> {
        let state = &self.ranks[rank as usize];
        let (cursor, jobs) = (state.compute, &self.job_lists[state.jobs as usize]);
        let (iteration, repetition) = (cursor.iteration, cursor.repetition);
        let mut at = self.now;
        let mut spans = Vec::with_capacity(slots.len());
        for slot in slots {
            let Some(Job { class, seconds }) = jobs[slot.task as usize] else { continue };
            let (start, end) = (at, at + self.fluid.span_alone(class, seconds));
            spans.push(Span { rank, task: slot.task, iteration, repetition, ready: start, start, end });
            at = end;
        }
        spans
    }
}
