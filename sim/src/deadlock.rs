//! Deadlocks: when nothing can happen any more and ranks are not through, who waits in which task for what from whom.

use std::fmt;

use crate::engine::Engine;
use crate::fluid::Fluid;

/// What a rank waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// A message from a rank.
    Message(u32),
    /// A rank that has not taken in what was sent to it.
    Taking(u32),
    /// Another task of its own.
    Task(String),
}

/// A rank that waits for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Who.
    pub rank: u32,
    /// In which task.
    pub task: String,
    /// For what.
    pub waits_for: WaitsFor,
}

impl Waiting {
    /// The rank at which the chain of waiting goes on.
    fn next(&self) -> Option<u32> {
        match self.waits_for {
            WaitsFor::Message(rank) | WaitsFor::Taking(rank) => Some(rank),
            WaitsFor::Task(_) => None,
        }
    }
}

/// What `rank` waits for, now that nothing happens any more; `None` if it is through.
pub(crate) fn waiting<F: Fluid>(engine: &Engine<'_, F>, rank: u32) -> Option<Waiting> {
    let (state, role) = (engine.rank(rank), engine.role(rank));
    if state.finished(role) {
        return None;
    }
    let name = |task: u32| role.tasks[task as usize].name.clone();
    for flight in state.flights.iter().map(|id| engine.flight_of(*id)) {
        let mut lanes = flight.active_lanes();
        if let Some((lane, run)) = lanes.next() {
            let waits_for = match run.waiting {
                Some(step) => WaitsFor::Message(engine.member(flight, step.peer)),
                None => WaitsFor::Taking(engine.holder(flight, lane)?),
            };
            return Some(Waiting { rank, task: name(flight.task), waits_for });
        }
    }
    let streams = [
        (state.compute, &role.compute),
        (state.exchange, &role.exchange),
        (state.synchronisation, &role.synchronisation),
    ];
    streams.into_iter().find_map(|(cursor, stream)| {
        let task = cursor.task(stream)?;
        let missing = state.missing(role, task, cursor).next()?;
        Some(Waiting { rank, task: name(task), waits_for: WaitsFor::Task(name(missing)) })
    })
}

/// The chain of waiting that starts at the first rank, in words.
pub(crate) fn describe(all: &[Waiting], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("deadlock: ")?;
    let Some(mut at) = all.first() else { return f.write_str("nobody can go on") };
    let mut seen: Vec<u32> = Vec::new();
    write!(f, "rank {}", at.rank)?;
    loop {
        seen.push(at.rank);
        match &at.waits_for {
            WaitsFor::Message(from) => write!(f, " waits in `{}` for a message from rank {from}", at.task)?,
            WaitsFor::Taking(by) => write!(f, " waits in `{}` until rank {by} takes in what it sent", at.task)?,
            WaitsFor::Task(task) => write!(f, " waits with `{}` for its own `{task}`", at.task)?,
        }
        let Some(next) = at.next() else { return Ok(()) };
        let Some(waiting) = all.iter().find(|waiting| waiting.rank == next) else {
            return f.write_str(", which has ended");
        };
        if seen.contains(&next) {
            return write!(f, ": a circle of {} ranks", seen.len() - seen.iter().position(|r| *r == next).unwrap_or(0));
        }
        f.write_str(", which")?;
        at = waiting;
    }
}
