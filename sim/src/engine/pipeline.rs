//! Computes rings with no other work beside them by one recurrence, without events, once their last member has started.
//!
//! Three conditions are checked first, else the event loop does the work. The plan says that members do nothing else
//! meanwhile, and that there are no other ranks. The platform says that no resource can be filled by all messages and
//! receives at once and that no two edges of the ring queue at one port, so each message takes its time alone. And no
//! member can finish before all have started, as every end depends on every start; so when the last one starts, the
//! event loop has missed nothing.

use lockstep_models::Members;
use lockstep_topology::cluster::Rendezvous;
use lockstep_topology::{Dtype, InputError, PipelinePhase, Time};

use super::line::{Shared, has_twice};
use super::message::WORKED_OUT;
use super::path::PLAIN;
use super::recurrence::{Edge, How, State, advance};
use super::shortcuts::{Condition, WhyNot};
use super::{Engine, Event, overflow};
use crate::costs::Pair;
use crate::fluid::{ClassId, Fluid};
use crate::network::{Carrier, Terms};
use crate::plan::{Apart, GroupExchange};

/// Longer rings are left to the event loop, which reports errors about them: 53 days, a quarter of the range of time.
pub(super) const LONGEST_S: f64 = (1_u64 << 62) as f64 * 1e-12;

/// How messages reach each simulated member of a ring, and what they use.
#[derive(Debug, Default)]
pub(super) struct RingEdges {
    pub(super) edges: Vec<Edge>,
    pub(super) paths: Vec<u32>,
    /// The classes of all messages and of the work that receives them.
    pub(super) classes: Vec<ClassId>,
    /// Connections that other ranks use too.
    pub(super) lines: Vec<Shared>,
}

/// An exchange that runs without events.
#[derive(Debug)]
pub(super) struct Pipeline {
    phases: Vec<PipelinePhase>,
    /// How messages reach each member, and their paths.
    edges: Vec<Edge>,
    paths: Vec<u32>,
    /// The members that have started, and their flights.
    started: Vec<(u32, u32)>,
}

impl<F: Fluid> Engine<'_, F> {
    /// A member of a pipeline has started; with the last one, all of their ends are known.
    pub(super) fn join_pipeline(&mut self, group_exchange: u32, member: u32, flight: u32) -> Result<(), InputError> {
        let Some(mut pipeline) = self.pipelines.remove(&group_exchange) else { return Ok(()) };
        pipeline.started.push((member, flight));
        let all = pipeline.started.len() == self.ranks.len();
        let passed = if all { self.pass(group_exchange, &mut pipeline) } else { Ok(()) };
        self.pipelines.insert(group_exchange, pipeline);
        passed
    }

    /// The member of `flight` finishes.
    pub(super) fn through(&mut self, flight: u32) -> Result<(), InputError> {
        let rank = self.flights.at(flight).rank;
        self.end_kernel(rank, flight)?;
        self.end_exchange(flight);
        self.start_ready(rank)
    }

    /// The exchange as one that runs without events.
    ///
    /// # Errors
    /// Devices that cannot reach each other.
    pub(super) fn pipeline(&mut self, group_exchange: u32) -> Result<Condition<Pipeline>, InputError> {
        let plan = self.plan;
        let plan = &plan.group_exchanges[group_exchange as usize];
        let ranks = self.ranks.len() as u32;
        let phases = match self.ring_alone(plan) {
            Ok(phases) => phases,
            Err(why) => return Ok(Err(why)),
        };
        let ring = match self.edges_alone(plan, &phases)? {
            Ok(ring) => ring,
            Err(why) => return Ok(Err(why)),
        };
        let RingEdges { edges, paths, classes, mut lines } = ring;
        let rounds: f64 = phases.iter().map(|phase| f64::from(phase.rounds)).sum();
        if !edges.iter().all(|edge| edge.slowest_s() * rounds < LONGEST_S) {
            return Ok(Err(WhyNot::TooLong));
        }
        if self.resources.crowded(&classes) || self.share_ports(&paths) || has_twice(&mut lines) {
            return Ok(Err(WhyNot::Shared));
        }
        Ok(Ok(Pipeline { phases, edges, paths, started: Vec::with_capacity(ranks as usize) }))
    }

    /// The phases of an exchange that is a ring of all ranks, which do nothing else meanwhile.
    fn ring_alone(&self, plan: &GroupExchange) -> Condition<Vec<PipelinePhase>> {
        let members = plan.schedule.members();
        let alone = plan.apart.is_some()
            && plan.members == Members::range(0, members)
            && self.resources.orbits().count(members) == self.ranks.len() as u32;
        self.undisturbed()?;
        if !alone {
            return Err(WhyNot::NotAlone);
        }
        plan.schedule.pipeline().ok_or(WhyNot::NoRing)
    }

    /// Whether messages may be computed without events at all.
    pub(super) fn undisturbed(&self) -> Condition<()> {
        if self.long_way {
            return Err(WhyNot::LongWay);
        }
        if let Some(reason) = self.platform.conditions.apart() {
            return Err(WhyNot::Disturbed(reason));
        }
        if self.ranks.iter().any(|rank| rank.noise.is_some()) { Err(WhyNot::Noise) } else { Ok(()) }
    }

    /// The edges of a ring of all ranks, each of which carries its messages in times that are known.
    fn edges_alone(
        &mut self,
        plan: &GroupExchange,
        phases: &[PipelinePhase],
    ) -> Result<Condition<RingEdges>, InputError> {
        let (members, ranks) = (plan.schedule.members(), self.ranks.len() as u32);
        let computes = self.plan.roles.iter().any(|role| !role.compute.is_empty());
        let on_gpus = self.ranks.iter().any(|rank| rank.apart);
        // Messages of another ring take the same paths, and queue behind them; those of other exchanges would share links.
        let alike = |other: &GroupExchange| other.members == plan.members && other.schedule.pipeline().is_some();
        let mut rings_alike = None;
        let (at_once, whole) = (plan.apart == Some(Apart::AtOnce), plan.schedule.buffered_sends());
        let mut ring = RingEdges::default();
        for rank in 0..ranks {
            let between = hop(rank, ranks, members);
            if !self.add_edge(&mut ring, between, (phases, plan.schedule.dtype()), (at_once, whole))? {
                return Ok(Err(WhyNot::MessagesVary));
            }
            // A message that flows before its receiver has started, or after its sender has ended, takes memory
            // bandwidth from their kernels.
            let early = whole || ring.edges.last().is_some_and(|edge| edge.how == How::Eager);
            if early
                && (computes && on_gpus
                    || !*rings_alike.get_or_insert_with(|| self.plan.group_exchanges.iter().all(alike)))
            {
                return Ok(Err(WhyNot::EarlyMessages));
            }
        }
        Ok(Ok(ring))
    }

    /// Adds the edge of a ring from one rank to the next; false where equal messages do not always take the same time.
    ///
    /// # Errors
    /// Devices that cannot reach each other.
    pub(super) fn add_edge(
        &mut self,
        ring: &mut RingEdges,
        (from, to): (u32, u32),
        blocks: (&[PipelinePhase], Dtype),
        (at_once, whole): (bool, bool),
    ) -> Result<bool, InputError> {
        let path = self.path(from, to, PLAIN)?;
        let Some(edge) = self.edge(path, blocks, (at_once, whole)) else { return Ok(false) };
        ring.lines.extend(self.shared_line((from, to), path, PLAIN.1));
        let known = self.paths.at(path);
        ring.classes.push(known.receive);
        if let (Carrier::Shared(class), Pair::Wire) = (known.carrier, known.pair) {
            ring.classes.push(class);
        }
        ring.edges.push(edge);
        ring.paths.push(path);
        Ok(true)
    }

    /// The times of the blocks of `phases` on a path, in elements of this format; `None` where equal lengths do not
    /// always take the same time.
    fn edge(
        &mut self,
        path: u32,
        (phases, dtype): (&[PipelinePhase], Dtype),
        (at_once, whole): (bool, bool),
    ) -> Option<Edge> {
        let path = self.paths.at(path);
        let bytes = [0, 1].map(|more| dtype.bytes(phases[0].elements + more));
        let wire = path.pair == Pair::Wire;
        let [how, longer] = bytes.map(|bytes| match wire {
            false => How::Memory,
            true if path.is_eager(bytes, whole) => How::Eager,
            true => How::Held(path.terms.rendezvous),
        });
        let Terms { ramp, incast, queue, bursts, .. } = &path.terms;
        let steady = ramp.is_none() && incast.is_none() && queue.is_none() && bursts.is_none();
        // A sender that is ahead announces later messages before earlier ones leave, through the same port; on a stream
        // directions wait for each other.
        let announces =
            how == How::Held(Rendezvous::Write) && path.terms.send > Time::ZERO || how == How::Held(Rendezvous::Stream);
        // A message posted before the receiver starts wakes a thread that has been idle.
        let sleeps = how == How::Memory && !at_once;
        if !steady || announces || sleeps || how != longer {
            return None;
        }
        let mut span = |class: ClassId, work: f64| self.resources.fluid.span_alone(class, work).0;
        let flow = bytes.map(|bytes| match path.carrier {
            _ if !wire => 0,
            Carrier::Alone(bytes_per_s) => Time::from_secs_f64(bytes as f64 / bytes_per_s).0,
            Carrier::Shared(class) => span(class, bytes as f64),
        });
        let mut work = [[0; 2]; 2];
        for (phase, work) in phases.iter().zip(&mut work) {
            *work = bytes.map(|bytes| span(path.receive, path.receive_seconds(phase.action, bytes)));
        }
        Some(Edge { how, latency: path.latency.0, send: path.terms.send.0, flow, work })
    }

    /// Whether two of these paths queue at one port.
    pub(super) fn share_ports(&self, paths: &[u32]) -> bool {
        let on_links = paths.iter().map(|path| self.paths.at(*path)).filter(|path| path.pair == Pair::Wire);
        let mut ports: Vec<(u32, Time)> = on_links.map(|path| (path.terms.port, path.terms.send)).collect();
        ports.sort_unstable();
        // The longer one comes second.
        ports.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[1].1 > Time::ZERO)
    }

    /// All members have started: computes when each of them finishes.
    fn pass(&mut self, group_exchange: u32, pipeline: &mut Pipeline) -> Result<(), InputError> {
        let plan = self.plan;
        let GroupExchange { schedule, .. } = &plan.group_exchanges[group_exchange as usize];
        let (members, ranks) = (schedule.members(), self.ranks.len());
        if self.now.0 > u64::MAX / 2 {
            return Err(overflow());
        }
        pipeline.started.sort_unstable();
        let mut states = Vec::with_capacity(ranks);
        for ((member, flight), path) in pipeline.started.iter().zip(&pipeline.paths) {
            let (from, to) = hop(*member, ranks as u32, members);
            let line = self.peer(from, to, PLAIN)?.line;
            let there = self.lines.at(line).there.0;
            let path = self.paths.at(*path);
            let port = if path.pair == Pair::Wire { self.connections.ports.free(path.terms.port).0 } else { 0 };
            states.push(State { done: self.flights.at(*flight).start.0, there, port });
        }
        for phase in pipeline.phases.iter().enumerate() {
            states = advance(&pipeline.edges, states, phase, members, true);
        }
        for (member, flight) in std::mem::take(&mut pipeline.started) {
            let (own, next) = (member as usize, (member as usize + 1) % ranks);
            // A rank finishes when its own last send completes, unless that was copied.
            let rid = match pipeline.edges[next].how {
                How::Memory => states[next].done,
                How::Held(_) => states[next].there,
                How::Eager => 0,
            };
            let done = Time(states[own].done);
            let end = if schedule.buffered_sends() { done } else { done.max(Time(rid)) };
            let between = hop(member, ranks as u32, members);
            let (phases, path) = (&pipeline.phases, pipeline.paths[own]);
            let passed = Passed { phases, dtype: schedule.dtype(), path, between, member, members };
            self.set_final_state(&passed, states[own])?;
            self.take(&passed);
            self.events.push(end, Event::Through(flight));
        }
        Ok(())
    }

    /// Sets the state that the event loop would have after these messages: counts, and the state of peers and ports.
    pub(super) fn set_final_state(&mut self, passed: &Passed<'_>, state: State) -> Result<(), InputError> {
        let &Passed { phases, dtype, path, between: (from, to), member, members } = passed;
        let (mut messages, mut bytes) = (0, 0);
        for phase in phases {
            let longer = u64::from(phase.longer_taken_in(member, members));
            messages += u64::from(phase.rounds);
            let equal = u64::from(phase.rounds) - longer;
            bytes += equal * dtype.bytes(phase.elements) + longer * dtype.bytes(phase.elements + 1);
        }
        let terms = &self.paths.at(path).terms;
        if self.paths.at(path).pair == Pair::Wire && terms.send > Time::ZERO {
            self.connections.ports.pass(terms.port, Time(state.port), Time::ZERO);
        }
        let peer = self.peer(from, to, PLAIN)?;
        (peer.messages, peer.bytes) = (peer.messages + messages, peer.bytes + bytes);
        let line = peer.line;
        self.lines.at_mut(line).there = Time(state.there);
        // A sender may go on before its last message has arrived; what it sends then queues behind it.
        if self.paths.at(path).pair == Pair::Wire && Time(state.there) > self.now {
            self.lines.at_mut(line).queue.push_back(WORKED_OUT);
            self.events.push(Time(state.there), Event::Cleared(from));
        }
        Ok(())
    }

    /// The last of the messages from `rank` computed without events has arrived: the queue behind it advances.
    pub(super) fn cleared(&mut self, rank: u32) -> Result<(), InputError> {
        let peers = &self.ranks[rank as usize].peers;
        let worked_out = |line: &u32| self.lines.at(*line).queue.front() == Some(&WORKED_OUT);
        let Some(line) = peers.iter().map(|peer| peer.line).find(worked_out) else { return Ok(()) };
        let queue = &mut self.lines.at_mut(line).queue;
        queue.pop_front();
        match queue.front().copied() {
            Some(next) => self.flow(next),
            None => Ok(()),
        }
    }

    /// Records the work of such messages.
    fn take(&mut self, passed: &Passed<'_>) {
        let path = self.paths.at(passed.path);
        let (mut bytes, mut seconds) = (0, 0.0);
        for phase in passed.phases {
            let longer = phase.longer_taken_in(passed.member, passed.members);
            for (count, elements) in [(phase.rounds - longer, phase.elements), (longer, phase.elements + 1)] {
                let each = passed.dtype.bytes(elements);
                bytes += u64::from(count) * each;
                seconds += f64::from(count) * path.receive_seconds(phase.action, each);
            }
        }
        self.resources.done.take(path.receive, seconds);
        if let (Carrier::Shared(class), Pair::Wire) = (path.carrier, path.pair) {
            self.resources.done.take(class, bytes as f64);
        }
    }

    /// The same message by message, so that the sums are those of the event loop.
    pub(super) fn take_one_by_one(&mut self, passed: &Passed<'_>) {
        let path = self.paths.at(passed.path);
        for phase in passed.phases {
            // With equal blocks all rounds are one run.
            let runs = if phase.longer == 0 { 1 } else { phase.rounds };
            for round in 0..runs {
                let each = passed.dtype.bytes(phase.taken_in(passed.member, round, passed.members));
                let count = phase.rounds / runs;
                self.resources.done.take_often(path.receive, path.receive_seconds(phase.action, each), count);
                if let (Carrier::Shared(class), Pair::Wire) = (path.carrier, path.pair) {
                    self.resources.done.take_often(class, each as f64, count);
                }
            }
        }
    }
}

/// Rounds in which `member` of `members` received messages along a path from one rank to another.
pub(super) struct Passed<'p> {
    pub(super) phases: &'p [PipelinePhase],
    pub(super) dtype: Dtype,
    pub(super) path: u32,
    pub(super) between: (u32, u32),
    pub(super) member: u32,
    pub(super) members: u32,
}

/// The sender, and the receiver, of what the representative `rank` receives: its image may be another member.
pub(super) fn hop(rank: u32, ranks: u32, members: u32) -> (u32, u32) {
    let from = (rank + ranks - 1) % ranks;
    (from, (from + 1) % members)
}
