//! Doubles recursively: pairs at distance 1, 2, 4 … exchange and add whole buffers.
//!
//! The schedule that Open MPI documents for small allreduces (`coll_tuned`, `coll_base_allreduce.c`; Thakur 2005
//! §4.4): ⌊log2 p⌋ rounds of n elements, and for p not a power of two the first 2r members, r = p − 2^⌊log2 p⌋, pair
//! up before and after: the even one sends its data to the odd one and gets the result back. Sent ranges are summed
//! into at once, so the sender must copy them, which libraries do with small messages; therefore it is only used as a
//! library's lanes.

use super::prelude::*;

/// Members that double.
#[derive(Debug)]
pub(super) struct RecursiveDoubling {
    pub(super) members: u32,
}

impl Lanes for RecursiveDoubling {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (log, extent) = (self.members.ilog2(), split.extent(index));
        let extra = self.members - (1 << log);
        let step = move |action, peer| LaneStep::new(action, peer, extent.clone());
        let paired = member / 2 < extra;
        if paired && member.is_multiple_of(2) {
            return Lane::new(2, move |k| step(if k == 0 { Action::Send } else { Action::RecvInto }, member + 1));
        }
        let index = if paired { member / 2 } else { member - extra };
        // at distance 2^t among the members that take part
        let partner = move |t: u32| {
            let other = index ^ (1 << t);
            if other < extra { 2 * other + 1 } else { other + extra }
        };
        let before = u32::from(paired);
        Lane::new(2 * log + 2 * before, move |k| match k.checked_sub(before) {
            None => step(Action::RecvSum, member - 1),
            Some(k) if k >= 2 * log => step(Action::Send, member - 1),
            Some(k) => step(if k.is_multiple_of(2) { Action::Send } else { Action::RecvSum }, partner(k / 2)),
        })
    }

    /// Across ⌊log2 p⌋ dimensions, one more where a pair begins or ends it, and two where two pairs are in
    /// opposite corners.
    fn rounds(&self) -> u32 {
        let corners = 1 << self.members.ilog2();
        let extra = self.members - corners;
        self.members.ilog2() + u32::from(extra > 0) + u32::from(2 * extra > corners)
    }

    fn largest_message(&self, split: &Split) -> u64 {
        if self.members == 1 { 0 } else { split.longest() }
    }

    fn symmetry(&self, _: &Split) -> (Permutations, u64) {
        let masks = self.members.is_power_of_two();
        (if masks { Permutations::Masks { unit: 1 } } else { Permutations::Identity }, 1)
    }
}
