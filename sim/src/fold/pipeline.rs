//! A ring in one lane on links that nobody shares: its times by recurrence, whole periods of rounds at once.
//!
//! Where no resource can be filled by all of its users together, every message of a pair of ranks takes as long as the
//! last one, so what rank r does in round k follows from what r and r − 1 did in round k − 1: a recurrence over a few
//! numbers per rank, with no queue of events. It says the same at every time of day: add a span to all of its numbers and
//! all that follows shifts by that span. So once the state after p rounds is the state before them, later by one span, it
//! will be so for ever, and what is left of a phase is skipped by whole periods, exactly. Slow links, where messages wait
//! for their receive, set a common pace (p = 1); where they need not, delays travel round the ring, and the state returns
//! after as many rounds as there are representatives.
//!
//! A million ranks take two million rounds; a few times the representatives are worked out, and the rest is a product.

use lockstep_models::{Span, Totals};
use lockstep_topology::cluster::Rendezvous;
use lockstep_topology::{Schedule, Time};

use super::Orbits;
use crate::costs::Pair;
use crate::engine::{Outcome, Path, Peer, path_between};
use crate::fluid::{ClassId, Fluid, System};
use crate::machine::Resources;
use crate::network::{Carrier, Connections};
use crate::platform::Platform;
use crate::simulate::SimError;
use crate::traffic::Traffic;

/// Later times are left to the event loop, which knows what to say about them.
const LATEST: u64 = 1 << 61;

/// How messages get from the rank before to a rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edge {
    how: How,
    latency: u64,
    /// The sender's time per message.
    send: u64,
    /// What the bytes take on links.
    flow: u64,
    /// What the receiver takes, by phase.
    work: [u64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    /// In the memory of a CPU: the receiver wakes after the latency unless it was busy.
    Memory,
    Eager,
    /// On links, when its receive is waited for.
    Held(Rendezvous),
}

/// What a rank remembers of the rounds so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// When its last receive was done.
    done: u64,
    /// When the last message to it was there, and was through its sender's port.
    there: u64,
    port: u64,
}

impl State {
    fn later(self, span: u64) -> State {
        State { done: self.done + span, there: self.there + span, port: self.port + span }
    }
}

impl Edge {
    /// One round: the rank before posted at `post`.
    #[inline]
    fn round(&self, post: u64, own: State, phase: usize) -> State {
        let wait = own.done;
        let (begin, there, port) = match self.how {
            How::Memory => {
                let begin = if post < wait { wait } else { post + self.latency };
                (begin, begin, begin)
            }
            How::Eager => self.arrive(wait, own.there, own.port.max(post) + self.send),
            How::Held(Rendezvous::None) => self.arrive(wait, own.there, own.port.max(post.max(wait)) + self.send),
            How::Held(rendezvous) => {
                let announced = own.port.max(post) + self.send;
                let answered = post.max(wait).max(announced + self.latency) + self.send + self.latency;
                // A read is served without the sender's time; a write has none (`World::edge`).
                let departs = answered + self.latency;
                debug_assert!(rendezvous == Rendezvous::Read || self.send == 0);
                let there = own.there.max(departs) + self.flow;
                (there.max(wait), there, announced)
            }
        };
        State { done: begin + self.work[phase], there, port }
    }

    /// A message that is through its port at `port`.
    #[inline]
    fn arrive(&self, wait: u64, before: u64, port: u64) -> (u64, u64, u64) {
        let there = before.max(port + self.latency) + self.flow;
        (there.max(wait), there, port)
    }
}

/// The states after `rounds` more rounds of a phase; whole periods are skipped if `skip`. `None`: too late to count.
fn advance(edges: &[Edge], mut states: Vec<State>, phase: usize, rounds: u64, skip: bool) -> Option<Vec<State>> {
    let ranks = states.len();
    let mut next = states.clone();
    let mut snapshot = states.clone();
    let mut taken = 0;
    let mut k = 0;
    let mut skipped = !skip;
    while k < rounds {
        let mut post = states[ranks - 1].done;
        for ((edge, own), into) in edges.iter().zip(&states).zip(&mut next) {
            *into = edge.round(post, *own, phase);
            post = own.done;
        }
        std::mem::swap(&mut states, &mut next);
        k += 1;
        if skipped {
            continue;
        }
        // `next` holds the round before.
        if let Some(span) = period(&next, &states) {
            let periods = rounds - k;
            shift(&mut states, span, periods)?;
            (k, skipped) = (rounds, true);
        } else if k - taken == ranks as u64 {
            if let Some(span) = period(&snapshot, &states) {
                let periods = (rounds - k) / ranks as u64;
                shift(&mut states, span, periods)?;
                k += periods * ranks as u64;
                skipped = true;
            }
            snapshot.copy_from_slice(&states);
            taken = k;
        }
    }
    (states.iter().all(|state| state.done < LATEST)).then_some(states)
}

/// The span by which all states are later, if it is one.
fn period(before: &[State], after: &[State]) -> Option<u64> {
    let span = after[0].done - before[0].done;
    before.iter().zip(after).all(|(before, after)| before.later(span) == *after).then_some(span)
}

fn shift(states: &mut [State], span: u64, periods: u64) -> Option<()> {
    let by = span.checked_mul(periods).filter(|by| *by < LATEST)?;
    states.iter_mut().for_each(|state| *state = state.later(by));
    Some(())
}

/// Times a collective that is a ring in one lane without contention; `None` where it is not.
///
/// # Errors
/// What the engine would refuse too.
pub(crate) fn run(
    schedule: &Schedule,
    platform: &Platform<'_>,
    orbits: &Orbits,
    skip: bool,
) -> Result<Option<Outcome>, SimError> {
    let Some(phases) = schedule.pipeline() else { return Ok(None) };
    let ranks = orbits.count(schedule.members());
    let bytes = phases[0].elements * 4;
    let mut world = World {
        fluid: System::new(),
        resources: Resources::new(platform.cluster, orbits.clone()),
        connections: Connections::default(),
        classes: Vec::new(),
        ports: Vec::new(),
    };
    let mut edges = Vec::with_capacity(ranks as usize);
    let mut paths = Vec::with_capacity(ranks as usize);
    for rank in 0..ranks {
        let from = if rank == 0 { schedule.members() - 1 } else { rank - 1 };
        let path =
            path_between(platform, (from, rank), &mut world.resources, &mut world.connections, &mut world.fluid)?;
        let Some(edge) = world.edge(&path, bytes, &phases)? else { return Ok(None) };
        edges.push(edge);
        paths.push(path);
    }
    if world.resources.crowded(&world.classes) || world.shares_ports() {
        return Ok(None);
    }
    let mut states = vec![State { done: 0, there: 0, port: 0 }; ranks as usize];
    for (index, phase) in phases.iter().enumerate() {
        let Some(after) = advance(&edges, states, index, u64::from(phase.rounds), skip) else { return Ok(None) };
        states = after;
    }
    let rounds: u64 = phases.iter().map(|phase| u64::from(phase.rounds)).sum();
    for (path, edge) in paths.iter().zip(&edges) {
        if let Carrier::Shared(class) = path.carrier
            && edge.how != How::Memory
        {
            world.resources.take(class, (rounds * bytes) as f64);
        }
        for phase in &phases {
            world.resources.take(path.receive, f64::from(phase.rounds) * path.receive_seconds(phase.action, bytes));
        }
    }
    Ok(Some(world.outcome(schedule, &edges, &states, rounds, bytes)))
}

/// What paths are made in.
struct World {
    fluid: System,
    resources: Resources,
    connections: Connections,
    /// All classes that can be active at once.
    classes: Vec<ClassId>,
    /// Ports that take time.
    ports: Vec<u32>,
}

impl World {
    /// What one path makes of messages of `bytes`; `None` where their times are not always the same.
    fn edge(&mut self, path: &Path, bytes: u64, phases: &[lockstep_topology::Phase]) -> Result<Option<Edge>, SimError> {
        if path.terms.ramp.is_some() || path.terms.incast.is_some() {
            return Ok(None);
        }
        let wire = path.pair == Pair::Wire;
        let how = match wire {
            false => How::Memory,
            true if bytes <= path.cost.eager_bytes => How::Eager,
            true => How::Held(path.terms.rendezvous),
        };
        // A sender that is ahead announces later messages before earlier ones leave, through the same port.
        if how == How::Held(Rendezvous::Write) && path.terms.send > Time::ZERO {
            return Ok(None);
        }
        let flow = match path.carrier {
            _ if !wire => 0,
            Carrier::Alone(bytes_per_s) => Time::from_secs_f64(bytes as f64 / bytes_per_s).0,
            Carrier::Shared(class) => {
                self.classes.push(class);
                self.alone(class, bytes as f64)?
            }
        };
        let mut work = [0; 2];
        for (phase, work) in phases.iter().zip(&mut work) {
            *work = self.alone(path.receive, path.receive_seconds(phase.action, bytes))?;
        }
        self.classes.push(path.receive);
        if wire && path.terms.send > Time::ZERO {
            self.ports.push(path.terms.port);
        }
        Ok(Some(Edge { how, latency: path.latency.0, send: path.terms.send.0, flow, work }))
    }

    /// Picoseconds that `work` of a class takes alone.
    fn alone(&mut self, class: ClassId, work: f64) -> Result<u64, SimError> {
        if work == 0.0 {
            return Ok(0);
        }
        let begin = self.fluid.now();
        let activity = self.fluid.start(class, work, 0)?;
        let end = self.fluid.next_completion().unwrap_or(Time::MAX);
        self.fluid.cancel(activity);
        Ok((end - begin).0.min(LATEST))
    }

    /// Whether two pairs of ranks send through one port that takes time.
    fn shares_ports(&mut self) -> bool {
        self.ports.sort_unstable();
        self.ports.windows(2).any(|pair| pair[0] == pair[1])
    }

    fn outcome(self, schedule: &Schedule, edges: &[Edge], states: &[State], rounds: u64, bytes: u64) -> Outcome {
        let ranks = states.len();
        let members = schedule.members();
        let end = |rank: usize| {
            // A rank is through when its own last message is rid of, unless that was copied.
            let (edge, next) = (edges[(rank + 1) % ranks], states[(rank + 1) % ranks]);
            let rid = match edge.how {
                How::Memory => next.done,
                How::Held(_) => next.there,
                How::Eager => 0,
            };
            let copied = schedule.buffered_sends();
            Time(states[rank].done.max(if copied { 0 } else { rid }))
        };
        let span = |rank: usize| Span {
            rank: rank as u32,
            task: 0,
            iteration: 0,
            repetition: 0,
            ready: Time::ZERO,
            start: Time::ZERO,
            end: end(rank),
        };
        let spans: Vec<Span> = (0..ranks).map(span).collect();
        let last = spans.iter().map(|span| span.end).max().unwrap_or(Time::ZERO);
        let peers: Vec<[Peer; 1]> =
            (0..ranks as u32).map(|rank| [Peer::sent((rank + 1) % members, rounds, rounds * bytes)]).collect();
        let traffic = Traffic::of(peers.iter().map(|peers| peers.as_slice()));
        let (spans, traffic) = super::write_out(self.resources.orbits(), spans, traffic);
        Outcome { spans, totals: Totals::default(), end: last, traffic, utilisation: self.resources.utilisation(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edge() -> impl Strategy<Value = Edge> {
        let how = prop_oneof![
            Just(How::Memory),
            Just(How::Eager),
            Just(How::Held(Rendezvous::None)),
            Just(How::Held(Rendezvous::Write)),
            Just(How::Held(Rendezvous::Read)),
        ];
        (how, 0u64..30, 0u64..5, 1u64..20, [0u64..5, 0..5]).prop_map(|(how, latency, send, flow, work)| {
            let send = if how == How::Held(Rendezvous::Write) { 0 } else { send };
            Edge { how, latency, send, flow, work }
        })
    }

    proptest! {
        /// The twin works out every round.
        #[test]
        fn skipping_periods_changes_nothing(edges in prop::collection::vec(edge(), 1..12), rounds in 0u64..400) {
            let start = vec![State { done: 0, there: 0, port: 0 }; edges.len()];
            let [all, some] = [false, true].map(|skip| {
                let first = advance(&edges, start.clone(), 0, rounds, skip)?;
                advance(&edges, first, 1, rounds, skip)
            });
            prop_assert_eq!(all, some);
        }
    }
}
