//! Computes rings by a recurrence instead of events while only rings run, until shortly before the first of them ends.
//!
//! A ring that starts while its ranks compute is left to the event loop. Once each rank is in one ring and nothing else
//! can start before some ring ends, messages take their time alone, if no resource can be filled by all of them and no
//! two queue at one port; all later rounds then follow from one (`recurrence.rs`). So a round is recorded as ranks pass
//! it. After the last rank, all later rounds are known: if every rank passes some round K before the first ring ends,
//! and later than now, ranks pause at the next round that none has reached, and continue by events from round K. Starts
//! and ends, and messages in flight when something starts, remain with the event loop.

mod ring_run;

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_topology::{InputError, Permutations, Time};

use super::input::InputStream;
use super::line::has_twice;
use super::pipeline::{LONGEST_S, Passed, RingEdges, hop};
use super::recurrence::State;
use super::shortcuts::{Condition, Shortcut, WhyNot};
use super::unit::Busy;
use super::{Engine, Event};
use crate::fluid::{ClassId, Fluid};
use crate::plan::{GroupExchange, RolePlan};
use ring_run::{Ring, RingRun};

/// Fewest rounds for which this pays off.
const WORTHWHILE: u32 = 32;

/// Messages per rank between two checks of the rings.
const PATIENCE: u64 = 4;

/// The known state of the rings.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// Messages posted since the last check, and the factor on the interval until the next one.
    pub(super) posted: u64,
    factor: u64,
    /// Whether plan and conditions allow it, once determined.
    possible: Option<Condition<()>>,
    /// By exchange, once determined.
    rings: BTreeMap<u32, Condition<Arc<Ring>>>,
    /// By the exchanges in flight together: whether they do not affect each other.
    together: BTreeMap<Vec<u32>, bool>,
    watch: Option<Watch>,
}

/// Rings whose ranks record a round, or pause after one.
#[derive(Debug)]
struct Watch {
    /// By exchange, in ascending order.
    runs: Vec<RingRun>,
    /// Ranks still short of it.
    left: usize,
    /// Whether they pause.
    decided: bool,
}

impl Steady {
    /// Whether the rings of `ranks` ranks are due for a check.
    pub(super) fn wants_a_look(&self, ranks: usize) -> bool {
        self.posted >= PATIENCE * ranks as u64 * self.factor.max(1) && self.watch.is_none()
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// Checks whether only rings are in flight; if so, their ranks record the next round that none of them has reached.
    ///
    /// # Errors
    /// Devices that cannot reach each other.
    pub(super) fn look_at_rings(&mut self) -> Result<Condition<()>, InputError> {
        self.steady.posted = 0;
        let possible = self.steady.possible.take().unwrap_or_else(|| self.plan_is_steady());
        self.steady.possible = Some(possible.clone());
        if possible.is_err() {
            return Ok(possible);
        }
        if self.flights.len() != self.ranks.len() || !self.all_exchange() {
            return Ok(Err(WhyNot::SomethingElse));
        }
        let mut runs = match self.runs()? {
            Ok(runs) => runs,
            Err(why) => return Ok(Err(why)),
        };
        for run in &mut runs {
            run.at = 1 + run.flights.iter().map(|id| self.flights.at(*id).received).max().unwrap_or(0);
            if run.at + WORTHWHILE > run.ring.rounds {
                return Ok(Err(WhyNot::FewRounds));
            }
        }
        self.watch(runs, false);
        Ok(Ok(()))
    }

    /// Whether nothing but exchanges and compute tasks ever happens, undisturbed.
    fn plan_is_steady(&self) -> Condition<()> {
        self.undisturbed()?;
        let roles = &self.plan.roles;
        if roles.iter().any(|role| role.claims) {
            return Err(WhyNot::FirstCome);
        }
        let plain =
            |role: &RolePlan| role.synchronisation.is_empty() && role.tasks.iter().all(|task| !task.skips_first);
        if roles.iter().all(plain) { Ok(()) } else { Err(WhyNot::SomethingElse) }
    }

    /// Whether each rank is in one exchange that has started, and nothing else can start before that ends.
    fn all_exchange(&self) -> bool {
        let exchanges = |unit: &super::Unit| matches!(unit.busy, None | Some(Busy::Receive { .. }));
        self.units.iter().all(exchanges)
            && (0..self.ranks.len() as u32).all(|rank| {
                let (state, role) = (&self.ranks[rank as usize], self.role(rank));
                let next = state.compute.task(&role.compute).filter(|_| state.compute.iteration < state.begun);
                let ready = next.is_some_and(|task| state.missing(role, task, state.compute).next().is_none());
                let flight = |id: &u32| self.flights.at(*id).serial.is_some() && self.flights.at(*id).span() == 1;
                // Input tasks follow loads, or each other.
                let input = state.input.iter().all(InputStream::is_idle);
                state.ready.is_none() && !ready && input && state.flights.len() == 1 && state.flights.iter().all(flight)
            })
    }

    /// The rings in flight, if all ranks are in rings and these do not affect each other.
    fn runs(&mut self) -> Result<Condition<Vec<RingRun>>, InputError> {
        let mut members: BTreeMap<(u32, u64), Vec<(u32, u32)>> = BTreeMap::new();
        for state in &self.ranks {
            let Some(id) = state.flights.first() else { return Ok(Err(WhyNot::SomethingElse)) };
            let flight = self.flights.at(*id);
            let member = self.plan.group_exchanges[flight.group_exchange as usize].member(flight.rank);
            members.entry((flight.group_exchange, flight.run)).or_default().push((member, *id));
        }
        let mut runs: Vec<RingRun> = Vec::with_capacity(members.len());
        for ((group_exchange, _), mut flights) in members {
            let ring = match self.ring(group_exchange)? {
                Ok(ring) => ring,
                Err(why) => return Ok(Err(why)),
            };
            flights.sort_unstable();
            if flights.len() != ring.edges.len() || runs.last().is_some_and(|run| run.group_exchange == group_exchange)
            {
                return Ok(Err(WhyNot::SomethingElse));
            }
            let flights: Vec<u32> = flights.into_iter().map(|(_, id)| id).collect();
            runs.push(RingRun::new(group_exchange, ring, flights));
        }
        let group_exchanges: Vec<u32> = runs.iter().map(|run| run.group_exchange).collect();
        let together = match self.steady.together.get(&group_exchanges) {
            Some(known) => *known,
            None => {
                let paths: Vec<u32> = runs.iter().flat_map(|run| &run.ring.paths).copied().collect();
                let classes: Vec<ClassId> = runs.iter().flat_map(|run| &run.ring.classes).copied().collect();
                let apart = !self.resources.crowded(&classes) && !self.share_ports(&paths);
                self.steady.together.insert(group_exchanges, apart);
                apart
            }
        };
        Ok(if together { Ok(runs) } else { Err(WhyNot::Shared) })
    }

    /// The ring of an exchange, computed on first use.
    fn ring(&mut self, group_exchange: u32) -> Result<Condition<Arc<Ring>>, InputError> {
        if !self.steady.rings.contains_key(&group_exchange) {
            let ring = self.ring_of(group_exchange)?.map(Arc::new);
            self.steady.rings.insert(group_exchange, ring);
        }
        Ok(self.steady.rings[&group_exchange].clone())
    }

    fn ring_of(&mut self, group_exchange: u32) -> Result<Condition<Ring>, InputError> {
        let plan = self.plan;
        let plan = &plan.group_exchanges[group_exchange as usize];
        let members = plan.schedule.members();
        let Some(phases) = plan.schedule.pipeline() else { return Ok(Err(WhyNot::NoRing)) };
        let rounds: u32 = phases.iter().map(|phase| phase.rounds).sum();
        if rounds < WORTHWHILE {
            return Ok(Err(WhyNot::FewRounds));
        }
        let orbits = self.resources.orbits();
        let turns = orbits
            .fold()
            .is_none_or(|fold| matches!(fold.group(), Permutations::Rotations { .. } | Permutations::Grid { .. }));
        // The first members are simulated and represent the rest cyclically.
        let own = |member: u32| plan.members.rank(member);
        let simulated = (0..members).take_while(|member| own(*member) < self.ranks.len() as u32).count() as u32;
        let cyclic = |member: u32| orbits.representative(own(member)) == own(member % simulated);
        if !turns || simulated == 0 || !members.is_multiple_of(simulated) || !(simulated..members).all(cyclic) {
            return Ok(Err(WhyNot::FoldedOtherwise));
        }
        let mut ring = RingEdges::default();
        for member in 0..simulated {
            let (from, to) = hop(member, simulated, members);
            let (blocks, kind) = ((&phases[..], plan.schedule.dtype()), (true, plan.schedule.buffered_sends()));
            if !self.add_edge(&mut ring, (own(from), own(to)), blocks, kind)? {
                return Ok(Err(WhyNot::MessagesVary));
            }
        }
        let RingEdges { edges, paths, classes, mut lines } = ring;
        if !edges.iter().all(|edge| edge.slowest_s() * f64::from(rounds) < LONGEST_S) {
            return Ok(Err(WhyNot::TooLong));
        }
        if has_twice(&mut lines) {
            return Ok(Err(WhyNot::Shared));
        }
        Ok(Ok(Ring { members, rounds, phases, edges, paths, classes }))
    }

    /// Sets the counts of received messages, from the runs of rings, at which ranks are checked.
    fn watch(&mut self, runs: Vec<RingRun>, decided: bool) {
        let mut left = 0;
        for run in &runs {
            left += run.flights.len();
            run.flights.iter().for_each(|id| self.flights.at_mut(*id).mark = run.at);
        }
        self.steady.watch = Some(Watch { runs, left, decided });
    }

    /// An exchange ends, so something else may start: rings are left to the event loop.
    pub(super) fn forget_rings(&mut self) {
        let Some(watch) = self.steady.watch.take() else { return };
        debug_assert!(!watch.decided, "ranks continue by events before any of them is through");
        watch.runs.iter().flat_map(|run| &run.flights).for_each(|id| self.flights.at_mut(*id).mark = 0);
    }

    /// The rank of a flight has received the message that is checked, which arrived, and left its sender's port, at
    /// these times; returns whether the rank pauses.
    pub(super) fn marked(&mut self, id: u32, (there, through): (Time, Time)) -> Result<bool, InputError> {
        let flight = self.flights.at(id);
        let member = self.plan.group_exchanges[flight.group_exchange as usize].member(flight.rank) as usize;
        let Some(watch) = &mut self.steady.watch else { return Ok(false) };
        let Ok(at) = watch.runs.binary_search_by_key(&flight.group_exchange, |run| run.group_exchange) else {
            return Ok(false);
        };
        let (run, decided) = (&mut watch.runs[at], watch.decided);
        if decided {
            debug_assert_eq!(run.states[member].done, self.now.0, "the recurrence is what happens");
        } else {
            let path = self.paths.at(run.ring.paths[member]);
            // Where sending takes no time a port is always free.
            let port = if path.terms.send > Time::ZERO { through.0 } else { 0 };
            run.states[member] = State { done: self.now.0, there: there.0, port };
        }
        watch.left -= 1;
        if watch.left == 0
            && let Some(watch) = self.steady.watch.take()
        {
            if decided { self.hand_back(watch.runs)? } else { self.decide(watch.runs) }
        }
        Ok(decided)
    }

    /// All ranks have recorded a round: computes what follows, and lets them pause if that pays off.
    fn decide(&mut self, mut runs: Vec<RingRun>) {
        for run in &mut runs {
            let reached = run.flights.iter().map(|id| self.flights.at(*id).received).max().unwrap_or(0);
            run.advance(reached + 1);
        }
        if self.now.0 < u64::MAX / 2 && ring_run::choose(&mut runs) {
            self.steady.factor = 1;
            self.watch(runs, true);
        } else {
            self.shortcuts.note::<()>(Shortcut::Rings, 0, Err(WhyNot::FewRounds));
            // A check costs about as much as the events between two checks.
            self.steady.factor = (self.steady.factor.max(1) * 4).min(1 << 20);
        }
    }

    /// All ranks pause: each continues by events after its last computed round.
    fn hand_back(&mut self, runs: Vec<RingRun>) -> Result<(), InputError> {
        self.shortcuts.note(Shortcut::Rings, 1, Ok(()));
        for run in runs {
            let (ring, passed) = (&run.ring, run.until - run.at);
            let phases = ring.between(run.at..run.until);
            let phases: Vec<_> = phases.into_iter().map(|(_, phase)| phase).collect();
            let GroupExchange { members, schedule, .. } = &self.plan.group_exchanges[run.group_exchange as usize];
            for (member, (id, state)) in (0..).zip(run.flights.iter().zip(&run.then)) {
                let (from, to) = hop(member, ring.edges.len() as u32, ring.members);
                let between = (members.rank(from), members.rank(to));
                let path = ring.paths[member as usize];
                let (phases, dtype, members) = (&phases, schedule.dtype(), ring.members);
                let what = Passed { phases, dtype, path, between, member, members };
                self.set_final_state(&what, *state)?;
                self.take_one_by_one(&what);
                let flight = self.flights.at_mut(*id);
                (flight.received, flight.mark) = (flight.received + passed, 0);
                if let Some(run) = flight.lane(0) {
                    run.pass_over(passed);
                }
                self.events.push(Time(state.done), Event::Resume(*id));
            }
        }
        Ok(())
    }

    /// The rank of a flight has finished the last computed round, as if it had just received a message.
    pub(super) fn resume(&mut self, id: u32) -> Result<(), InputError> {
        let rank = self.flights.at(id).rank;
        let unit = self.exchange_unit(rank);
        self.units[unit as usize].idle_since = Some(self.now);
        self.touch(unit);
        self.continue_lane(id, 0)?;
        self.start_ready(rank)
    }
}
