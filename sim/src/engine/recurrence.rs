//! Computes the times of a ring whose messages do not contend: a recurrence over a few numbers per rank,
//! round by round.
//!
//! Where every message of a pair of ranks takes as long as the last one of its length, what rank r does in round k
//! follows from what r and r − 1 did in round k − 1, with no queue of events. The recurrence does not depend on
//! absolute time: if all of its numbers are shifted by a span, all that follows shifts by that span. So where blocks
//! are equal and the state after p rounds is the state before them, later by one span, this repeats, and the rest of a
//! phase is skipped by whole periods, exactly. Slow links, where messages wait for their receive, set a common pace
//! (p = 1); where they need not, delays travel around the ring, and the state recurs after as many rounds as there are
//! ranks.

use lockstep_topology::PipelinePhase;
use lockstep_topology::cluster::Rendezvous;

/// How messages get from the previous rank to a rank; times in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edge {
    pub(super) how: How,
    pub(super) latency: u64,
    /// The sender's time per message.
    pub(super) send: u64,
    /// The time of the bytes on links: of a block of the usual length, and of one that is an element longer.
    pub(super) flow: [u64; 2],
    /// The receiver's time, by phase, for the same two.
    pub(super) work: [[u64; 2]; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum How {
    /// In the memory of a CPU: the receiver wakes after the latency unless it was busy.
    Memory,
    /// On links, as soon as it is posted.
    Eager,
    /// On links, when its receive is waited for.
    Held(Rendezvous),
}

/// The state of a rank after the rounds so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// When its last receive was done; before the first round, when it started.
    pub(super) done: u64,
    /// When the last message to it arrived, and had left its sender's port.
    pub(super) there: u64,
    pub(super) port: u64,
}

impl State {
    fn later(self, span: u64) -> State {
        State { done: self.done + span, there: self.there + span, port: self.port + span }
    }
}

impl Edge {
    /// The most by which a round can be later than the one before; infinite beyond the range of time.
    pub(super) fn slowest_s(&self) -> f64 {
        let most = |spans: [u64; 2]| spans[0].max(spans[1]) as f64;
        let spans = [4.0 * self.latency as f64, 2.0 * self.send as f64, most(self.flow)];
        (spans.iter().sum::<f64>() + most(self.work[0]).max(most(self.work[1]))) * 1e-12
    }

    /// One round: the rank before posted at `post` a block of one of the two lengths.
    #[inline]
    fn round(&self, post: u64, own: State, phase: usize, length: usize) -> State {
        let (wait, flow) = (own.done, self.flow[length]);
        let (begin, there, port) = match self.how {
            How::Memory => {
                let begin = if post < wait { wait } else { post + self.latency };
                (begin, begin, own.port)
            }
            How::Eager => self.arrive(flow, own, own.port.max(post) + self.send),
            How::Held(Rendezvous::None) => self.arrive(flow, own, own.port.max(post.max(wait)) + self.send),
            How::Held(rendezvous) => {
                let announced = own.port.max(post) + self.send;
                let answered = post.max(wait).max(announced + self.latency) + self.send + self.latency;
                // A read is served without the sender's time; a write has none (`Engine::edge`).
                let departs = answered + self.latency;
                debug_assert!(rendezvous == Rendezvous::Read || self.send == 0);
                let there = own.there.max(departs) + flow;
                (there.max(wait), there, announced)
            }
        };
        State { done: begin + self.work[phase][length], there, port }
    }

    /// A message that leaves its port at `port`.
    #[inline]
    fn arrive(&self, flow: u64, own: State, port: u64) -> (u64, u64, u64) {
        let there = own.there.max(port + self.latency) + flow;
        (there.max(own.done), there, port)
    }
}

/// The states after the rounds of `phase`, the `index`-th of a ring of `members`, of which the first have these edges
/// and represent the others; whole periods are skipped if `skip`.
pub(super) fn advance(
    edges: &[Edge],
    mut states: Vec<State>,
    (index, phase): (usize, &PipelinePhase),
    members: u32,
    skip: bool,
) -> Vec<State> {
    let (ranks, rounds) = (states.len(), u64::from(phase.rounds));
    let mut next = states.clone();
    let mut snapshot = states.clone();
    let mut taken = 0;
    let mut k = 0;
    let mut skipped = !skip || phase.longer > 0;
    while k < rounds {
        let mut post = states[ranks - 1].done;
        let mut from = 0;
        for (to, length) in stretches(phase, k as u32, members, ranks) {
            for ((edge, own), into) in edges[from..to].iter().zip(&states[from..to]).zip(&mut next[from..to]) {
                *into = edge.round(post, *own, index, length);
                post = own.done;
            }
            from = to;
        }
        std::mem::swap(&mut states, &mut next);
        k += 1;
        if skipped {
            continue;
        }
        // `next` holds the previous round.
        if let Some(span) = period(&next, &states) {
            shift(&mut states, span, rounds - k);
            (k, skipped) = (rounds, true);
        } else if k - taken == ranks as u64 {
            if let Some(span) = period(&snapshot, &states) {
                let periods = (rounds - k) / ranks as u64;
                shift(&mut states, span, periods);
                k += periods * ranks as u64;
                skipped = true;
            }
            snapshot.copy_from_slice(&states);
            taken = k;
        }
    }
    states
}

/// Runs of ranks that receive blocks of one length in round `k`: their ends, and the length.
fn stretches(phase: &PipelinePhase, k: u32, members: u32, ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    // Rank m receives block m − back − k: block 0 arrives at this one.
    let first = ((u64::from(phase.back) + u64::from(k)) % u64::from(members)) as usize;
    let last = first + phase.longer as usize;
    let ends = match last.checked_sub(members as usize) {
        None => [(first, 0), (last, 1), (ranks, 0)],
        Some(over) => [(over, 1), (first, 0), (ranks, 1)],
    };
    // Without longer blocks the first `ranks` of the members may represent all.
    let all = [(ranks, 0), (ranks, 0), (ranks, 0)];
    if phase.longer == 0 { all } else { ends }.into_iter()
}

/// The span by which all states are later, if it is one.
fn period(before: &[State], after: &[State]) -> Option<u64> {
    let span = after[0].done - before[0].done;
    before.iter().zip(after).all(|(before, after)| before.later(span) == *after).then_some(span)
}

fn shift(states: &mut [State], span: u64, periods: u64) {
    states.iter_mut().for_each(|state| *state = state.later(span * periods));
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_topology::Action;
    use proptest::prelude::*;

    fn edge() -> impl Strategy<Value = Edge> {
        let how = prop_oneof![
            Just(How::Memory),
            Just(How::Eager),
            Just(How::Held(Rendezvous::None)),
            Just(How::Held(Rendezvous::Write)),
            Just(How::Held(Rendezvous::Read)),
        ];
        let two = |range: std::ops::Range<u64>| [range.clone(), range];
        (how, 0u64..30, 0u64..5, two(1..20), [two(0..5), two(0..5)]).prop_map(|(how, latency, send, flow, work)| {
            let send = if how == How::Held(Rendezvous::Write) { 0 } else { send };
            Edge { how, latency, send, flow, work }
        })
    }

    fn start(ranks: usize) -> Vec<State> {
        vec![State { done: 0, there: 0, port: 0 }; ranks]
    }

    proptest! {
        /// The reference computes every round.
        #[test]
        fn skipping_periods_changes_nothing(edges in prop::collection::vec(edge(), 2..12), rounds in 0u32..400) {
            let ranks = edges.len();
            let phase = PipelinePhase { rounds, action: Action::RecvSum, elements: 1, longer: 0, back: 2 };
            let [all, some] = [false, true].map(|skip| {
                let first = advance(&edges, start(ranks), (0, &phase), ranks as u32, skip);
                advance(&edges, first, (1, &phase), ranks as u32, skip)
            });
            prop_assert_eq!(all, some);
        }

        /// The reference asks each rank for its block.
        #[test]
        fn stretches_are_the_blocks(members in 2u32..12, longer in 0u32..11, back in 1u32..3, k in 0u32..20) {
            let phase = PipelinePhase { rounds: 20, action: Action::RecvSum, elements: 7, longer: longer % members, back };
            let mut lengths = Vec::new();
            for (to, length) in stretches(&phase, k % (members - 1), members, members as usize) {
                lengths.resize(to.max(lengths.len()), 7 + length as u64);
            }
            let asked: Vec<u64> = (0..members).map(|member| phase.taken_in(member, k % (members - 1), members)).collect();
            prop_assert_eq!(lengths, asked);
        }

        /// No round is later than the one before by more than the slowest edge allows.
        #[test]
        fn no_round_takes_longer_than_the_slowest(edges in prop::collection::vec(edge(), 2..12), rounds in 0u32..400) {
            let phase = PipelinePhase { rounds, action: Action::RecvSum, elements: 1, longer: 0, back: 2 };
            let ends = advance(&edges, start(edges.len()), (0, &phase), edges.len() as u32, false);
            let most = edges.iter().map(Edge::slowest_s).fold(0.0, f64::max) * 1e12 * f64::from(rounds);
            prop_assert!(ends.iter().all(|state| state.done as f64 <= most + 0.5));
        }
    }
}
