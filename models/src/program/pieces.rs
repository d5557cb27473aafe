//! Lists the pieces of the whole model that ranks have, and those that rank 0 collects.

use std::ops::Range;

use crate::{Axis, AxisSet, Members, Program};

/// Ranges of the whole model's parameters, each with where it begins among a rank's own values.
pub type Pieces = Vec<(Range<u64>, u64)>;

impl Program {
    /// The parameters of the whole model whose value `rank` sends to rank 0, and those
    /// whose optimizer states it sends, the same of each state.
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
