//! Collects on rank 0 what evaluating or saving a model needs: parts of it, weights of learners, running statistics,
//! reference models.

use lockstep_topology::{Algorithm, Collective};

use super::{Periodic, Work};
use crate::{After, Buffer, Exchange, Op, Pieces, Stream, Task};

impl Work<'_> {
    /// Rank 0 gets the parts of the model that it does not have, for this kind of work.
    pub(super) fn collect_model(&mut self, kind: Periodic) {
        let states = if kind.collects_states() { self.of.rule.states().len() as u64 } else { 0 };
        let holders = self.of.holders();
        let count = |pieces: &Pieces| pieces.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
        let count = |rank: u32| match rank {
            0 => 0,
            rank if holders.contains(rank) => {
                let [parameters, state] = self.of.collected_pieces(rank).map(|pieces| count(&pieces));
                parameters + states * state
            }
            _ => 0,
        };
        let counts: Vec<u64> = (0..self.of.workers()).map(count).collect();
        self.collect("collect model", Periodic::MODEL, counts);
    }

    /// Rank 0 gets `each` elements of every worker.
    pub(super) fn collect_equal(&mut self, name: &str, buffer: Buffer, each: u64) {
        self.collect(name, buffer, vec![each; self.of.workers() as usize]);
    }

    /// Rank 0 gets the reference models of all devices but its own.
    pub(super) fn collect_references(&mut self) {
        let elements = self.of.whole_model().parameter_elements();
        let count = |rank: u32| if rank > 0 && self.of.sends_reference(rank) { elements } else { 0 };
        self.collect("collect reference models", Periodic::REFERENCES, (0..self.of.workers()).map(count).collect());
    }

    /// Rank 0 gets `counts` elements of the workers, by rank; no task where the others send nothing.
    fn collect(&mut self, name: &str, buffer: Buffer, counts: Vec<u64>) {
        let elements = counts.iter().sum();
        let Buffer::Declared(index) = buffer else { unreachable!("periodic work declares its buffers") };
        self.buffers[index] = elements;
        if counts[1..].iter().all(|count| *count == 0) {
            return;
        }
        let alike = counts.iter().all(|count| *count == counts[0]);
        let collective =
            if alike { Collective::Gather { root: 0 } } else { Collective::GatherV { root: 0, counts: counts.into() } };
        let exchange = Exchange::new(collective, Algorithm::direct(), self.mesh.axes(), buffer, 0..elements);
        for tasks in [&mut self.first, &mut self.others] {
            let after = tasks.len().checked_sub(1).map(|task| After { task, lag: 0 }).into_iter().collect();
            let (name, op) = (name.to_owned(), Op::Exchange(exchange.clone()));
            tasks.push(Task { name, op, stream: Stream::Exchange, after });
        }
    }
}
