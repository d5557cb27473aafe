//! Input tasks: a rank's reads, and what is decoded for it, one after the other each, beside its units.
//!
//! They belong to the host's storage and threads and not to the rank's, so nothing of the rank but its loads holds them up, and they
//! run ahead of the iteration that it is in. Behind the last iteration there is nothing to read.

use lockstep_models::Span;
use lockstep_topology::{InputError, Time};

use super::{Engine, Event, Job};
use crate::fluid::Fluid;
use crate::plan::Cursor;
use crate::trace::{Slot, Took};

/// One of a rank's two streams of input.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputStream {
    cursor: Cursor,
    /// Since when the next task could begin.
    ready: Option<Time>,
    /// Since when it is under way.
    busy: Option<Time>,
}

/// The streams: reads, then what is decoded.
const STREAMS: usize = 2;

impl<F: Fluid> Engine<'_, F> {
    /// Begins the input tasks of `rank` that can begin.
    pub(super) fn start_input(&mut self, rank: u32) -> Result<(), InputError> {
        let plan = self.plan;
        let role = &plan.roles[self.ranks[rank as usize].role as usize];
        for number in 0..STREAMS {
            let state = &self.ranks[rank as usize];
            let InputStream { cursor, busy, .. } = &state.input[number];
            let Some(task) = cursor.task(&role.input[number]) else { continue };
            let waits = state.missing(role, task, *cursor).next().is_some();
            if busy.is_some() || waits || cursor.iteration >= self.driver.steps() {
                continue;
            }
            let Some((Job { class, seconds }, work)) = self.job(state.jobs, task) else { continue };
            let token = (self.units.len() + STREAMS * rank as usize + number) as u32;
            if seconds > 0.0 {
                self.resources.done.take(class, seconds);
                self.resources.fluid.about(work);
                self.resources.fluid.start(class, seconds, u64::from(token))?;
            } else {
                self.keep(Slot::Done(token), Slot::Now, Took::Nothing);
                self.events.push(self.now, Event::Done(token));
            }
            let stream = &mut self.ranks[rank as usize].input[number];
            (stream.ready, stream.busy) = (stream.ready.or(Some(self.now)), Some(self.now));
        }
        Ok(())
    }

    /// The input task that `number` stands for, counted behind the units, is done.
    pub(super) fn input_done(&mut self, number: usize) -> Result<(), InputError> {
        let (rank, number) = ((number / STREAMS) as u32, number % STREAMS);
        let plan = self.plan;
        let role = &plan.roles[self.ranks[rank as usize].role as usize];
        let stream = &mut self.ranks[rank as usize].input[number];
        let Cursor { iteration, repetition, .. } = stream.cursor;
        let Some(task) = stream.cursor.task(&role.input[number]) else { return Ok(()) };
        let start = stream.busy.take().unwrap_or(self.now);
        let ready = stream.ready.take().unwrap_or(start);
        stream.cursor.step(&role.input[number]);
        self.complete(rank, Span { rank, task, iteration, repetition, ready, start, end: self.now });
        self.settle(rank)
    }
}
