//! Collects on rank 0 what evaluating or saving a model needs: parts of it, weights of learners, running statistics,
//! reference models.

use std::ops::Range;

use lockstep_topology::{Algorithm, Collective};

use super::{Periodic, Work};
use crate::{After, Axis, AxisSet, Buffer, Exchange, Members, Op, Program, Stream, Task};

/// Ranges of the whole model's parameters, each with where it begins among a rank's own values.
pub type Pieces = Vec<(Range<u64>, u64)>;

impl Program {
    /// The parameters of the whole model whose value `rank` sends to rank 0, and those whose momentum it sends.
    pub fn collected_pieces(&self, rank: u32) -> [Pieces; 2] {
        let role = &self.roles[self.role_of(rank)];
        let own = self.own_parameters(rank);
        let in_place = |ranges: Vec<Range<u64>>| pieces_within(&own, &ranges);
        // Ranks that shard the optimizer's state have the same parameters.
        let first = self.state_axes().iter().all(|axis| self.mesh.coordinate(axis, rank) == 0);
        let first = first || self.shares_parameters();
        let parameters = if first { self.kept_parameters(role, rank) } else { Vec::new() };
        [in_place(parameters), in_place(self.updated(role, rank))]
    }

    /// The axes along which the optimizer's state is sharded.
    fn state_axes(&self) -> AxisSet {
        let updates = self.roles.iter().flat_map(|role| &role.tasks).filter_map(|task| task.op.update());
        updates.map(|of| of.shared).fold(AxisSet::default(), AxisSet::or)
    }

    /// The ranks that together have the whole model and the optimizer's state; rank 0 alone where it has all.
    pub fn holders(&self) -> Members {
        let split = self.sharding.as_ref().filter(|sharding| sharding.splits_weights());
        let split = split.map_or(AxisSet::default(), |sharding| AxisSet::of(&[sharding.axis]));
        self.mesh.group_of(split.or(self.state_axes()).or(AxisSet::of(&[Axis::Pipeline])), 0)
    }

    /// Whether rank 0 must collect the model because it does not have all of it.
    pub fn is_in_parts(&self) -> bool {
        self.sharding.is_some() || self.holders().count() > 1
    }
}

/// The parts of `pieces` that are in these ranges of a rank's own values.
pub fn pieces_within(pieces: &[(Range<u64>, u64)], ranges: &[Range<u64>]) -> Pieces {
    let cut = |(all, own): &(Range<u64>, u64), range: &Range<u64>| {
        let (start, end) = (range.start.max(*own), range.end.min(own + all.end - all.start));
        (start < end).then(|| (all.start + start - own..all.start + end - own, start))
    };
    pieces.iter().flat_map(|piece| ranges.iter().filter_map(|range| cut(piece, range))).collect()
}

impl Work<'_> {
    /// Rank 0 gets the parts of the model that it does not have.
    pub(super) fn collect_model(&mut self) {
        let holders = self.of.holders();
        let count = |pieces: &Pieces| pieces.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
        let count = |rank: u32| match rank {
            0 => 0,
            rank if holders.contains(rank) => self.of.collected_pieces(rank).iter().map(count).sum(),
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
