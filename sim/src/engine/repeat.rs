//! Skips equal repetitions: a rank that has its device to itself and exchanges nothing does the second micro-batch in
//! exactly the picoseconds of every other, so all but the first and the last are one event. So do ranks that share a
//! device, if they are in step: at the same task of the same program at the same instant, they stay so.
//!
//! Nothing can interfere: only ranks on the device use its cores and memory, messages reach a rank's units only through
//! exchanges that it has started, and what waits for the body of a `Repeat` waits for its last repetition. A GPU's
//! memory is also used by messages that left it and are still in flight: there must be none.

use lockstep_models::Span;
use lockstep_topology::Time;

use super::shortcuts::{Condition, WhyNot};
use super::unit::Busy;
use super::{Engine, Event, Job, Rank};
use crate::fluid::Fluid;
use crate::plan::Slot;

impl<F: Fluid> Engine<'_, F> {
    /// Makes `rank`, and those that share its device, run all further repetitions of the compute stream but the last as
    /// one event, if no other rank might disturb them; returns how many.
    pub(super) fn repetitions(&mut self, rank: u32) -> Condition<u32> {
        let state = &self.ranks[rank as usize];
        let role = &self.plan.roles[state.role as usize];
        let reasons = [
            (self.long_way, WhyNot::LongWay),
            (!role.repeats_alone, WhyNot::ExchangesBetween),
            (role.claims, WhyNot::FirstCome),
            (!role.input[0].is_empty(), WhyNot::Input),
            (state.apart && self.messages.len() > 0, WhyNot::MessagesInFlight),
        ];
        if let Some((_, why)) = reasons.into_iter().find(|(holds, _)| *holds) {
            return Err(why);
        }
        if let Some(reason) = self.platform.conditions.apart() {
            return Err(WhyNot::Disturbed(reason));
        }
        role.repeated_from(state.compute.position).ok_or(WhyNot::FewRepetitions)?;
        let mates = std::mem::take(&mut self.ranks[rank as usize].mates);
        let together = !mates.is_empty() && mates.iter().all(|mate| self.in_step(*mate, rank));
        let times =
            if together { self.repeat(rank, &mates).ok_or(WhyNot::FewRepetitions) } else { Err(WhyNot::NotInStep) };
        self.ranks[rank as usize].mates = mates;
        times
    }

    /// Whether `mate` is about to begin now the same task as `rank`, with nothing else in progress.
    fn in_step(&mut self, mate: u32, rank: u32) -> bool {
        if self.units[2 * mate as usize].busy.is_some() || self.compute_ready(mate) != Some(self.now) {
            return false;
        }
        let [mate, rank] = [mate, rank].map(|rank| &self.ranks[rank as usize]);
        let [role, other] = [mate, rank].map(|state| &self.plan.roles[state.role as usize]);
        let jobs = |state: &Rank, slot: &Slot| self.job_lists[state.jobs as usize][slot.task as usize];
        let alike = || {
            // Learners of a device differ only in what follows.
            let [one, two] = [role, other].map(|role| role.repeated_from(rank.compute.position));
            one == two && one.is_some_and(|(slots, _)| slots.iter().all(|slot| jobs(mate, slot) == jobs(rank, slot)))
        };
        let same = mate.compute == rank.compute && ((mate.role, mate.jobs) == (rank.role, rank.jobs) || alike());
        same && mate.noise.is_none() && mate.flights.is_empty() && mate.synchronised(role, mate.compute.iteration)
    }

    /// Records the repetitions of ranks in step and keeps them busy until they are over; returns how many. `None` where
    /// there are none to combine, or they last too long.
    fn repeat(&mut self, rank: u32, mates: &[u32]) -> Option<u32> {
        let cursor = self.ranks[rank as usize].compute;
        let role = &self.plan.roles[self.ranks[rank as usize].role as usize];
        let (slots, count) = role.repeated_from(cursor.position)?;
        let times = (count - 1).checked_sub(cursor.repetition).filter(|times| *times > 1)?;
        let mut once = self.once(rank, slots, mates.len() as u32);
        let span = once.last()?.end - self.now;
        let end = span.0.checked_mul(u64::from(times))?.checked_add(self.now.0).map(Time)?;
        if end == Time::MAX {
            return None;
        }
        for mate in mates {
            let state = &mut self.ranks[*mate as usize];
            (state.ready, state.compute.repetition) = (None, cursor.repetition + times);
            for span in &mut once {
                span.rank = *mate;
                state.done[span.task as usize] += u64::from(times);
                if let Some(Job { class, seconds, .. }) = self.job_lists[state.jobs as usize][span.task as usize] {
                    self.resources.done.take_in(cursor.iteration, class, seconds * f64::from(times));
                }
            }
            self.record.add_repetitions(state.role, &once, times, span);
            let unit = 2 * *mate;
            self.units[unit as usize].keep_busy(Busy::Repeat(self.now));
            self.events.push(end, Event::Done(unit));
        }
        Some(times)
    }

    /// One repetition of `rank` from now on, task by task, with `crowd` ranks on its device.
    fn once(&mut self, rank: u32, slots: &[Slot], crowd: u32) -> Vec<Span> {
        let state = &self.ranks[rank as usize];
        let (cursor, jobs) = (state.compute, &self.job_lists[state.jobs as usize]);
        let (iteration, repetition) = (cursor.iteration, cursor.repetition);
        let mut at = self.now;
        let mut spans = Vec::with_capacity(slots.len());
        for slot in slots {
            let Some(Job { class, seconds, .. }) = jobs[slot.task as usize] else { continue };
            let (start, end) = (at, at + self.resources.fluid.span_of(class, seconds, crowd));
            spans.push(Span { rank, task: slot.task, iteration, repetition, ready: start, start, end });
            at = end;
        }
        spans
    }
}
