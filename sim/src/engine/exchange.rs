//! Simulates exchanges in flight: lanes start in order, at most `window` from the lowest unfinished one, and step until
//! they wait.
//!
//! The steps come from the schedule, one at a time; nothing here depends on the collective.

use lockstep_models::Span;
use lockstep_topology::{Action, InputError};

use super::Engine;
use super::flight::Flight;
use super::shortcuts::Way;
use crate::fluid::Fluid;
use crate::plan::Cursor;

impl<F: Fluid> Engine<'_, F> {
    /// `rank` starts the exchange `task` in the run that `cursor` names.
    pub(super) fn start_exchange(&mut self, rank: u32, task: u32, cursor: Cursor) -> Result<(), InputError> {
        let role = self.role(rank);
        let task_plan = &role.tasks[task as usize];
        let Some(groups) = &task_plan.groups else { return Ok(()) };
        let run = task_plan.run(cursor.iteration, cursor.repetition);
        let group_exchange = groups.of(rank);
        let member = self.plan.group_exchanges[group_exchange as usize].member(rank);
        let id = self.flight(group_exchange, member, run);
        self.started_flights += 1;
        let flight = self.flights.at_mut(id);
        flight.serial = Some(self.started_flights);
        flight.task = task;
        flight.iteration = cursor.iteration;
        flight.repetition = cursor.repetition;
        flight.start = self.now;
        self.ranks[rank as usize].flights.push(id);
        match self.way_of(group_exchange)? {
            Way::Library => self.join_whole(group_exchange, id),
            Way::Ring => self.join_pipeline(group_exchange, member, id),
            Way::Events => self.fill(id),
        }
    }

    /// The flight of a member, created on first use.
    pub(super) fn flight(&mut self, group_exchange: u32, member: u32, run: u64) -> u32 {
        if let Some(id) = self.open_exchanges.find(group_exchange, member, run) {
            return id;
        }
        let rank = self.plan.group_exchanges[group_exchange as usize].members.rank(member);
        let id = self.flights.put(Flight::new(rank, group_exchange, run));
        self.open_exchanges.add(group_exchange, member, run, id);
        id
    }

    /// The flight of the member that flight `id` sends to.
    pub(super) fn flight_sent_to(&mut self, id: u32, member: u32) -> u32 {
        let Flight { group_exchange, run, sent_to: (recent, known), .. } = *self.flights.at(id);
        if recent == member && known != u32::MAX {
            let other = self.flights.at(known);
            let rank = self.plan.group_exchanges[group_exchange as usize].members.rank(member);
            if other.open && (other.group_exchange, other.run, other.rank) == (group_exchange, run, rank) {
                return known;
            }
        }
        let known = self.flight(group_exchange, member, run);
        self.flights.at_mut(id).sent_to = (member, known);
        known
    }

    /// Starts lanes while the window allows it, and ends the exchange once all are done.
    fn fill(&mut self, id: u32) -> Result<(), InputError> {
        let plan = self.plan;
        let flight = self.flights.at(id);
        let group_exchange = &plan.group_exchanges[flight.group_exchange as usize];
        let member = group_exchange.member(flight.rank);
        let lanes = group_exchange.schedule.lanes();
        loop {
            let flight = self.flights.at_mut(id);
            if flight.span() >= group_exchange.window.max(1) || flight.next == lanes {
                break;
            }
            let lane = flight.next;
            flight.start_lane(group_exchange.schedule.lane(member, lane));
            if self.step(id, lane)? {
                self.flights.at_mut(id).retire();
            }
        }
        let flight = self.flights.at(id);
        if flight.next == lanes && flight.span() == 0 {
            self.end_exchange(id);
        }
        Ok(())
    }

    /// The exchange is over on the member of this flight.
    pub(super) fn end_exchange(&mut self, id: u32) {
        let Flight { rank, group_exchange, task, iteration, repetition, start, run, .. } = *self.flights.at(id);
        self.open_exchanges.remove(
            group_exchange,
            self.plan.group_exchanges[group_exchange as usize].member(rank),
            run,
        );
        self.flights.at_mut(id).open = false;
        self.flights.drop(id);
        self.forget_rings();
        self.ranks[rank as usize].flights.retain(|other| *other != id);
        self.complete(rank, Span { rank, task, iteration, repetition, ready: start, start, end: self.now });
    }

    /// Steps a lane until it waits or ends; returns whether it finished.
    fn step(&mut self, id: u32, lane: u32) -> Result<bool, InputError> {
        loop {
            let flight = self.flights.at_mut(id);
            let Some(run) = flight.lane(lane) else { return Ok(true) };
            match run.next() {
                None => {
                    run.ended = true;
                    return Ok(run.through());
                }
                Some(step) if step.action == Action::Send => self.post(id, lane, step)?,
                Some(step) => {
                    run.waiting = Some(step);
                    if let Some(message) = flight.inbox.take(lane, step.peer) {
                        self.match_message(id, lane, message)?;
                    }
                    return Ok(false);
                }
            }
        }
    }

    /// The message that a lane waited for is in its buffer.
    pub(super) fn received(&mut self, id: u32, lane: u32) -> Result<(), InputError> {
        let flight = self.flights.at_mut(id);
        flight.received += 1;
        let marked = flight.received == flight.mark;
        let Some(run) = flight.lane(lane) else { return Ok(()) };
        run.waiting = None;
        if let Some(message) = run.matched.take() {
            let passed = self.messages.at(message).passed();
            self.consume(message)?;
            if marked && self.marked(id, passed)? {
                return Ok(());
            }
        }
        self.unblock(id, lane)
    }

    /// Continues a lane after a receive; if a library's sends block, once these are done too.
    fn unblock(&mut self, id: u32, lane: u32) -> Result<(), InputError> {
        let flight = self.flights.at_mut(id);
        let blocking = self.plan.group_exchanges[flight.group_exchange as usize].schedule.buffered_sends();
        let Some(run) = flight.lane(lane) else { return Ok(()) };
        run.blocked = blocking && run.outstanding > 0;
        if run.blocked { Ok(()) } else { self.continue_lane(id, lane) }
    }

    /// Continues a lane that no longer waits, and starts others if it is finished.
    pub(super) fn continue_lane(&mut self, id: u32, lane: u32) -> Result<(), InputError> {
        if self.step(id, lane)? {
            self.flights.at_mut(id).retire();
            self.fill(id)?;
        }
        Ok(())
    }

    /// One of a lane's sends was received.
    pub(super) fn send_taken(&mut self, id: u32, lane: u32) -> Result<(), InputError> {
        let flight = self.flights.at_mut(id);
        let Some(run) = flight.lane(lane) else { return Ok(()) };
        run.outstanding -= 1;
        if run.blocked {
            return self.unblock(id, lane);
        }
        if run.through() {
            flight.retire();
            self.fill(id)?;
        }
        Ok(())
    }
}
