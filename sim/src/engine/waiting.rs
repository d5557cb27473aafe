//! Finds what an unfinished rank waits for when no event is left.

use super::{Engine, Flight};
use crate::deadlock::{Waiting, WaitsFor};
use crate::fluid::Fluid;

impl<F: Fluid> Engine<'_, F> {
    /// What `rank` waits for, now that no event is left; `None` if it is finished.
    pub(super) fn waiting(&self, rank: u32) -> Option<Waiting> {
        let (state, role) = (&self.ranks[rank as usize], self.role(rank));
        if state.finished(role) {
            return None;
        }
        let name = |task: u32| role.tasks[task as usize].name.clone();
        for flight in state.flights.iter().map(|id| self.flights.at(*id)) {
            let mut lanes = flight.active_lanes();
            if let Some((lane, run)) = lanes.next() {
                let waits_for = match run.waiting {
                    Some(step) => WaitsFor::Message(self.member(flight, step.peer)),
                    None => WaitsFor::Taking(self.holder(flight, lane)?),
                };
                return Some(Waiting { rank, task: name(flight.task), waits_for });
            }
        }
        let streams = [
            (state.compute, &role.compute),
            (state.exchange, &role.exchange),
            (state.receive, &role.receive),
            (state.synchronisation, &role.synchronisation),
        ];
        streams.into_iter().find_map(|(cursor, stream)| {
            let task = cursor.task(stream)?;
            let missing = state.missing(role, task, cursor).next()?;
            Some(Waiting { rank, task: name(task), waits_for: WaitsFor::Task(name(missing)) })
        })
    }

    /// The rank that has not received what `lane` of `flight` sent.
    fn holder(&self, flight: &Flight, lane: u32) -> Option<u32> {
        let members = &self.plan.group_exchanges[flight.group_exchange as usize].members;
        let orbits = self.resources.orbits();
        let holds = |rank: u32| {
            let (sender, rank) = (members.member(orbits.seen_from(rank, flight.rank))?, orbits.representative(rank));
            let other = self.open_exchanges.find(flight.group_exchange, members.member(rank)?, flight.run)?;
            self.flights.at(other).inbox.first(lane, sender).map(|_| rank)
        };
        self.ranks[flight.rank as usize].peers.iter().find_map(|peer| holds(peer.rank))
    }

    /// The rank that is `member` of a flight's exchange.
    fn member(&self, flight: &Flight, member: u32) -> u32 {
        self.plan.group_exchanges[flight.group_exchange as usize].members.rank(member)
    }
}
