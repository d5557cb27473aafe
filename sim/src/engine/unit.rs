//! Simulates a unit of a rank, which works on one thing at a time, and picks what it does next.
//!
//! On a CPU a rank is one thread: before each compute task, and while it waits, it handles the messages that have
//! arrived, in order of arrival, and then synchronises. In a call of an MPI library's allreduce it handles messages
//! only. On a GPU unit 0 computes and unit 1 does the rest. A message
//! wakes an idle thread after its latency; a busy one finds it when it next polls, unless it was posted at that
//! instant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lockstep_topology::{InputError, Time};

use super::{Engine, Event, Job};
use crate::fluid::{ActivityId, ClassId, Fluid};
use crate::trace::{Slot, Took, TraceWork};

/// A message that a lane can receive. Ordered by what a thread handles first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    /// When a thread that polls can first see it.
    pub(crate) posted: Time,
    /// When it wakes an idle thread.
    pub(crate) wakes: Time,
    /// The number of its exchange, counted over the run.
    pub(crate) serial: u64,
    /// The lane that receives it.
    pub(crate) lane: u32,
    /// The flight of that lane.
    pub(crate) flight: u32,
}

/// What keeps a unit busy.
#[derive(Debug, Clone, Copy)]
pub(super) enum Busy {
    /// The next task of the compute stream; its start.
    Compute(Time),
    /// The next task that synchronises; its start.
    Synchronise(Time),
    /// A message.
    Receive { flight: u32, lane: u32 },
    /// Repetitions of its compute stream, with their start; already recorded.
    Repeat(Time),
}

/// The state of a unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unit {
    pub(super) busy: Option<Busy>,
    /// The activity that this is, unless it takes no time.
    pub(super) activity: Option<(ActivityId, ClassId)>,
    /// When it last became idle.
    pub(super) idle_since: Option<Time>,
    /// When the first of its arrivals wakes it; `None` before it went idle.
    wakes: Option<Time>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Lanes whose sends were received while it was busy.
    taken: Vec<(u32, u32)>,
    /// Whether the engine knows that it may have work.
    pub(super) dirty: bool,
}

impl Unit {
    /// Begins something whose end is known, so that nothing wakes it before.
    pub(super) fn keep_busy(&mut self, busy: Busy) {
        (self.busy, self.wakes) = (Some(busy), None);
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// The unit of `rank` that handles messages.
    pub(super) fn exchange_unit(&self, rank: u32) -> u32 {
        2 * rank + u32::from(self.ranks[rank as usize].apart)
    }

    /// The unit picks what it does next: a message that it can see, else its compute task, else nothing.
    pub(super) fn pick(&mut self, unit: u32) -> Result<(), InputError> {
        if self.units[unit as usize].busy.is_some() {
            return Ok(());
        }
        let (rank, now) = (unit / 2, self.now);
        let job = if unit == 2 * rank { self.compute_ready(rank).filter(|_| !self.is_blocked(rank)) } else { None };
        let attends = unit == self.exchange_unit(rank);
        let synchronises =
            if attends { self.synchronisation_ready(rank).filter(|_| !self.is_blocked(rank)) } else { None };
        let state = &mut self.units[unit as usize];
        let awake = job.is_some()
            || synchronises.is_some()
            || state.idle_since == Some(now)
            || state.wakes.is_some_and(|wakes| wakes <= now);
        if awake
            && let Some(Reverse(first)) = state.arrivals.peek()
            && (first.posted < now || first.wakes <= now)
        {
            let Arrival { flight, lane, .. } = *first;
            state.arrivals.pop();
            let (class, seconds, work) = self.receive_work(flight, lane);
            return self.work(unit, Busy::Receive { flight, lane }, Job { class, seconds, threads: 1 }, work);
        }
        if synchronises.is_some()
            && let Some((job, work)) = self.next_synchronisation(rank)
        {
            return self.work(unit, Busy::Synchronise(now), job, work);
        }
        if job.is_some()
            && let Some((job, work)) = self.next_job(rank)
        {
            if self.skip_micro_batches(rank) {
                return Ok(());
            }
            return self.work(unit, Busy::Compute(now), job, work);
        }
        let state = &mut self.units[unit as usize];
        if state.wakes.is_none() {
            state.wakes = state.arrivals.iter().map(|Reverse(arrival)| arrival.wakes).min();
            if let Some(wakes) = state.wakes {
                self.events.push(wakes, Event::Wake(unit));
                self.keep_waking(unit, wakes);
            }
        }
        Ok(())
    }

    /// Whether the thread of `rank` is in a call of a library, which returns when its part of an exchange has ended.
    fn is_blocked(&self, rank: u32) -> bool {
        let state = &self.ranks[rank as usize];
        let blocks =
            |id: &u32| self.plan.group_exchanges[self.flights.at(*id).group_exchange as usize].algorithm.blocks();
        !state.apart && state.flights.iter().any(blocks)
    }

    /// Records when the first of a unit's arrivals wakes it, at `wakes`.
    fn keep_waking(&mut self, unit: u32, wakes: Time) {
        if !F::TRACES {
            return;
        }
        let first = self.units[unit as usize].arrivals.iter().map(|Reverse(arrival)| *arrival);
        let Some(Arrival { flight, lane, .. }) = { first }.find(|arrival| arrival.wakes == wakes) else { return };
        if let Some(message) = self.matched(flight, lane) {
            self.keep(Slot::Wake(unit), Slot::Seen(message), Took::Nothing);
        }
    }

    fn work(&mut self, unit: u32, busy: Busy, job: Job, work: TraceWork) -> Result<(), InputError> {
        let Job { class, seconds, .. } = job;
        let state = &mut self.units[unit as usize];
        state.busy = Some(busy);
        state.wakes = None;
        self.forward += u32::from(self.in_forward(unit, busy));
        let seconds = self.with_noise(unit / 2, busy, seconds) * self.ranks[unit as usize / 2].slowdown;
        if seconds > 0.0 {
            match busy {
                Busy::Compute(_) => {
                    let iteration = self.ranks[unit as usize / 2].compute.iteration;
                    self.resources.done.take_in(iteration, class, seconds);
                }
                _ => self.resources.done.take(class, seconds),
            }
            let class = if self.decoders.is_some() { self.resources.on_core(class, unit / 2)? } else { class };
            self.resources.fluid.about(work);
            let activity = self.resources.fluid.start(class, seconds, u64::from(unit))?;
            self.units[unit as usize].activity = Some((activity, class));
        } else {
            self.keep(Slot::Done(unit), Slot::Now, Took::Nothing);
            self.events.push(self.now, Event::Done(unit));
        }
        Ok(())
    }

    /// How long `seconds` of work take the rank's thread from now on.
    fn with_noise(&self, rank: u32, busy: Busy, seconds: f64) -> f64 {
        let (state, stated) = (&self.ranks[rank as usize], &self.platform.conditions.noise);
        if stated.work() {
            return seconds * self.stated_factor(rank, busy);
        }
        match (state.noise, self.platform.costs.noise()) {
            (Some(place), Some(noise)) => noise.seconds(place, self.now.as_secs_f64(), seconds),
            _ => seconds,
        }
    }

    /// The factor of stated noise on what `rank` begins to do.
    fn stated_factor(&self, rank: u32, busy: Busy) -> f64 {
        let (noise, trial) = (&self.platform.conditions.noise, self.platform.conditions.trial);
        match busy {
            Busy::Receive { flight, .. } => noise.of_step(trial, rank, self.flights.at(flight).iteration),
            Busy::Compute(_) | Busy::Repeat(..) | Busy::Synchronise(_) => {
                let (role, state) = (self.role(rank), &self.ranks[rank as usize]);
                let (cursor, stream) = match busy {
                    Busy::Synchronise(_) => (state.synchronisation, &role.synchronisation),
                    _ => (state.compute, &role.compute),
                };
                let step = noise.of_step(trial, rank, cursor.iteration);
                let Some(task) = cursor.task(stream) else { return step };
                let run = role.tasks[task as usize].run(cursor.iteration, cursor.repetition);
                step * noise.kernel(trial, rank, task, run)
            }
        }
    }

    /// Whether `unit` computes a task of the forward pass; only needed with background traffic.
    fn in_forward(&self, unit: u32, busy: Busy) -> bool {
        let (role, cursor) = (self.role(unit / 2), self.ranks[unit as usize / 2].compute);
        let asked = !self.background.is_empty() && matches!(busy, Busy::Compute(_));
        let task = if asked { cursor.task(&role.compute) } else { None };
        task.is_some_and(|task| role.tasks[task as usize].forward)
    }

    /// The unit has finished its work.
    pub(super) fn done(&mut self, unit: u32) -> Result<(), InputError> {
        if let Some(number) = (unit as usize).checked_sub(self.units.len()) {
            return self.input_done(number);
        }
        let (rank, now) = (unit / 2, self.now);
        let state = &mut self.units[unit as usize];
        let busy = state.busy.take();
        state.activity = None;
        state.idle_since = Some(now);
        let taken = std::mem::take(&mut state.taken);
        self.forward -= u32::from(busy.is_some_and(|busy| self.in_forward(unit, busy)));
        self.touch(unit);
        match busy {
            Some(Busy::Compute(start)) => self.computed(rank, start),
            Some(Busy::Synchronise(start)) => self.synchronised(rank, start),
            Some(Busy::Receive { flight, lane }) => self.received(flight, lane)?,
            Some(Busy::Repeat(_)) | None => {}
        }
        for (flight, lane) in taken {
            self.send_taken(flight, lane)?;
        }
        self.start_ready(rank)
    }

    /// Notifies the sender's unit that a send of `lane` was received: it sees that now if idle, else when it next
    /// polls.
    pub(super) fn notify_sender(&mut self, rank: u32, flight: u32, lane: u32) -> Result<(), InputError> {
        let unit = self.exchange_unit(rank);
        let state = &mut self.units[unit as usize];
        if state.busy.is_some() {
            state.taken.push((flight, lane));
            return Ok(());
        }
        self.send_taken(flight, lane)?;
        self.start_ready(rank)
    }

    /// Gives `rank` a message that one of its lanes waits for.
    pub(super) fn hand_over(&mut self, rank: u32, arrival: Arrival) {
        let (unit, now) = (self.exchange_unit(rank), self.now);
        let state = &mut self.units[unit as usize];
        state.arrivals.push(Reverse(arrival));
        // A unit that picks at this instant, or later, schedules its wake-up then.
        if state.busy.is_some() || state.wakes.is_some_and(|wakes| wakes <= arrival.wakes) {
            return;
        }
        if arrival.wakes <= now {
            state.wakes = Some(now);
            self.touch(unit);
        } else if !(state.dirty && state.wakes.is_none()) {
            state.wakes = Some(arrival.wakes);
            self.events.push(arrival.wakes, Event::Wake(unit));
            self.keep_waking(unit, arrival.wakes);
        }
    }
}
