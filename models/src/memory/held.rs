//! Computes which part of the declared buffers a rank holds.
//!
//! Scatters and gathers move parts between a root, which has all of them, and ranks that need memory for their own part
//! alone. So what a rank holds follows from the exchanges that it takes part in.

use std::ops::Range;

use lockstep_topology::Collective;

use crate::memory::BufferAddresses;
use crate::{Area, Buffer, Op, Program, Role};

impl Role {
    /// Whether one of its tasks reads or writes elements of a buffer that the program declares.
    pub(crate) fn names(&self, buffer: Buffer) -> bool {
        self.tasks.iter().any(|task| match &task.op {
            Op::Elementwise(of) => !of.range.is_empty() && of.formula.buffers().contains(&buffer),
            Op::Exchange(exchange) => exchange.buffer == buffer,
            Op::Copy(copies) => [copies.first().from, copies.first().to].contains(&Area::Buffer(buffer)),
            Op::Load { into, .. } => into.map(Buffer::Declared) == Some(buffer),
            Op::Samples { .. } => true,
            _ => false,
        })
    }
}

impl Program {
    /// What `rank` holds of a declared buffer: all of it, unless the buffer occurs in scatters and gathers alone. Then
    /// it is what they cover where the rank is their root, and else the rank's own part. Copies count from its first
    /// element. Of a buffer that none of its tasks names it holds nothing.
    pub fn held(&self, index: usize, rank: u32) -> Range<u64> {
        let all = 0..self.elements(Buffer::Declared(index));
        let (role, buffer) = (&self.roles[self.role_of(rank)], Buffer::Declared(index));
        if !role.names(buffer) {
            return if self.sums_in(role, buffer) { all } else { 0..0 };
        }
        let mut held: Option<Range<u64>> = None;
        for (_, exchange) in self.roles[self.role_of(rank)].exchanges() {
            if exchange.buffer != Buffer::Declared(index) {
                continue;
            }
            let (Collective::Scatter { root } | Collective::Gather { root } | Collective::GatherV { root, .. }) =
                exchange.collective
            else {
                return all;
            };
            let (group, range) = (self.group_of(exchange, rank), &exchange.range);
            let part = match group.member(rank) {
                Some(member) if member == root => range.clone(),
                member => {
                    let member = member.expect("a rank belongs to its group");
                    let part = exchange.collective.part(range.end - range.start, group.count(), member);
                    range.start + part.start..range.start + part.end
                }
            };
            held = Some(held.map_or(part.clone(), |held| held.start.min(part.start)..held.end.max(part.end)));
        }
        held.unwrap_or(all)
    }

    /// The elements of memory that `rank` needs for its part of a declared buffer, padding of exchanges included.
    pub fn held_elements(&self, places: &BufferAddresses, index: usize, rank: u32) -> u64 {
        let (held, buffer) = (self.held(index, rank), Buffer::Declared(index));
        if held.is_empty() {
            return 0;
        }
        held.end - held.start + places.of(buffer).elements() as u64 - self.elements(buffer)
    }
}
