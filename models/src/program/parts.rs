//! Computes the parts of a range that is sharded over ranks: a rank's own, and the one that a group exchanges.

use std::ops::Range;

use lockstep_topology::Collective;

use crate::program::merged;
use crate::{AxisSet, Buffer, Exchange, Members, Op, Program, Role, Squares, Task, pieces_within};

impl Program {
    /// The elements of `range` that are `rank`'s own where it is sharded along `axes`; all of them without axes. Where
    /// their exchanges are padded, the last ranks have fewer than others, or none.
    pub fn own_part(&self, range: &Range<u64>, axes: AxisSet, rank: u32) -> Range<u64> {
        if axes.is_empty() {
            return range.clone();
        }
        let mut exchanges = self.roles.iter().flat_map(Role::exchanges);
        let padded = exchanges.any(|(_, of)| of.padded && of.axes == axes && of.range == *range);
        let part = self.equal_part(range, axes, rank, padded);
        part.start.min(range.end)..part.end.min(range.end)
    }

    /// What `rank` of a role has of a declared buffer: its parts where formulas shard the buffer, as ranges in
    /// ascending order that do not touch; all where a task names the buffer, else nothing.
    pub fn kept_of(&self, role: &Role, rank: u32, buffer: Buffer) -> Vec<Range<u64>> {
        let shares = |task: &Task| match &task.op {
            Op::Elementwise(of) if of.formula.buffers().contains(&buffer) && !of.shared.is_empty() => {
                Some(self.own_part(&of.range, of.shared, rank))
            }
            _ => None,
        };
        let (parts, all) = (role.tasks.iter().filter_map(shares).collect::<Vec<_>>(), 0..self.elements(buffer));
        match parts.is_empty() {
            true if role.names(buffer) || self.sums_in(role, buffer) => vec![all],
            _ => merged(parts),
        }
    }

    /// The elements of a range whose squares `rank` counts, in ascending order: its part where the range is sharded; of
    /// split layers its own rows without padding; what ranks have in common on the first of those that add their sums.
    pub fn counted(&self, of: &Squares, rank: u32) -> Vec<Range<u64>> {
        let own = self.own_part(&of.range, of.shared, rank);
        let Some(sharding) = &self.sharding else { return vec![own] };
        let within = |ranges: &[Range<u64>]| -> Vec<Range<u64>> {
            let pieces = pieces_within(&self.own_parameters(rank), ranges);
            merged(pieces.into_iter().map(|(range, start)| start..start + range.end - range.start).collect())
        };
        let mut counted = within(&[own]);
        if of.axes.contains(sharding.axis) && self.mesh.coordinate(sharding.axis, rank) > 0 {
            for common in self.common_parameters(&self.roles[self.role_of(rank)]) {
                let cut = |range: Range<u64>| {
                    let before = range.start..range.end.min(common.start);
                    [before, range.start.max(common.end)..range.end].into_iter().filter(|part| part.start < part.end)
                };
                counted = counted.into_iter().flat_map(cut).collect();
            }
        }
        counted
    }

    /// The part of `range` of a rank among those along `axes`; of the range rounded up to equal parts where
    /// they are padded.
    fn equal_part(&self, range: &Range<u64>, axes: AxisSet, rank: u32, padded: bool) -> Range<u64> {
        let members = self.mesh.group_of(axes, rank);
        let member = members.member(rank).expect("a rank belongs to its group");
        let elements = range.end - range.start;
        let rounded = if padded { elements.next_multiple_of(members.count().into()) } else { elements };
        let part = Collective::ReduceScatter.part(rounded, members.count(), member);
        range.start + part.start..range.start + part.end
    }

    /// The number of elements that a group of these members exchanges, before it is rounded up.
    pub fn elements_of(&self, exchange: &Exchange, members: &Members) -> u64 {
        let part = self.part_of(exchange, members);
        part.end - part.start
    }

    /// The elements that a group of these members exchanges: all of the exchange's range, or the members' part of it.
    /// Parts of a padded exchange are equal, and the last ones extend beyond the range.
    pub fn part_of(&self, exchange: &Exchange, members: &Members) -> Range<u64> {
        if exchange.shared.is_empty() {
            return exchange.range.clone();
        }
        self.equal_part(&exchange.range, exchange.shared, members.first(), exchange.padded)
    }
}
