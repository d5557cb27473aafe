//! Simulates one message: posted, in flight, arrived, received.
//!
//! Between ranks on one CPU the message has arrived when it is posted, and the receiver's thread does the work of
//! carrying it. Over links a transfer carries it: out of the sender's NIC, then latency, then bytes, one message of a
//! connection at a time (`line.rs`). Above the eager size it leaves once its receive is waited for, after
//! the rendezvous of its path (`network/connection.rs`), and its send completes when the last byte has arrived. An
//! eager send completes at once: the library copies.

use lockstep_topology::cluster::Rendezvous;
use lockstep_topology::{Action, InputError, LaneStep, Time};

use super::path::{Connection, connection};
use super::unit::Arrival;
use super::{Engine, Event, MESSAGE};
use crate::costs::Pair;
use crate::fluid::{ClassId, Fluid};
use crate::network::{Carrier, Piece, Terms, TransmitQueue};
use crate::trace::{Slot, Took, TraceWork};

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waiting for its receive; the receiver learns of it at this time.
    Held { announced: Time },
    /// On links.
    UnderWay,
    /// At the receiver: when it can first be seen, and when it wakes an idle thread.
    There { posted: Time, wakes: Time },
}

/// A message between its post and its end.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    from_flight: u32,
    from_rank: u32,
    to_flight: u32,
    to_rank: u32,
    connection: Connection,
    lane: u32,
    bytes: u64,
    path: u32,
    state: State,
    /// Whether a lane waits for it.
    matched: bool,
    /// Whether the sender's lane still counts it.
    counted: bool,
    /// Whether its request was answered on a stream.
    granted: bool,
    /// When it, or its announcement, had left the sender's port.
    through: Time,
    /// Its delay beyond its latency, and the factor on its bytes.
    noise: (Time, f64),
    /// On links with bursts: what has yet to flow.
    pieces: [Option<Piece>; 2],
}

impl Message {
    /// When it arrived, if it has, and when it had left the sender's port.
    pub(super) fn passed(&self) -> (Time, Time) {
        let there = if let State::There { posted, .. } = self.state { posted } else { Time::ZERO };
        (there, self.through)
    }
}

/// The placeholder in a queue for messages computed without events.
pub(super) const WORKED_OUT: u32 = u32::MAX;

impl<F: Fluid> Engine<'_, F> {
    /// Posts the message of a send.
    pub(super) fn post(&mut self, id: u32, lane: u32, step: LaneStep) -> Result<(), InputError> {
        let flight = self.flights.at(id);
        let (group_exchange, from_rank) = (flight.group_exchange, flight.rank);
        let plan = &self.plan.group_exchanges[group_exchange as usize];
        let (to_rank, buffered) = (plan.members.rank(step.peer), plan.schedule.buffered_sends());
        let bytes = plan.schedule.dtype().bytes(step.elements());
        let connection = connection(plan, lane);
        let (path, earlier) = self.path_for((from_rank, to_rank), connection, bytes)?;
        let to_flight = self.flight_sent_to(id, plan.member(self.resources.orbits().representative(to_rank)));

        let costs = self.paths.at(path);
        let wire = costs.pair == Pair::Wire;
        let latency = if from_rank == to_rank { Time::ZERO } else { costs.latency };
        let eager = wire && costs.is_eager(bytes, buffered);
        // A library's send on a stream blocks. Elsewhere both directions of a round end together.
        let blocks = wire && costs.terms.rendezvous == Rendezvous::Stream;
        let counted = !eager && (!buffered || blocks);
        let mut through = self.now;
        let state = match wire {
            true if eager || costs.terms.rendezvous == Rendezvous::None => State::Held { announced: self.now },
            true => {
                let (port, send, latency) = (costs.terms.port, costs.terms.send, costs.latency);
                through = self.through_port(port, path, send);
                State::Held { announced: through + latency }
            }
            false => State::There { posted: self.now, wakes: self.now + latency },
        };
        let message = Message {
            from_flight: id,
            from_rank,
            to_flight,
            to_rank,
            connection,
            lane,
            bytes,
            path,
            state,
            matched: false,
            counted,
            granted: false,
            through,
            pieces: [None; 2],
            noise: self.platform.conditions.noise.message(self.platform.conditions.trial, from_rank, to_rank, earlier),
        };
        let message = self.messages.put(message);
        self.keep_posted(message, (path, from_rank != to_rank), state);
        self.steady.posted += 1;
        if counted && let Some(run) = self.flights.at_mut(id).lane(lane) {
            run.outstanding += 1;
        }
        if eager {
            self.leave(message)?;
        }
        let member = plan.member(self.resources.orbits().seen_from(to_rank, from_rank));
        self.put_into_lane(message, (to_flight, lane), member)
    }

    /// Keeps when a message that is posted now can be seen, or is announced, for derivatives.
    #[inline]
    fn keep_posted(&mut self, message: u32, (path, between_ranks): (u32, bool), state: State) {
        let in_memory = Took::Path { path, sends: 0, latencies: u8::from(between_ranks) };
        match state {
            State::There { .. } => self.keep(Slot::Seen(message), Slot::Now, in_memory),
            State::Held { announced } if announced > self.now => {
                let port = self.paths.at(path).terms.port;
                self.keep(Slot::Announced(message), Slot::Port(port), Took::LATENCY.on(path));
            }
            _ => self.keep(Slot::Announced(message), Slot::Now, Took::Nothing),
        }
    }

    /// Gives a message from `member` to a lane that waits for it, else to the inbox of the lane's flight.
    #[inline]
    fn put_into_lane(&mut self, message: u32, (to_flight, lane): (u32, u32), member: u32) -> Result<(), InputError> {
        let receiver = self.flights.at_mut(to_flight);
        let waits = |run: &&mut super::flight::LaneRun| {
            run.matched.is_none() && run.waiting.is_some_and(|step| step.peer == member)
        };
        if receiver.lane(lane).as_ref().is_some_and(waits) {
            self.match_message(to_flight, lane, message)
        } else {
            receiver.inbox.put(lane, member, message);
            Ok(())
        }
    }

    /// Matches a lane with the message that it waits for.
    pub(super) fn match_message(&mut self, id: u32, lane: u32, message: u32) -> Result<(), InputError> {
        if let Some(run) = self.flights.at_mut(id).lane(lane) {
            run.matched = Some(message);
        }
        let state = self.messages.at_mut(message);
        state.matched = true;
        match state.state {
            State::Held { announced } => self.answer(message, announced),
            State::UnderWay => Ok(()),
            State::There { .. } => {
                self.offer(message);
                Ok(())
            }
        }
    }

    /// Answers a message beyond the eager size, known to its receiver since `announced`: completes the rendezvous.
    fn answer(&mut self, message: u32, announced: Time) -> Result<(), InputError> {
        if !self.grant(message, announced)? {
            return Ok(());
        }
        let state = self.messages.at_mut(message);
        state.state = State::UnderWay;
        let (number, path) = (state.path, self.paths.at(state.path));
        let answered = self.now.max(announced) + path.terms.send + path.latency;
        let (at, event, latencies) = match path.terms.rendezvous {
            Rendezvous::None => return self.leave(message),
            Rendezvous::Write | Rendezvous::Stream => (answered, Event::Leave(message), 1),
            // The sender's NIC serves the read without its driver.
            Rendezvous::Read => (answered + path.latency + state.noise.0, Event::Depart(message), 2),
        };
        if let Event::Depart(_) = event {
            self.burst(message, answered);
        }
        let since = if announced > self.now { Slot::Announced(message) } else { Slot::Now };
        self.keep(Slot::Message(message), since, Took::Path { path: number, sends: 1, latencies });
        self.events.push(at, event);
        Ok(())
    }

    /// Whether the request of a message may be answered now. On a stream the answer queues behind data of its own
    /// direction, so of two opposing messages of two ranks the second waits for the first.
    fn grant(&mut self, message: u32, announced: Time) -> Result<bool, InputError> {
        let Message { from_rank, to_rank, connection, path, .. } = *self.messages.at(message);
        if self.paths.at(path).terms.rendezvous != Rendezvous::Stream {
            return Ok(true);
        }
        let (receiver, sender) = self.resources.orbits().reverse((from_rank, to_rank))?;
        let back = self.peer(receiver, sender, connection)?.line;
        let back = self.lines.at_mut(back);
        if back.granted > 0 {
            back.held.push_back((message, announced));
            return Ok(false);
        }
        self.line(from_rank, to_rank, connection).granted += 1;
        self.messages.at_mut(message).granted = true;
        Ok(true)
    }

    /// A granted message between two ranks has arrived: answers the requests that waited for it.
    fn release(&mut self, (from, to): (u32, u32), connection: Connection) -> Result<(), InputError> {
        let line = self.line(from, to, connection);
        line.granted -= 1;
        if line.granted > 0 {
            return Ok(());
        }
        for (message, announced) in std::mem::take(&mut line.held) {
            self.answer(message, announced)?;
        }
        Ok(())
    }

    /// Sends a message through its NIC and over its links.
    pub(super) fn leave(&mut self, message: u32) -> Result<(), InputError> {
        let state = self.messages.at_mut(message);
        state.state = State::UnderWay;
        let (number, bytes, noise) = (state.path, state.bytes, state.noise.0);
        let path = self.paths.at(number);
        let (port, send, latency) = (path.terms.port, path.terms.send, path.latency);
        let queue = path.terms.queue.filter(|queue| queue.takes(bytes));
        let through = self.through_port(port, number, send);
        self.messages.at_mut(message).through = through;
        let (begins, since) = match queue {
            Some(queue) => self.through_queue(message, (port, number), queue),
            None => {
                self.burst(message, through);
                (through, Slot::Port(port))
            }
        };
        let departs = begins + latency + noise;
        if departs == self.now {
            return self.depart(message);
        }
        self.keep(Slot::Message(message), since, Took::LATENCY.on(number));
        self.events.push(departs, Event::Depart(message));
        Ok(())
    }

    /// When a message that enters a port now leaves it.
    fn through_port(&mut self, port: u32, path: u32, send: Time) -> Time {
        let since = if self.connections.ports.free(port) > self.now { Slot::Port(port) } else { Slot::Now };
        self.keep(Slot::Port(port), since, Took::SEND.on(path));
        self.connections.ports.pass(port, self.now, send)
    }

    /// When the bytes of a message that enters a transmit queue begin to leave it, and what that follows.
    fn through_queue(&mut self, message: u32, (port, path): (u32, u32), queue: TransmitQueue) -> (Time, Slot) {
        let (at, sent) = (self.messages.at(message).through, self.connections.ports.sent(port));
        let (begins, since) = if sent > at { (sent, Slot::Sent(port)) } else { (at, Slot::Port(port)) };
        let bytes = self.burst(message, begins);
        self.connections.ports.queue(port, begins, queue.span(bytes));
        self.keep(Slot::Begins, since, Took::Nothing);
        self.keep(Slot::Sent(port), since, Took::Queued { path, bytes });
        (begins, Slot::Begins)
    }

    /// Lets the bytes of a message pass its links' bursts, if they have any, from `at` on; returns the bytes that take as
    /// long without.
    fn burst(&mut self, message: u32, at: Time) -> f64 {
        let Message { path, bytes, pieces, .. } = self.messages.at_mut(message);
        let bytes = *bytes as f64;
        let Some(links) = self.paths.at(*path).terms.bursts.as_ref().filter(|_| bytes > 0.0) else { return bytes };
        let loaded;
        (loaded, *pieces) = self.connections.bursts.pass(links, bytes, at);
        loaded
    }

    /// The latency is over: the bytes flow as soon as those of earlier messages between the two ranks have.
    pub(super) fn depart(&mut self, message: u32) -> Result<(), InputError> {
        let Message { from_rank, to_rank, connection, path, .. } = *self.messages.at(message);
        let queue = &mut self.line(from_rank, to_rank, connection).queue;
        queue.push_back(message);
        if queue.len() > 1 {
            return Ok(());
        }
        if let Some(port) = self.paths.at(path).terms.incast {
            self.connections.incasts.enter(port, &mut self.resources)?;
        }
        self.flow(message)
    }

    pub(super) fn flow(&mut self, message: u32) -> Result<(), InputError> {
        let Message { path: number, bytes, from_rank, to_rank, noise: (_, factor), .. } = *self.messages.at(message);
        let path = self.paths.at(number);
        let (mut carrier, mut bytes) = (path.carrier, bytes);
        if let Some(ramp) = &path.terms.ramp {
            let windows = &mut self.connections.windows;
            (carrier, bytes) = windows.piece((from_rank, to_rank), ramp, carrier, bytes, self.now);
        }
        let mut bytes = bytes as f64 * factor;
        if let Some(piece) = self.messages.at_mut(message).pieces.iter_mut().find_map(Option::take) {
            (carrier, bytes) = (piece.carrier, piece.bytes * factor);
        }
        match carrier {
            Carrier::Alone(bytes_per_s) => {
                let end = self.now + Time::from_secs_f64(bytes / bytes_per_s);
                self.keep(Slot::Message(message), Slot::Now, Took::Bytes { path: number, bytes });
                self.events.push(end, Event::Arrive(message));
            }
            Carrier::Shared(class) => {
                self.resources.done.take(class, bytes);
                self.resources.fluid.about(TraceWork::Bytes { path: number });
                self.resources.fluid.start(class, bytes, MESSAGE | u64::from(message))?;
            }
        }
        Ok(())
    }

    /// The last byte has arrived, or the last of a piece.
    pub(super) fn arrive(&mut self, message: u32) -> Result<(), InputError> {
        let state = self.messages.at_mut(message);
        let Terms { ramp, incast, .. } = &self.paths.at(state.path).terms;
        let between = (state.from_rank, state.to_rank);
        if ramp.is_some() && self.connections.windows.flowed(between, self.now) {
            return self.flow(message);
        }
        let incast = *incast;
        if state.pieces.iter().any(Option::is_some) {
            return self.flow(message);
        }
        state.state = State::There { posted: self.now, wakes: self.now };
        let Message { from_rank, to_rank, connection, from_flight, lane, matched, .. } = *state;
        let (counted, granted) = (std::mem::take(&mut state.counted), std::mem::take(&mut state.granted));
        self.keep(Slot::Seen(message), Slot::Now, Took::Nothing);
        if matched {
            self.offer(message);
        }
        let now = self.now;
        let line = self.line(from_rank, to_rank, connection);
        line.there = now;
        line.queue.pop_front();
        if let Some(next) = line.queue.front().copied() {
            self.flow(next)?;
        } else if let Some(port) = incast {
            self.connections.incasts.leave(port, &mut self.resources)?;
        }
        if granted {
            self.release((from_rank, to_rank), connection)?;
        }
        if counted { self.notify_sender(from_rank, from_flight, lane) } else { Ok(()) }
    }

    /// Offers a message that has arrived to the unit of the rank that waits for it.
    fn offer(&mut self, message: u32) {
        let Message { to_flight, to_rank, lane, state, .. } = *self.messages.at(message);
        let State::There { posted, wakes } = state else { return };
        let serial = self.flights.at(to_flight).serial.unwrap_or(u64::MAX);
        let to_rank = self.resources.orbits().representative(to_rank);
        self.hand_over(to_rank, Arrival { posted, wakes: wakes.max(posted), serial, lane, flight: to_flight });
    }

    /// The message that matches `lane`.
    pub(super) fn matched(&mut self, id: u32, lane: u32) -> Option<u32> {
        self.flights.at_mut(id).lane(lane)?.matched
    }

    /// The class and seconds of the work that receives the message which `lane` waits for, and its action.
    pub(super) fn receive_work(&mut self, id: u32, lane: u32) -> (ClassId, f64, TraceWork) {
        let schedule = &self.plan.group_exchanges[self.flights.at(id).group_exchange as usize].schedule;
        let run = self.flights.at_mut(id).lane(lane).expect("an arrival belongs to a lane in flight");
        let step = run.waiting.expect("an arrival belongs to a receive");
        let message = run.matched.expect("an arrival is a message");
        let number = self.messages.at(message).path;
        let (path, bytes) = (self.paths.at(number), schedule.dtype().bytes(step.elements()));
        let work = TraceWork::Receive { path: number, bytes, sums: step.action == Action::RecvSum };
        (path.receive, path.receive_seconds(step.action, bytes), work)
    }

    /// A message was received.
    pub(super) fn consume(&mut self, message: u32) -> Result<(), InputError> {
        let Message { from_rank, from_flight, lane, counted, .. } = *self.messages.at(message);
        self.messages.drop(message);
        if counted { self.notify_sender(from_rank, from_flight, lane) } else { Ok(()) }
    }
}
