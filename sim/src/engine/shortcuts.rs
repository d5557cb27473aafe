//! Chooses the exact shortcuts of a run: the engine asks for each of them here, and here is kept why one is not taken.
//!
//! Each gives the times of the event loop, to the picosecond, with fewer events. Its condition and its method are in its
//! own file:
//!
//! | shortcut | asked for when | file |
//! |---|---|---|
//! | `Folding` | the ranks to simulate are chosen | `fold.rs` |
//! | `Library` | the first member of an exchange starts it | `whole.rs` |
//! | `Ring` | the same, if it is no library's | `pipeline.rs`, with `recurrence.rs` |
//! | `Rings` | each rank has sent a few messages | `steady.rs`, with `recurrence.rs` |
//! | `MicroBatches` | a rank begins another micro-batch | `repeat.rs` |
//! | `Iterations` | the last rank has begun an iteration | `period.rs` |

use std::fmt;

use lockstep_topology::{InputError, Time};

use super::Engine;
use crate::fluid::Fluid;
use crate::fold::Folding;

/// A way to the times of the event loop with fewer events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortcut {
    /// One rank is simulated for all that are equal to it.
    Folding,
    /// An exchange of a library ends a known time after its last member has started it.
    Library,
    /// A ring whose members do nothing else meanwhile is computed round by round, without events.
    Ring,
    /// Rings are computed round by round while all ranks are in rings.
    Rings,
    /// Equal micro-batches are one event.
    MicroBatches,
    /// Iterations that begin in the state of an earlier one are not simulated.
    Iterations,
}

lockstep_topology::named!(Shortcut, "shortcut":
    Folding = "folding", Library = "library", Ring = "ring", Rings = "rings", MicroBatches = "micro-batches",
    Iterations = "iterations");

impl Shortcut {
    /// What is counted where it is taken.
    pub fn unit(self) -> &'static str {
        match self {
            Shortcut::Folding => "ranks",
            Shortcut::Library | Shortcut::Ring => "exchanges",
            Shortcut::Rings => "times",
            Shortcut::MicroBatches => "micro-batches",
            Shortcut::Iterations => "iterations",
        }
    }
}

/// Why a shortcut is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
    /// Nothing happened that it is for.
    NoOccasion,
    /// Every event was asked for.
    LongWay,
    /// Ranks that would be equal differ: the reason.
    Unequal(String),
    /// The conditions of the run: the reason.
    Disturbed(&'static str),
    /// Kernels follow measured noise.
    Noise,
    /// Which rank computes which batch depends on times.
    FirstCome,
    /// Reads, decoding and uploads run beside everything else.
    Input,
    /// The exchange is not a library's.
    NotOfALibrary,
    /// A library's time on these devices is not known.
    TimeUnknown,
    /// Ranks are outside of the exchange, or do something else meanwhile.
    NotAlone,
    /// The exchange is not a ring in one lane.
    NoRing,
    /// Members are not simulated as a ring.
    FoldedOtherwise,
    /// A path has queues, windows or handshakes that depend on earlier messages.
    MessagesVary,
    /// Messages that arrive early take memory bandwidth from kernels.
    EarlyMessages,
    /// Messages meet on a link, a core, a memory or a port.
    Shared,
    /// It takes a quarter of the range of time.
    TooLong,
    /// Some rank computes, or may start something else before the rings end.
    SomethingElse,
    /// Too little is left of the rings.
    FewRounds,
    /// Exchanges are among the micro-batches.
    ExchangesBetween,
    /// The first and the last one are simulated, and there are no others.
    FewRepetitions,
    /// Ranks of one device are not at the same task.
    NotInStep,
    /// Messages in flight use the memory of the device.
    MessagesInFlight,
    /// Something is in flight whenever the last rank begins an iteration.
    Busy,
    /// No two iterations that were compared begin in the same state.
    StatesDiffer,
    /// No iteration is left.
    NoneLeft,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyNot::NoOccasion => "nothing in the run that it is for",
            WhyNot::LongWay => "every event was asked for",
            WhyNot::Unequal(reason) => reason,
            WhyNot::Disturbed(reason) => reason,
            WhyNot::Noise => "noise differs between ranks",
            WhyNot::FirstCome => "batches go to learners first come, first served",
            WhyNot::Input => "samples are read beside the steps",
            WhyNot::NotOfALibrary => "the exchange is not a library's",
            WhyNot::TimeUnknown => "the library's time on these devices is not known",
            WhyNot::NotAlone => "some ranks do something else during the exchange",
            WhyNot::NoRing => "the exchange is not a ring in one lane",
            WhyNot::FoldedOtherwise => "the members that are simulated are no ring",
            WhyNot::MessagesVary => "equal messages may take different times",
            WhyNot::EarlyMessages => "messages arrive before their receiver starts the exchange",
            WhyNot::Shared => "messages share a link, a core, a memory or a port",
            WhyNot::TooLong => "it takes too long",
            WhyNot::SomethingElse => "some rank computes, or starts something before a ring ends",
            WhyNot::FewRounds => "too few rounds are left",
            WhyNot::ExchangesBetween => "exchanges are among the micro-batches",
            WhyNot::FewRepetitions => "none is between the first and the last",
            WhyNot::NotInStep => "ranks of one device are at different tasks",
            WhyNot::MessagesInFlight => "messages in flight use the device's memory",
            WhyNot::Busy => "something is in flight when the last rank begins an iteration",
            WhyNot::StatesDiffer => "no two iterations begin in the same state",
            WhyNot::NoneLeft => "no iteration is left",
        })
    }
}

/// A shortcut's method where its condition holds, else why it does not.
pub(super) type Condition<T> = Result<T, WhyNot>;

/// The use of a shortcut in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortcutUse {
    /// Which one.
    pub shortcut: Shortcut,
    /// How often it was taken, in its [unit](Shortcut::unit).
    pub taken: u64,
    /// Why it was not taken, the last time that it was not.
    pub why_not: Option<WhyNot>,
}

impl ShortcutUse {
    /// The use of folding.
    pub(crate) fn of_folding(folding: &Folding) -> ShortcutUse {
        let (taken, why_not) = match folding {
            Folding::Off => (0, Some(WhyNot::NoOccasion)),
            Folding::Refused(reason) => (0, Some(WhyNot::Unequal(reason.clone()))),
            Folding::Folded { representatives, ranks, .. } => (u64::from(ranks - representatives), None),
        };
        ShortcutUse { shortcut: Shortcut::Folding, taken, why_not }
    }
}

impl fmt::Display for ShortcutUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShortcutUse { shortcut, taken, why_not } = self;
        match (taken, why_not) {
            (0, None) => write!(f, "{shortcut}: not taken"),
            (0, Some(why)) => write!(f, "{shortcut}: not taken, {why}"),
            (_, None) => write!(f, "{shortcut}: {taken} {}", shortcut.unit()),
            (_, Some(why)) => write!(f, "{shortcut}: {taken} {}, else not, {why}", shortcut.unit()),
        }
    }
}

/// How an exchange runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As one with a known total time.
    Library,
    /// As a ring without events.
    Ring,
    /// Message by message.
    Events,
}

/// The shortcuts of a run so far.
#[derive(Debug)]
pub(super) struct Shortcuts {
    /// By exchange, once determined.
    ways: Vec<Option<Way>>,
    /// By shortcut: how often it was taken, and why not the last time.
    uses: [(u64, Option<WhyNot>); Shortcut::ALL.len()],
}

impl Shortcuts {
    pub(super) fn new(group_exchanges: usize) -> Shortcuts {
        Shortcuts { ways: vec![None; group_exchanges], uses: Default::default() }
    }

    /// The exchanges that have started and whose total time is not known.
    pub(super) fn by_lanes(&self) -> impl Iterator<Item = usize> {
        let lanes = |way: &Option<Way>| matches!(way, Some(Way::Ring | Way::Events));
        self.ways.iter().enumerate().filter(move |(_, way)| lanes(way)).map(|(number, _)| number)
    }

    /// The uses of all but folding.
    pub(super) fn uses(self) -> Vec<ShortcutUse> {
        let all = Shortcut::ALL.into_iter().zip(self.uses).skip(1);
        let of = |(shortcut, (taken, why_not)): (Shortcut, (u64, Option<WhyNot>))| {
            let none = (taken == 0).then_some(WhyNot::NoOccasion);
            ShortcutUse { shortcut, taken, why_not: why_not.or(none) }
        };
        all.map(of).collect()
    }

    /// Counts uses of a shortcut, or keeps why there was none; the method where there is one.
    pub(super) fn note<T>(&mut self, shortcut: Shortcut, times: u64, found: Condition<T>) -> Option<T> {
        let (taken, why_not) = &mut self.uses[shortcut as usize];
        match found {
            Ok(method) => {
                *taken += times;
                Some(method)
            }
            Err(why) => {
                *why_not = Some(why);
                None
            }
        }
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// How an exchange runs; determined when its first member starts it.
    pub(super) fn way_of(&mut self, group_exchange: u32) -> Result<Way, InputError> {
        if let Some(way) = self.shortcuts.ways[group_exchange as usize] {
            return Ok(way);
        }
        let mut way = Way::Events;
        let whole = self.whole(group_exchange)?;
        if let Some(whole) = self.shortcuts.note(Shortcut::Library, 1, whole) {
            self.wholes.add(group_exchange, whole);
            way = Way::Library;
        } else {
            let ring = self.pipeline(group_exchange)?;
            if let Some(ring) = self.shortcuts.note(Shortcut::Ring, 1, ring) {
                self.pipelines.insert(group_exchange, ring);
                way = Way::Ring;
            }
        }
        self.shortcuts.ways[group_exchange as usize] = Some(way);
        Ok(way)
    }

    /// Computes rings without events from now on, if enough messages were sent since the last time and only rings run.
    pub(super) fn skip_rounds(&mut self) -> Result<(), InputError> {
        if self.steady.wants_a_look(self.ranks.len()) {
            let found = self.look_at_rings()?;
            // It is counted when the ranks continue by events.
            self.shortcuts.note(Shortcut::Rings, 0, found);
        }
        Ok(())
    }

    /// Makes `rank`, which is about to begin a compute task, run all further micro-batches but the last as one event.
    pub(super) fn skip_micro_batches(&mut self, rank: u32) -> bool {
        if self.ranks[rank as usize].compute.repetition == 0 {
            return false;
        }
        let found = self.repetitions(rank);
        let times = found.as_ref().map_or(0, |times| u64::from(*times));
        self.shortcuts.note(Shortcut::MicroBatches, times, found).is_some()
    }

    /// Skips iterations, if the last rank has begun one in the present instant, which is over as the next event is at
    /// `next`; returns whether that is the end of the run.
    pub(super) fn skip_iterations(&mut self, next: Time) -> bool {
        if !self.periods.due() || next <= self.now {
            return false;
        }
        let found = self.look_back();
        let times = found.as_ref().map_or(0, |skipped| u64::from(skipped.iterations));
        self.shortcuts.note(Shortcut::Iterations, times, found).is_some_and(|skipped| skipped.ends)
    }
}
