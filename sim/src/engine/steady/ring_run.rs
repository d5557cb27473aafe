//! `RingRun`: computes the state of a ring's members after each round.

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::PipelinePhase;

use super::super::recurrence::{Edge, State, advance};
use crate::fluid::ClassId;

/// Fewest rounds at the end of a ring that are left to the event loop; multiples by powers of two are tried.
const LAST: u32 = 8;

/// A ring with constant message times.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) members: u32,
    /// Rounds of all phases.
    pub(super) rounds: u32,
    pub(super) phases: Vec<PipelinePhase>,
    /// By simulated member: how messages reach it, and their path.
    pub(super) edges: Vec<Edge>,
    pub(super) paths: Vec<u32>,
    /// The classes of all messages and of the work that receives them.
    pub(super) classes: Vec<ClassId>,
}

impl Ring {
    /// These rounds, counted over all phases, as parts of phases with their numbers.
    pub(super) fn between(&self, rounds: Range<u32>) -> Vec<(usize, PipelinePhase)> {
        let mut begin = 0;
        let mut parts = Vec::new();
        for (index, phase) in self.phases.iter().enumerate() {
            let end = begin + phase.rounds;
            let part = rounds.start.clamp(begin, end) - begin..rounds.end.clamp(begin, end) - begin;
            if part.start < part.end {
                parts.push((index, phase.part(part, self.members)));
            }
            begin = end;
        }
        parts
    }
}

/// One run of a ring.
#[derive(Debug)]
pub(super) struct RingRun {
    pub(super) group_exchange: u32,
    pub(super) ring: Arc<Ring>,
    /// By simulated member.
    pub(super) flights: Vec<u32>,
    /// The members after this many rounds.
    pub(super) at: u32,
    pub(super) states: Vec<State>,
    /// The same where events begin again.
    pub(super) until: u32,
    pub(super) then: Vec<State>,
}

impl RingRun {
    /// A run before any round is known.
    pub(super) fn new(group_exchange: u32, ring: Arc<Ring>, flights: Vec<u32>) -> RingRun {
        let states = vec![State { done: 0, there: 0, port: 0 }; flights.len()];
        RingRun { group_exchange, ring, flights, at: 0, states, until: 0, then: Vec::new() }
    }

    /// Advances to where `to` rounds are done.
    pub(super) fn advance(&mut self, to: u32) {
        for (index, phase) in self.ring.between(self.at..to) {
            let states = std::mem::take(&mut self.states);
            self.states = advance(&self.ring.edges, states, (index, &phase), self.ring.members, true);
        }
        self.at = to.max(self.at);
    }

    /// The members before the last rounds, by the number of rounds left, ascending; and when the first of them
    /// finishes.
    fn ahead(&self) -> (Vec<(u32, Vec<State>)>, u64) {
        let left = std::iter::successors(Some(LAST), |left| left.checked_mul(2));
        let left: Vec<u32> = left.take_while(|left| self.at + left < self.ring.rounds).collect();
        let mut run = RingRun {
            flights: Vec::new(),
            ring: Arc::clone(&self.ring),
            then: Vec::new(),
            states: self.states.clone(),
            ..*self
        };
        let mut ahead = Vec::with_capacity(left.len());
        for left in left.into_iter().rev() {
            run.advance(self.ring.rounds - left);
            ahead.push((left, run.states.clone()));
        }
        run.advance(self.ring.rounds);
        ahead.reverse();
        (ahead, run.states.iter().map(|state| state.done).min().unwrap_or(0))
    }
}

/// Chooses the last round of each run that is computed without events: when all ranks have finished it none is at the
/// end of its ring, and none finishes it before all have reached the present of their runs. False without such a round.
pub(super) fn choose(runs: &mut [RingRun]) -> bool {
    let now = runs.iter().flat_map(|run| &run.states).map(|state| state.done).max().unwrap_or(0);
    let ahead: Vec<_> = runs.iter().map(RingRun::ahead).collect();
    let end = ahead.iter().map(|(_, end)| *end).min().unwrap_or(0);
    let rounds = ahead.iter().map(|(ahead, _)| ahead.len()).min().unwrap_or(0);
    let fits = |state: &State| state.done > now && state.done.max(state.there).max(state.port) < end;
    let chosen = (0..rounds).find(|at| ahead.iter().all(|(ahead, _)| ahead[*at].1.iter().all(fits)));
    let Some(at) = chosen else { return false };
    for (run, (mut ahead, _)) in runs.iter_mut().zip(ahead) {
        let (left, states) = ahead.swap_remove(at);
        (run.until, run.then) = (run.ring.rounds - left, states);
    }
    true
}
