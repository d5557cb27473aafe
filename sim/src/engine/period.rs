//! Skips periodic iterations: if the last rank begins an iteration in the same state as an earlier one, shifted in
//! time, then the iterations between repeat, and all but the end of the run is computed as a multiple.
//!
//! Nothing in the engine depends on absolute time, so equal states have equal futures, to the picosecond. States are
//! compared where they are small: every rank has begun the iteration, no exchange is in flight, and each computes what
//! cannot have been slowed down, so that its start determines it. Where that never happens, every iteration is
//! simulated. Ranks that stop in the last iteration do not begin another. So the last one equals those before if a rank
//! that begins an iteration has no work left from the one before that this could slow down; else it is simulated. Ranks
//! whose shares differ in length may return to a state only after many iterations, because delays move around a ring.

use lockstep_topology::Time;

use super::Engine;
use super::record::Mark;
use super::shortcuts::{Condition, WhyNot};
use super::unit::Busy;
use crate::conditions::Conditions;
use crate::fluid::Fluid;
use crate::machine::Taken;
use crate::plan::{Cursor, Slot};

/// The number of moments that are kept, and of numbers in all of them: if no state has recurred by then, none will.
const MOMENTS: usize = 32;
const NUMBERS: usize = 1 << 24;

/// The part of a rank's state that its future depends on; times are relative to the present.
#[derive(Debug, PartialEq)]
struct RankState {
    /// Iterations begun beyond the one that all have begun.
    ahead: u32,
    /// Its present compute task.
    compute: Cursor,
    /// How long ago it was ready, and began.
    ready: Option<Time>,
    busy: Option<Time>,
    /// Whether it runs repetitions as one event.
    repeats: bool,
}

/// The state of a run when the last rank has begun an iteration.
#[derive(Debug, PartialEq)]
struct State {
    ranks: Vec<RankState>,
    /// The time until each port is free, and until each bucket of a link with bursts is full.
    ports: Vec<Time>,
    /// Bytes that each connection's window counts, and how long ago the last of them arrived.
    windows: Vec<(u64, Time)>,
}

/// Such a moment, with the work done by then.
#[derive(Debug)]
struct Moment {
    iteration: u32,
    at: Time,
    state: State,
    taken: Vec<f64>,
    mark: Mark,
}

/// Iterations that were recorded as repetitions of earlier ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skipped {
    pub(super) iterations: u32,
    /// Whether the run ends with them.
    pub(super) ends: bool,
}

/// The record of the iterations so far.
#[derive(Debug, Default)]
pub(super) struct Periods {
    /// Ranks that have not begun iteration `next`.
    behind: usize,
    next: u32,
    /// The moments when the last rank began earlier iterations.
    moments: Vec<Moment>,
    /// Whether the search is over.
    over: bool,
}

impl Periods {
    /// Before any of `ranks` ranks starts.
    pub(super) fn new(ranks: usize) -> Periods {
        Periods { behind: ranks, ..Periods::default() }
    }

    /// A rank begins `iteration`.
    pub(super) fn begin(&mut self, iteration: u32) {
        self.behind -= usize::from(iteration == self.next);
    }

    /// Whether the last rank has just begun an iteration.
    pub(super) fn due(&self) -> bool {
        self.behind == 0 && !self.over
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// Checks whether the present, in which the last rank has begun an iteration, equals an earlier such moment. If so,
    /// records all following iterations except those at the end. The present instant must be over.
    pub(super) fn look_back(&mut self) -> Condition<Skipped> {
        let begun = || self.ranks.iter().map(|rank| rank.begun);
        let (least, most) = (begun().min().unwrap_or(0), begun().max().unwrap_or(0));
        let left = self.driver.steps().saturating_sub(most);
        let iteration = match self.comparable(least, left) {
            Ok(iteration) => iteration,
            Err(why) => {
                self.periods.over = true;
                return Err(why);
            }
        };
        (self.periods.next, self.periods.behind) = (least, begun().filter(|begun| *begun == least).count());
        let state = self.state(iteration).ok_or(WhyNot::Busy)?;
        let (taken, mark) = (self.resources.done.sums().to_vec(), self.record.mark());
        let now = Moment { iteration, at: self.now, state, taken, mark };
        let mut moments = std::mem::take(&mut self.periods.moments);
        match moments.iter().find(|earlier| earlier.state == now.state) {
            Some(earlier) => {
                self.periods.over = true;
                let log = self.resources.done.end_log();
                if let Some(iterations) = self.end_like(earlier, &now, log) {
                    return Ok(Skipped { iterations, ends: true });
                }
                let iterations = self.skip(earlier, &now, left).filter(|iterations| *iterations > 0);
                Ok(Skipped { iterations: iterations.ok_or(WhyNot::NoneLeft)?, ends: false })
            }
            None => {
                self.periods.over = (moments.len() + 1) * (now.taken.len() + self.ranks.len()) > NUMBERS;
                self.periods.over |= moments.len() == MOMENTS;
                if self.periods.over {
                    self.resources.done.end_log();
                } else {
                    self.resources.done.begin_log();
                }
                moments.push(now);
                self.periods.moments = moments;
                Err(WhyNot::StatesDiffer)
            }
        }
    }

    /// The last iteration that all ranks have begun, of `begun`, if a moment with `left` more to begin may be compared
    /// with others.
    fn comparable(&self, begun: u32, left: u32) -> Condition<u32> {
        if self.long_way {
            return Err(WhyNot::LongWay);
        }
        if self.plan.roles.iter().any(|role| role.claims) {
            return Err(WhyNot::FirstCome);
        }
        if self.plan.roles.iter().any(|role| !role.input[0].is_empty()) {
            return Err(WhyNot::Input);
        }
        // Disturbances may depend on the time, or on the iteration.
        if *self.platform.conditions != Conditions::default() {
            return Err(self.platform.conditions.apart().map_or(WhyNot::Input, WhyNot::Disturbed));
        }
        let iteration = begun.checked_sub(1).ok_or(WhyNot::StatesDiffer)?;
        if left > 0 || self.is_apart(begun) { Ok(iteration) } else { Err(WhyNot::NoneLeft) }
    }

    /// Whether no rank has begun more than `begun` iterations, and each began the last of them with nothing left to do
    /// for earlier ones, alone on its device: kernels do not slow transfers down, so what a rank does from then on
    /// disturbs no other.
    fn is_apart(&self, begun: u32) -> bool {
        self.ranks.iter().all(|rank| rank.begun == begun && rank.sole && rank.begun_free)
    }

    /// Records the rest of the run as repetitions of the time from the last moment to the present, in the same state,
    /// and returns how many; `None`, without changes, where the last iteration may differ.
    fn end_like(&mut self, from: &Moment, to: &Moment, log: Option<Vec<Taken>>) -> Option<u32> {
        let (span, steps) = (to.at - from.at, self.driver.steps());
        let times = steps.checked_sub(to.iteration).filter(|times| *times > 0)?;
        if to.iteration != from.iteration + 1 || !self.is_apart(to.iteration + 1) {
            return None;
        }
        let log = log?;
        span.0.checked_mul(u64::from(times) + 2)?.checked_add(to.at.0)?;
        self.record.repeat(&from.mark, times, (1, span), steps)?;
        self.count_again(to.iteration, times);
        // The last one is counted as if it were simulated, without what ranks have begun of the next.
        self.resources.done.take_again(&from.taken, times - 1);
        let own = log.iter().filter(|taken| taken.iteration != to.iteration);
        own.for_each(|taken| self.resources.done.add(taken));
        for rank in &mut self.ranks {
            (rank.begun, rank.stopped) = (to.iteration, true);
        }
        Some(times)
    }

    /// Counts the messages of `iterations` iterations `times` times more.
    fn count_again(&mut self, iterations: u32, times: u32) {
        for peer in self.ranks.iter_mut().flat_map(|rank| &mut rank.peers) {
            // All exchanges of earlier iterations are over, and none of a later one has begun.
            for count in [&mut peer.messages, &mut peer.bytes] {
                *count += *count / u64::from(iterations) * u64::from(times);
            }
        }
    }

    /// Repeats the record between two moments in the same state as often as fits in `left` iterations, and returns how
    /// many those are; `None` where that exceeds the range of time, or where spans became totals meanwhile.
    fn skip(&mut self, from: &Moment, to: &Moment, left: u32) -> Option<u32> {
        let (span, period) = (to.at - from.at, to.iteration - from.iteration);
        let times = left / period;
        let by = span.0.checked_mul(u64::from(times))?;
        // The rest after that ends before the clock does.
        span.0.checked_mul(2)?.checked_add(by)?.checked_add(to.at.0)?;
        self.record.repeat(&from.mark, times, (period, span), u32::MAX)?;
        self.count_again(to.iteration, times * period);
        self.resources.done.take_again(&from.taken, times);
        Some(times * period)
    }

    /// The present state, if it is small; all ranks have begun `iteration`.
    fn state(&self, iteration: u32) -> Option<State> {
        let computing = self.units.iter().filter(|unit| matches!(unit.busy, Some(Busy::Compute(_)))).count();
        if self.flights.len() > 0 || self.messages.len() > 0 || self.resources.fluid.active() != computing {
            return None;
        }
        let last = self.last_transfers();
        let ranks = (0..).zip(last).map(|(rank, last)| self.rank_state(rank, iteration, last));
        let mut ports = self.connections.ports.waits(self.now);
        ports.extend(self.connections.bursts.waits(self.now).as_flattened());
        Some(State { ranks: ranks.collect::<Option<_>>()?, ports, windows: self.connections.windows.states(self.now) })
    }

    /// When the last message over links from or to each rank arrived, or its last collective with a known total time
    /// ended.
    fn last_transfers(&self) -> Vec<Time> {
        let mut last = vec![Time::ZERO; self.ranks.len()];
        for (from, rank) in self.ranks.iter().enumerate() {
            for peer in &rank.peers {
                let to = self.resources.orbits().representative(peer.rank) as usize;
                let there = self.lines.at(peer.line).there;
                last[from] = last[from].max(there);
                last[to] = last[to].max(there);
            }
            last[from] = last[from].max(self.wholes.last(from as u32));
        }
        last
    }

    fn rank_state(&self, rank: u32, iteration: u32, last_transfer: Time) -> Option<RankState> {
        let (state, role) = (&self.ranks[rank as usize], self.role(rank));
        let fresh = Cursor { iteration, ..Cursor::default() };
        let fresh = |cursor, stream: &[Slot]| stream.is_empty() || cursor == fresh;
        let starts = fresh(state.exchange, &role.exchange)
            && fresh(state.receive, &role.receive)
            && fresh(state.synchronisation, &role.synchronisation);
        if state.stopped || state.noise.is_some() || !starts {
            return None;
        }
        let unit = &self.units[2 * rank as usize];
        let ago = |time: Time| self.now - time;
        let (busy, repeats) = match unit.busy {
            None => (None, false),
            Some(Busy::Repeat(since)) => (Some(since), true),
            Some(Busy::Compute(since)) => {
                // Ranks of one device slow each other down, and so do messages in flight meanwhile.
                let taken_in = self.units[self.exchange_unit(rank) as usize].idle_since.filter(|_| state.apart);
                let alone = state.sole && taken_in.unwrap_or(last_transfer).max(last_transfer) <= since;
                (alone || since == self.now).then_some((Some(since), false))?
            }
            Some(Busy::Receive { .. } | Busy::Synchronise(_)) => return None,
        };
        let compute = match role.compute.is_empty() {
            true => Cursor::default(),
            false => Cursor { iteration: state.compute.iteration - iteration, ..state.compute },
        };
        let ahead = state.begun - iteration - 1;
        Some(RankState { ahead, compute, ready: state.ready.map(ago), busy: busy.map(ago), repeats })
    }
}
