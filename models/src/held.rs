//! Computes which part of the declared buffers a rank holds.
//!
//! Scatters and gathers move parts between a root, which has all of them, and ranks that need memory for their own part
//! alone. So what a rank holds follows from the exchanges that it takes part in.

use std::ops::Range;

use lockstep_topology::Collective;

use crate::memory::BufferPlaces;
use crate::{Buffer, Exchange, Program, Role};

impl Program {
    /// What `rank` holds of a declared buffer: all of it, unless the buffer occurs in scatters and gathers alone. Then
    /// it is what they cover where the rank is their root, and else the rank's own part. Copies count from its first
    /// element. Of a buffer that pipeline stages send it holds nothing, unless it sends or receives it.
    pub fn held(&self, index: usize, rank: u32) -> Range<u64> {
        let all = 0..self.elements(Buffer::Declared(index));
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
        let sends = |exchange: &Exchange| exchange.buffer == Buffer::Declared(index) && exchange.between.is_some();
        let others = || self.roles.iter().flat_map(Role::exchanges).any(|(_, exchange)| sends(exchange));
        held.unwrap_or_else(|| if others() { 0..0 } else { all })
    }

    /// The elements of memory that `rank` needs for its part of a declared buffer, padding of exchanges included.
    pub fn held_elements(&self, places: &BufferPlaces, index: usize, rank: u32) -> u64 {
        let (held, buffer) = (self.held(index, rank), Buffer::Declared(index));
        held.end - held.start + places.of(buffer).elements() as u64 - self.elements(buffer)
    }
}
