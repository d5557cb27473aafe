//! Recursive doubling: pairs at distance 1, 2, 4 … exchange and add the whole buffer.
//!
//! The schedule that Open MPI documents for small allreduces (`coll_tuned`, `coll_base_allreduce.c`; Thakur 2005 §4.4):
//! ⌊log2 p⌋ rounds of n elements, and for p not a power of two the first 2r members, r = p − 2^⌊log2 p⌋, pair up before
//! and after: the even one hands its data to the odd one and gets the result back. Sent ranges are summed into at once,
//! so the sender must copy them, which libraries do with small messages; therefore it serves a library's row only.

use std::ops::Range;
use std::sync::Arc;

use super::super::lanes::{Lanes, Steps};
use super::super::shard::Split;
use super::super::step::{Action, Step};
use crate::symmetry::Permutations;

/// Members that double.
#[derive(Debug)]
pub(super) struct RecursiveDoubling {
    pub(super) members: u32,
}

impl Lanes for RecursiveDoubling {
    fn steps(&self, member: u32, lane: u32, split: &Split) -> Arc<dyn Steps> {
        Arc::new(Dimensions::new(member, self.members, split.extent(lane)))
    }

    /// Across ⌊log2 p⌋ dimensions, one more where a pair begins or ends it, and two where two pairs stand in opposite corners.
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

/// One lane on one member.
#[derive(Debug)]
struct Dimensions {
    member: u32,
    /// Members that hand over before and get back after: the even ones below 2·extra.
    extra: u32,
    /// ⌊log2 p⌋.
    log: u32,
    extent: (u64, u64),
}

impl Dimensions {
    /// `member` of `members` (at least one) over `extent`.
    fn new(member: u32, members: u32, extent: Range<u64>) -> Dimensions {
        let log = members.ilog2();
        Dimensions { member, extra: members - (1 << log), log, extent: (extent.start, extent.end) }
    }

    /// Whether this member is one of a pair before and after.
    fn paired(&self) -> bool {
        self.member / 2 < self.extra
    }

    /// Whether this member only hands over and gets back.
    fn waits(&self) -> bool {
        self.paired() && self.member.is_multiple_of(2)
    }

    /// The partner at distance 2^t among the members that take part.
    fn partner(&self, t: u32) -> u32 {
        let index = if self.paired() { self.member / 2 } else { self.member - self.extra };
        let other = index ^ (1 << t);
        if other < self.extra { 2 * other + 1 } else { other + self.extra }
    }
}

impl Steps for Dimensions {
    fn len(&self) -> u32 {
        if self.waits() { 2 } else { 2 * self.log + 2 * u32::from(self.paired()) }
    }

    fn step(&self, k: u32) -> Step {
        let step = |action, peer| Step::new(action, peer, self.extent.0..self.extent.1);
        if self.waits() {
            return step(if k == 0 { Action::Send } else { Action::RecvInto }, self.member + 1);
        }
        let before = u32::from(self.paired());
        if k < before {
            return step(Action::RecvSum, self.member - 1);
        }
        let k = k - before;
        match (k < 2 * self.log, k % 2) {
            (true, 0) => step(Action::Send, self.partner(k / 2)),
            (true, _) => step(Action::RecvSum, self.partner(k / 2)),
            (false, _) => step(Action::Send, self.member - 1),
        }
    }
}
