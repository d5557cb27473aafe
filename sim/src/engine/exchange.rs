//! Simulates exchanges in flight: lanes start in order, at most `window` from the lowest that is not through, and step
//! until they wait.
//!
//! The steps come from the schedule, one at a time; nothing here depends on the collective.

use lockstep_models::Span;
use lockstep_topology::{Action, InputError};

use super::Engine;
use super::flight::Flight;
use crate::fluid::Fluid;
use crate::plan::Cursor;

impl<F: Fluid> Engine<'_, F> {
    /// `rank` starts the exchange `task` in the run that `cursor` names.
    pub(super) fn start_exchange(&mut self, rank: u32, task: u32, cursor: Cursor) -> Result<(), InputError> {
        let role = self.role(rank);
        let task_plan = &role.tasks[task as usize];
        let Some(meets) = &task_plan.meets else { return Ok(()) };
        let run = task_plan.run(cursor.iteration, cursor.repetition);
        let meeting = meets.of(rank);
        let member = self.plan.meetings[meeting as usize].member(rank);
        let id = self.flight(meeting, member, run);
        self.started_flights += 1;
        let flight = self.flights.at_mut(id);
        flight.serial = Some(self.started_flights);
        flight.task = task;
        flight.iteration = cursor.iteration;
        flight.repetition = cursor.repetition;
        flight.start = self.now;
        self.ranks[rank as usize].flights.push(id);
        if self.is_whole(meeting)? {
            self.join_whole(meeting, id)
        } else if self.is_pipeline(meeting)? {
            self.join_pipeline(meeting, member, id)
        } else {
            self.fill(id)
        }
    }

    /// The flight of a member, created on first use.
    pub(super) fn flight(&mut self, meeting: u32, member: u32, run: u64) -> u32 {
        if let Some(id) = self.meetings.find(meeting, member, run) {
            return id;
        }
        let rank = self.plan.meetings[meeting as usize].members.rank(member);
        let id = self.flights.put(Flight::new(rank, meeting, run));
        self.meetings.add(meeting, member, run, id);
        id
    }

    /// The flight of the member that flight `id` sends to.
    pub(super) fn flight_sent_to(&mut self, id: u32, member: u32) -> u32 {
        let Flight { meeting, run, sent_to: (recent, known), .. } = *self.flights.at(id);
        if recent == member && known != u32::MAX {
            let other = self.flights.at(known);
            let rank = self.plan.meetings[meeting as usize].members.rank(member);
            if other.open && (other.meeting, other.run, other.rank) == (meeting, run, rank) {
                return known;
            }
        }
        let known = self.flight(meeting, member, run);
        self.flights.at_mut(id).sent_to = (member, known);
        known
    }

    /// Starts lanes while the window allows it, and ends the exchange when all are through.
    fn fill(&mut self, id: u32) -> Result<(), InputError> {
        let plan = self.plan;
        let flight = self.flights.at(id);
        let meeting = &plan.meetings[flight.meeting as usize];
        let member = meeting.member(flight.rank);
        let lanes = meeting.schedule.lanes();
        loop {
            let flight = self.flights.at_mut(id);
            if flight.span() >= meeting.window.max(1) || flight.next == lanes {
                break;
            }
            let lane = flight.next;
            flight.start_lane(meeting.schedule.lane(member, lane));
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
        let Flight { rank, meeting, task, iteration, repetition, start, run, .. } = *self.flights.at(id);
        self.meetings.remove(meeting, self.plan.meetings[meeting as usize].member(rank), run);
        self.flights.at_mut(id).open = false;
        self.flights.drop(id);
        self.forget_rings();
        self.ranks[rank as usize].flights.retain(|other| *other != id);
        self.complete(rank, Span { rank, task, iteration, repetition, ready: start, start, end: self.now });
    }

    /// Steps a lane until it waits or ends; returns whether it is through.
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
                        self.meet(id, lane, message)?;
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
        self.go_on(id, lane)
    }

    /// Continues a lane that waits for nothing more, and starts others where it is through.
    pub(super) fn go_on(&mut self, id: u32, lane: u32) -> Result<(), InputError> {
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
        if run.through() {
            flight.retire();
            self.fill(id)?;
        }
        Ok(())
    }
}
