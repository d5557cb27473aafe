//! Simulates input tasks: a rank's reads, decodes and uploads, each in sequence, beside its units.
//!
//! They use the host's storage, threads and links, not the rank's units. So only the rank's loads delay them, and they
//! run ahead of the rank's iteration. After the last iteration there is nothing to read.

use lockstep_models::{Span, Stream};
use lockstep_topology::{InputError, Time};

use super::{Engine, Event, Job};
use crate::fluid::Fluid;
use crate::plan::Cursor;
use crate::trace::{Slot, Took};

/// One of a rank's streams of input.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputStream {
    pub(super) cursor: Cursor,
    /// Start of the task in progress.
    busy: Option<Time>,
    /// When it finished the last one.
    ended: Option<Time>,
    /// Whether its task, or the last one, began as soon as what it waited for was done.
    at_once: bool,
}

impl InputStream {
    /// Whether no task of it is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.is_none()
    }

    /// Its task begins now.
    pub(super) fn begin(&mut self, now: Time) {
        (self.busy, self.at_once) = (Some(now), false);
    }
}

/// What has ended with an activity of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// A part, and its thread has others.
    Part,
    /// The work of a thread, and others have not ended.
    Thread,
    /// The batch.
    Batch,
}

/// The streams, in the order in which a batch passes them.
pub(super) const STREAMS: usize = Stream::INPUT.len();
/// The second of them.
pub(super) const DECODE: usize = 1;
/// The last of them.
pub(super) const UPLOAD: usize = STREAMS - 1;

impl<F: Fluid> Engine<'_, F> {
    /// Begins the input tasks of `rank` that can begin.
    pub(super) fn start_input(&mut self, rank: u32) -> Result<(), InputError> {
        let plan = self.plan;
        let role = &plan.roles[self.ranks[rank as usize].role as usize];
        for stream in 0..STREAMS {
            let state = &self.ranks[rank as usize];
            let InputStream { cursor, busy, ended, .. } = state.input[stream];
            let Some(task) = cursor.task(&role.input[stream]) else { continue };
            let number = role.tasks[task as usize].run(cursor.iteration, cursor.repetition);
            let full = stream == 0 && self.ring.as_ref().is_some_and(|ring| !ring.has_room(rank, number));
            let waits = full || state.missing(role, task, cursor).next().is_some();
            if busy.is_some() || waits || cursor.iteration >= self.driver.steps() {
                continue;
            }
            let jobs = state.jobs;
            if stream == DECODE && self.asks_decoders(rank)? {
                continue;
            }
            let latency = if stream == UPLOAD { self.upload_latencies.get(jobs as usize) } else { None };
            let latency = latency.copied().unwrap_or(Time::ZERO);
            let before = stream.checked_sub(1).and_then(|before| self.ranks[rank as usize].input[before].ended);
            let at_once = before == Some(self.now) && ended < before;
            let begun = &mut self.ranks[rank as usize].input[stream];
            (begun.busy, begun.at_once) = (Some(self.now), at_once);
            if latency > Time::ZERO {
                self.events.push(self.now + latency, Event::Flow(rank));
            } else {
                self.begin_input(rank, stream)?;
            }
        }
        Ok(())
    }

    /// Begins the work of the current task of a stream of `rank`.
    pub(super) fn begin_input(&mut self, rank: u32, number: usize) -> Result<(), InputError> {
        let state = &self.ranks[rank as usize];
        let stream = &self.plan.roles[state.role as usize].input[number];
        let Some(task) = state.input[number].cursor.task(stream) else { return Ok(()) };
        let Some((Job { class, seconds, .. }, work)) = self.job(state.jobs, task) else { return Ok(()) };
        let token = (self.units.len() + STREAMS * rank as usize + number) as u32;
        if seconds > 0.0 {
            self.resources.done.take(class, seconds);
            let threads = self.decoders.as_ref().filter(|_| number == DECODE).map_or(0, |all| all.threads_on(rank));
            for _ in 0..threads {
                self.decode_part(rank)?;
            }
            if threads == 0 {
                self.resources.fluid.about(work);
                self.resources.fluid.start(class, seconds, u64::from(token))?;
            }
        } else {
            self.keep(Slot::Done(token), Slot::Now, Took::Nothing);
            self.events.push(self.now, Event::Done(token));
        }
        Ok(())
    }

    /// The input task with `number`, counted after the units, is done.
    pub(super) fn input_done(&mut self, number: usize) -> Result<(), InputError> {
        let (rank, number) = ((number / STREAMS) as u32, number % STREAMS);
        if number == DECODE
            && let Some(all) = &mut self.decoders
        {
            match all.ends(rank) {
                Ended::Part => return self.decode_part(rank),
                Ended::Thread => return Ok(()),
                Ended::Batch => {}
            }
        }
        let plan = self.plan;
        let role = &plan.roles[self.ranks[rank as usize].role as usize];
        let stream = &mut self.ranks[rank as usize].input[number];
        let Cursor { iteration, repetition, .. } = stream.cursor;
        let Some(task) = stream.cursor.task(&role.input[number]) else { return Ok(()) };
        let start = stream.busy.take().unwrap_or(self.now);
        stream.ended = Some(self.now);
        stream.cursor.step(&role.input[number]);
        self.complete(rank, Span { rank, task, iteration, repetition, ready: start, start, end: self.now });
        if number == DECODE {
            self.start_decoding(rank)?;
        }
        self.start_ready(rank)
    }

    /// The batch for the next load of `rank` is on its device. If the rank has waited for the threads, its device
    /// transforms from now on, and so do those of learners that share what they prepare. A wait for a copy queued behind
    /// others does not count, nor does one for the first batch, with none ahead.
    pub(super) fn has_batch(&mut self, rank: u32) {
        let Some(behind) = self.late else { return };
        let now = self.now;
        let state = &mut self.ranks[rank as usize];
        let waited = state.asked.take().is_some_and(|asked| asked < now);
        let first = (state.compute.iteration, state.compute.repetition) == (0, 0);
        let preparer = self.ring.as_ref().and_then(|ring| ring.preparer(rank)).unwrap_or(rank);
        let threads_are_late = self.ranks[preparer as usize].input[UPLOAD].at_once;
        if waited && threads_are_late && !first {
            let pool = self.ring.as_ref().and_then(|_| self.driver.pools()).map(|pools| pools.ranks(pools.of(rank)));
            for other in pool.unwrap_or(&[rank]) {
                let state = &mut self.ranks[*other as usize];
                if !state.was_late {
                    (state.jobs, state.was_late) = (state.jobs + behind, true);
                }
            }
        }
    }
}
