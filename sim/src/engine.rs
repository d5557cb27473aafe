//! Runs the event loop: ranks that run tasks and handle messages, in integer time.
//!
//! A rank follows the executor's rules; they are in `rank.rs` (tasks), `exchange.rs` (lanes), `message.rs` (messages)
//! and `unit.rs` (which comes first). An instant has two phases: first everything that happened takes effect, then
//! every idle unit picks what it does next. So the order of events within an instant decides only which message leaves
//! a NIC first.

mod background;
mod decoders;
mod exchange;
mod flight;
mod inbox;
mod input;
mod line;
mod message;
pub(crate) mod path;
mod period;
mod pipeline;
mod rank;
mod record;
mod recurrence;
mod repeat;
mod ring;
mod shortcuts;
mod slab;
mod slow;
mod steady;
mod unit;
mod waiting;
mod whole;

use std::collections::BTreeMap;

use lockstep_models::{Claim, Driver, Span, Totals};
use lockstep_topology::{InputError, Library, Time, library_of_gpus};

use crate::deadlock::Waiting;
use crate::error::SimError;
use crate::event::Events;
use crate::fluid::{ClassId, Finished, Fluid};
use crate::fold;
use crate::machine::{Resources, Utilisation};
use crate::nccl;
use crate::network::{Bursts, Connections, Waits};
use crate::plan::Plan;
use crate::platform::Platform;
use crate::trace::{Dual, Slot, Took};
use crate::traffic::{Sent, Traffic};
use decoders::Decoders;
use flight::{Flight, OpenExchanges};
use input::UPLOAD;
use line::Lines;
use message::Message;
use path::{Paths, Peer};
use period::Periods;
use pipeline::Pipeline;
use rank::Rank;
use record::Record;
use ring::Ring;
use shortcuts::Shortcuts;
pub use shortcuts::{Shortcut, ShortcutUse, WhyNot};
use slab::Slab;
use steady::Steady;
use unit::Unit;
use whole::Wholes;
pub(crate) use whole::seconds_of;

/// The cost of a compute task: the class of its activity and its work in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Job {
    pub(crate) class: ClassId,
    pub(crate) seconds: f64,
    /// Threads that each do an equal part of it: above 1 only for decoding by threads on ranks' cores.
    pub(crate) threads: u32,
}

/// Compute tasks of one role on one device, by task.
pub(crate) type Jobs = Vec<Option<Job>>;

/// An event at a known time; all else is left to the fluid solver.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The receiver's answer has arrived: the message leaves its NIC.
    Leave(u32),
    /// The route's latency is over: the message's bytes begin to flow.
    Depart(u32),
    /// The last byte of the message has arrived.
    Arrive(u32),
    /// The unit is woken by a message.
    Wake(u32),
    /// The unit is done with something that took no time.
    Done(u32),
    /// The latency of the rank's upload is over: its bytes begin to flow.
    Flow(u32),
    /// The run of a pipeline, or of a collective with a known total time, has ended.
    Through(u32),
    /// The rank of a ring continues by events.
    Resume(u32),
    /// The last message from a rank that was computed without events has arrived.
    Cleared(u32),
    /// Some rank becomes slower or faster.
    Pace,
}

impl Event {
    /// The slot of its time's derivatives; `None` for events that never occur when derivatives are requested.
    fn slot(self) -> Option<Slot> {
        match self {
            Event::Leave(message) | Event::Depart(message) | Event::Arrive(message) => Some(Slot::Message(message)),
            Event::Wake(unit) => Some(Slot::Wake(unit)),
            Event::Done(unit) => Some(Slot::Done(unit)),
            Event::Through(flight) => Some(Slot::Through(flight)),
            Event::Flow(_) | Event::Resume(_) | Event::Cleared(_) | Event::Pace => None,
        }
    }
}

/// Tokens of fluid activities: messages have this bit, units do not.
pub(crate) const MESSAGE: u64 = 1 << 32;

/// A run in progress.
pub(crate) struct Engine<'a, F> {
    plan: &'a Plan,
    platform: &'a Platform<'a>,
    driver: Driver,
    resources: Resources<'a, F>,
    /// For each rank the index of its jobs, and the jobs of each role on each device.
    job_lists: Vec<Jobs>,
    events: Events<Event>,
    now: Time,
    ranks: Vec<Rank>,
    units: Vec<Unit>,
    /// Units that may have something new to do.
    dirty: Vec<u32>,
    open_exchanges: OpenExchanges,
    flights: Slab<Flight>,
    started_flights: u64,
    shortcuts: Shortcuts,
    /// By exchange: those that run without events.
    pipelines: BTreeMap<u32, Pipeline>,
    /// Rings computed without events for now.
    steady: Steady,
    /// Exchanges with a known total time.
    wholes: Wholes,
    messages: Slab<Message>,
    paths: Paths,
    lines: Lines,
    connections: Connections,
    background: Vec<background::Flow>,
    /// By list of jobs: time from the start of an upload until its bytes flow.
    pub(crate) upload_latencies: Vec<Time>,
    /// Offset of a rank's job list for a device that transforms samples, if it does so once threads are late.
    pub(crate) late: Option<u32>,
    /// Ranks that compute a task of the forward pass, and those that the driver has stopped.
    forward: u32,
    stopped: u32,
    /// What learners prepare for each other.
    ring: Option<Box<Ring>>,
    /// Threads that decode on ranks' cores.
    decoders: Option<Box<Decoders>>,
    pub(crate) record: Record,
    /// Iterations so far.
    periods: Periods,
    /// Whether periodic repetitions and iterations are simulated one by one, and pipelines message by message.
    pub(crate) long_way: bool,
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) spans: Vec<Span>,
    /// Instead of the spans, if those were too many.
    pub(crate) totals: Totals,
    /// When the last task ended.
    pub(crate) end: Time,
    pub(crate) traffic: Traffic,
    pub(crate) utilisation: Vec<Utilisation>,
    pub(crate) claims: Vec<Claim>,
    /// The waits until buckets of links are full, after the end.
    pub(crate) bursts: Waits,
    /// Derivatives of the ends of iterations, if they were computed.
    pub(crate) derivatives: Option<Vec<Dual>>,
    /// Notes on libraries that were simulated by lanes of other devices.
    pub(crate) of_libraries: Vec<String>,
    /// The shortcuts of the engine.
    pub(crate) shortcuts: Vec<ShortcutUse>,
}

impl<'a, F: Fluid> Engine<'a, F> {
    /// A run at its start; `jobs` gives each rank's index into `job_lists`.
    pub(crate) fn new(
        plan: &'a Plan,
        driver: Driver,
        resources: Resources<'a, F>,
        job_lists: Vec<Jobs>,
        jobs: &[u32],
    ) -> Engine<'a, F> {
        let platform = resources.platform;
        let mut ranks = rank::all(plan, platform, jobs);
        let ring = Ring::new(plan, &driver).map(Box::new);
        let decoders = Decoders::new(&resources, ranks.len() as u32).map(Box::new);
        ranks.iter_mut().for_each(|rank| rank.shares = ring.is_some());
        Engine {
            plan,
            platform,
            driver,
            resources,
            job_lists,
            events: Events::new(),
            now: Time::ZERO,
            units: vec![Unit::default(); 2 * ranks.len()],
            periods: Periods::new(ranks.len()),
            ranks,
            dirty: Vec::new(),
            open_exchanges: OpenExchanges::new(plan),
            flights: Slab::new(),
            started_flights: 0,
            shortcuts: Shortcuts::new(plan.group_exchanges.len()),
            pipelines: BTreeMap::new(),
            steady: Steady::default(),
            wholes: Wholes::default(),
            messages: Slab::new(),
            paths: Paths::default(),
            lines: Lines::default(),
            connections: Connections::default(),
            background: Vec::new(),
            upload_latencies: Vec::new(),
            late: None,
            forward: 0,
            stopped: 0,
            ring,
            decoders,
            record: Record::default(),
            long_way: false,
        }
    }

    /// Runs until no event is left; spans and pairs of ranks up to `max_written` are written out for all ranks.
    ///
    /// # Errors
    /// A deadlock, an invalid route or cost, or a time beyond the range.
    pub(crate) fn run(mut self, max_written: u64) -> Result<Outcome, SimError> {
        self.plan_slowdowns()?;
        self.start_background()?;
        for rank in 0..self.ranks.len() as u32 {
            self.start_ready(rank)?;
        }
        self.dispatch()?;
        let mut finished: Vec<Finished> = Vec::new();
        while let Some(time) = self.events.next_time().into_iter().chain(self.resources.fluid.next_completion()).min() {
            if time == Time::MAX {
                return Err(overflow().into());
            }
            if self.skip_iterations(time) {
                return self.finish(max_written);
            }
            self.now = time;
            self.resources.fluid.advance(time, &mut finished);
            for done in finished.drain(..) {
                let index = done.token as u32;
                match done.token & (MESSAGE | background::BACKGROUND) {
                    0 => {
                        self.decoders.iter_mut().for_each(|all| all.leave_core(done.token));
                        self.happens(Slot::Done(index));
                        self.done(index)?;
                    }
                    MESSAGE => {
                        self.happens(Slot::Message(index));
                        self.arrive(index)?;
                    }
                    _ => self.flow_done(index as usize)?,
                }
            }
            while self.events.next_time() == Some(time) {
                let Some((_, event)) = self.events.pop() else { break };
                if let Some(slot) = event.slot() {
                    self.happens(slot);
                }
                match event {
                    Event::Leave(message) => self.leave(message)?,
                    Event::Depart(message) => self.depart(message)?,
                    Event::Arrive(message) => self.arrive(message)?,
                    Event::Wake(unit) => self.touch(unit),
                    Event::Done(unit) => self.done(unit)?,
                    Event::Flow(rank) => self.begin_input(rank, UPLOAD)?,
                    Event::Through(flight) => self.through(flight)?,
                    Event::Resume(flight) => self.resume(flight)?,
                    Event::Cleared(rank) => self.cleared(rank)?,
                    Event::Pace => self.change_paces()?,
                }
            }
            self.dispatch()?;
            self.skip_rounds()?;
        }
        self.end_background();
        if self.resources.fluid.active() > 0 {
            return Err(overflow().into());
        }
        self.finish(max_written)
    }

    fn finish(mut self, max_written: u64) -> Result<Outcome, SimError> {
        let waiting: Vec<Waiting> = (0..self.ranks.len() as u32).filter_map(|rank| self.waiting(rank)).collect();
        if !waiting.is_empty() {
            return Err(SimError::Deadlock(waiting));
        }
        let derivatives = self.resources.fluid.ends();
        let of_libraries = self.of_libraries();
        let Record { mut spans, totals, end, .. } = self.record;
        spans.sort_by_key(|span| span.rank);
        let sent = |peer: &Peer| (peer.rank, Sent { messages: peer.messages, bytes: peer.bytes });
        let traffic = Traffic::of(self.ranks.iter().map(|rank| rank.peers.iter().map(sent)));
        let (spans, traffic) = fold::write_out(self.resources.orbits(), spans, traffic, max_written);
        let (utilisation, claims) = (self.resources.utilisation(end), self.driver.record().to_vec());
        let (bursts, shortcuts) = (self.connections.bursts.waits(end), self.shortcuts.uses());
        Ok(Outcome { spans, totals, end, traffic, utilisation, claims, bursts, derivatives, of_libraries, shortcuts })
    }

    /// Notes on libraries whose total time is not known, where their lanes are those of other devices.
    fn of_libraries(&self) -> Vec<String> {
        let algorithms = || self.shortcuts.by_lanes().map(|number| &self.plan.group_exchanges[number].algorithm);
        let at_home =
            || library_of_gpus(self.platform.cluster).is_some_and(|own| own.library() == Some(Library::Predicted));
        let rccl = algorithms().any(|algorithm| algorithm.library() == Some(Library::Predicted)) && !at_home();
        let nccl = algorithms().any(|algorithm| algorithm.nccl().is_some());
        let notes = [(nccl, nccl::AS_A_RING), (rccl, nccl::NOT_OF_AMD)];
        notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note.to_owned()).collect()
    }

    /// The run follows one that ended with these waits until buckets of links are full.
    pub(crate) fn follow(&mut self, bursts: Waits) {
        self.connections.bursts = Bursts::after(bursts);
    }

    /// Lets every unit that may have work pick what it does next, in order of ranks.
    fn dispatch(&mut self) -> Result<(), InputError> {
        let mut dirty = std::mem::take(&mut self.dirty);
        loop {
            if dirty.len() > 1 {
                dirty.sort_unstable();
            }
            for unit in dirty.drain(..) {
                self.units[unit as usize].dirty = false;
                self.happens(Slot::Touched(unit));
                self.pick(unit)?;
            }
            // A rank's claim may enable the rank whose turn is next.
            if self.dirty.is_empty() {
                break;
            }
            std::mem::swap(&mut dirty, &mut self.dirty);
        }
        self.dirty = dirty;
        if self.background.is_empty() { Ok(()) } else { self.attend_background() }
    }

    /// Sets the present to the moment in `slot`.
    fn happens(&mut self, slot: Slot) {
        self.keep(Slot::Now, slot, Took::Nothing);
    }

    /// Keeps in `slot` the moment `took` after that in `after`; does nothing where no derivatives are requested.
    fn keep(&mut self, slot: Slot, after: Slot, took: Took) {
        self.resources.fluid.keep(slot, after, took);
    }

    /// Marks a unit that may have something new to do.
    fn touch(&mut self, unit: u32) {
        self.keep(Slot::Touched(unit), Slot::Now, Took::Nothing);
        let state = &mut self.units[unit as usize];
        if !state.dirty {
            state.dirty = true;
            self.dirty.push(unit);
        }
    }
}

fn overflow() -> InputError {
    let message =
        "the simulated time is beyond 213 days: use fewer iterations, or look for a cost that is far too high";
    InputError::new("simulation", "", message)
}
