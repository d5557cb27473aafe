//! Records the last operations of each rank without locks, for readers on other threads.
//!
//! A rank records when an operation begins and ends: four stores (3 ns) into a ring of a thousand entries that it alone
//! writes. A reader may see an entry that is being overwritten; it reads the count before and after and discards the
//! entries that the writer may have reached meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Instant;

use lockstep_models::{Op, Program, TaskId};
use lockstep_topology::Time;
use serde::{Deserialize, Serialize};

/// Operations kept per rank.
pub const OPERATIONS: usize = 1000;

/// Peers recorded for a rank that waits; a reader gains nothing from more.
const PEERS: usize = 8;

/// Operations of a rank that are not tasks of its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aside {
    /// Synchronizing with the other ranks before and after the iterations.
    Barrier,
    /// Evaluating the model, or waiting for the rank that does.
    Evaluation,
    /// Saving the state, or waiting for the rank that does.
    Saving,
    /// Shuffles the samples that ranks hold.
    Shuffle,
}

/// Codes of asides in an entry; codes of tasks are below them.
const ASIDES: [(Aside, &str); 4] = [
    (Aside::Barrier, "barrier of all ranks"),
    (Aside::Evaluation, "evaluation"),
    (Aside::Saving, "saving of the state"),
    (Aside::Shuffle, "shuffle of the samples in memory"),
];
const FIRST_ASIDE: u32 = u32::MAX - ASIDES.len() as u32;

/// One operation in the ring, in whole words, so that no reader sees half a number.
#[derive(Default)]
struct Entry {
    /// Task or aside in the low half, iteration in the high half.
    what: AtomicU64,
    begun: AtomicU64,
    /// 0 while in progress.
    ended: AtomicU64,
}

/// The flight recorder of one rank.
pub(crate) struct Recorder {
    rank: u32,
    entries: Vec<Entry>,
    /// Operations recorded so far.
    count: AtomicU64,
    /// When this rank last made progress, in picoseconds.
    moved: AtomicU64,
    /// By exchange of the role: runs started.
    started: Vec<AtomicU32>,
    /// The ranks it waits for; `u32::MAX` in unused entries.
    waits: [AtomicU32; PEERS],
    over: AtomicBool,
}

impl Recorder {
    fn new(rank: u32, exchanges: usize) -> Recorder {
        let mut entries = Vec::new();
        entries.resize_with(OPERATIONS, Entry::default);
        Recorder {
            rank,
            entries,
            count: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            started: (0..exchanges).map(|_| AtomicU32::new(0)).collect(),
            waits: std::array::from_fn(|_| AtomicU32::new(u32::MAX)),
            over: AtomicBool::new(false),
        }
    }

    fn note(&self, code: u32, iteration: u32, at: Time) -> u64 {
        let number = self.count.load(Ordering::Relaxed);
        let entry = &self.entries[number as usize % OPERATIONS];
        self.count.store(number + 1, Ordering::Relaxed);
        // A reader that sees any of the stores below also sees the new count, and so knows that the old entry is gone.
        fence(Ordering::Release);
        entry.ended.store(0, Ordering::Relaxed);
        entry.what.store(u64::from(code) | u64::from(iteration) << 32, Ordering::Relaxed);
        entry.begun.store(at.0, Ordering::Relaxed);
        self.moved.store(at.0, Ordering::Relaxed);
        number
    }

    /// Records that a task begins; returns the number to end it with.
    pub(crate) fn begin(&self, task: TaskId, iteration: u32, at: Time) -> u64 {
        self.note(task as u32, iteration, at)
    }

    /// Records that the role's exchange number `number` begins.
    pub(crate) fn begin_exchange(&self, number: usize, task: TaskId, iteration: u32, at: Time) -> u64 {
        self.started[number].store(iteration + 1, Ordering::Relaxed);
        self.note(task as u32, iteration, at)
    }

    /// Records that an operation outside the program begins.
    pub(crate) fn begin_aside(&self, aside: Aside, iteration: u32, at: Time) -> u64 {
        self.note(FIRST_ASIDE + aside as u32, iteration, at)
    }

    /// Records that an operation has ended; ignored if it has left the ring meanwhile.
    pub(crate) fn end(&self, number: u64, at: Time) {
        if self.count.load(Ordering::Relaxed) - number <= OPERATIONS as u64 {
            self.entries[number as usize % OPERATIONS].ended.store(at.0.max(1), Ordering::Relaxed);
        }
        self.moved.store(at.0, Ordering::Relaxed);
    }

    /// Records that a message has arrived or been sent.
    pub(crate) fn moved(&self, at: Time) {
        self.moved.store(at.0, Ordering::Relaxed);
    }

    /// Records which ranks this rank waits for.
    pub(crate) fn wait_for(&self, peers: impl Iterator<Item = u32>) {
        let mut peers = peers.fuse();
        self.waits.iter().for_each(|place| place.store(peers.next().unwrap_or(u32::MAX), Ordering::Relaxed));
    }

    /// A guard that on drop records that the rank has ended, whether well or not.
    pub(crate) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }
}

/// Held by a rank while it runs; records its end on drop.
pub(crate) struct Closing<'a>(&'a Recorder);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// An operation of a rank, as reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlightOperation {
    /// Its index among the operations of its rank, from 0.
    pub number: u64,
    /// The task's name, as in timelines.
    pub name: String,
    /// The step since training began, from 0.
    pub step: u64,
    /// For a collective: its number among all of the run, the same on every rank that takes part.
    pub collective: Option<u64>,
    /// For a collective: its method, the bytes of its buffer and its first and last rank.
    pub what: Option<(String, u64, u32, u32)>,
    /// Seconds since the run began.
    pub begun_s: f64,
    /// Seconds since the run began; `None` while in progress.
    pub ended_s: Option<f64>,
    /// Whether it is outside the tasks of the program.
    pub is_aside: bool,
}

/// The record of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flight {
    /// The rank.
    pub rank: u32,
    /// Its last operations in the order in which they began.
    pub operations: Vec<FlightOperation>,
    /// Ranks whose messages it waits for, once it has waited for some time.
    pub waits_for: Vec<u32>,
    /// Seconds since its last progress.
    pub idle_s: f64,
    /// Whether it has ended.
    pub over: bool,
    /// By exchange of its role: runs started.
    pub started: Vec<u32>,
}

/// The flight recorders of a process.
pub(crate) struct Flights<'a> {
    program: &'a Program,
    /// Steps done before this run.
    first: u64,
    ranks: u32,
    clock: Instant,
    recorders: Vec<Recorder>,
}

impl<'a> Flights<'a> {
    /// Recorders for the ranks of this process.
    pub(crate) fn new(program: &'a Program, first: u64, here: impl Iterator<Item = u32>) -> Flights<'a> {
        let exchanges = |rank| program.roles[program.role_of(rank)].exchanges().count();
        let recorders = here.map(|rank| Recorder::new(rank, exchanges(rank))).collect();
        Flights { program, first, ranks: program.ranks(), clock: Instant::now(), recorders }
    }

    /// Ranks of the whole job.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The time zero of all records.
    pub(crate) fn clock(&self) -> Instant {
        self.clock
    }

    /// The current time on that clock.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(self.clock.elapsed().as_nanos() as u64)
    }

    /// The recorder of a rank of this process.
    pub(crate) fn of(&self, rank: u32) -> &Recorder {
        self.recorders.iter().find(|recorder| recorder.rank == rank).expect("a recorder for each rank here")
    }

    /// Whether every rank has ended.
    pub(crate) fn all_over(&self) -> bool {
        self.recorders.iter().all(|recorder| recorder.over.load(Ordering::Acquire))
    }

    /// Seconds since the last progress of the rank of this process that has been idle longest; 0 where all have ended.
    pub(crate) fn longest_still_s(&self) -> f64 {
        let now = self.now().0;
        let live = self.recorders.iter().filter(|recorder| !recorder.over.load(Ordering::Acquire));
        let idle = live.map(|recorder| now.saturating_sub(recorder.moved.load(Ordering::Relaxed)));
        idle.max().unwrap_or(0) as f64 * 1e-12
    }

    /// The records of all ranks of this process.
    pub(crate) fn read(&self) -> Vec<Flight> {
        let now = self.now();
        self.recorders.iter().map(|recorder| self.read_one(recorder, now)).collect()
    }

    fn read_one(&self, recorder: &Recorder, now: Time) -> Flight {
        let before = recorder.count.load(Ordering::Acquire);
        let first = before.saturating_sub(OPERATIONS as u64);
        let copies: Vec<(u64, u64, u64, u64)> = (first..before)
            .map(|number| {
                let entry = &recorder.entries[number as usize % OPERATIONS];
                let (begun, ended) = (entry.begun.load(Ordering::Relaxed), entry.ended.load(Ordering::Relaxed));
                (number, entry.what.load(Ordering::Relaxed), begun, ended)
            })
            .collect();
        fence(Ordering::Acquire);
        let kept = recorder.count.load(Ordering::Relaxed).saturating_sub(OPERATIONS as u64);
        // An entry is counted before all of it is stored, so the last one may still be incomplete.
        let operations = copies.into_iter().filter(|(number, ..)| *number >= kept);
        let operations =
            operations.map(|(number, what, begun, ended)| self.operation(recorder.rank, number, what, begun, ended));
        let waits = recorder.waits.iter().map(|place| place.load(Ordering::Relaxed));
        Flight {
            rank: recorder.rank,
            operations: operations.collect(),
            waits_for: waits.take_while(|peer| *peer != u32::MAX).collect(),
            idle_s: now.0.saturating_sub(recorder.moved.load(Ordering::Relaxed)) as f64 * 1e-12,
            over: recorder.over.load(Ordering::Acquire),
            started: recorder.started.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
        }
    }

    fn operation(&self, rank: u32, number: u64, what: u64, begun: u64, ended: u64) -> FlightOperation {
        let (code, iteration) = (what as u32, what >> 32);
        let role = &self.program.roles[self.program.role_of(rank)];
        let task = role.tasks.get(code as usize);
        let aside = ASIDES.get(code.wrapping_sub(FIRST_ASIDE) as usize).map(|(_, name)| *name);
        let exchanges = role.exchanges().count() as u64;
        let place = role.exchanges().position(|(task, _)| task == code as usize);
        let collective = place.map(|place| iteration * exchanges + place as u64);
        let what = task.and_then(|task| match &task.op {
            Op::Exchange(exchange) => {
                let ranks = self.program.group_of(exchange, rank);
                let bytes = 4 * self.program.elements_of(exchange, &ranks);
                Some((exchange.algorithm.to_string(), bytes, ranks.first(), ranks.rank(ranks.count() - 1)))
            }
            _ => None,
        });
        FlightOperation {
            number,
            name: task.map_or(aside.unwrap_or("unknown"), |task| &task.name).to_owned(),
            step: self.first + iteration,
            collective,
            what,
            begun_s: begun as f64 * 1e-12,
            ended_s: (ended > 0).then_some(ended as f64 * 1e-12),
            is_aside: task.is_none(),
        }
    }
}

#[cfg(test)]
mod tests;
