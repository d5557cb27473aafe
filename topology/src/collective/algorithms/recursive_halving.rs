//! Halves recursively: pairs at distance p/2, p/4, … 1 exchange the half of their block that the partner sums, and on
//! the way back what they have.
//!
//! Reduce-scatter of Thakur et al. 2005 §4.1, as in MPICH, and its reverse as the allgather: for p a power of two log2
//! p rounds each, and n(p − 1)/p elements sent by each member. For any other p the first 2r members, r = p − 2^⌊log2
//! p⌋, pair up: the even one sends what it has to the odd one before, and gets its result after. In between, an odd
//! member acts for both, whose parts are adjacent.

use std::ops::Range;

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "recursive-halving",
    help: "pairs at distance p/2, p/4, … exchange the sums of the other half, and what they have on the way back",
    serves: |collective| {
        matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather)
    },
    lanes: |call| {
        Ok(Box::new(RecursiveHalving {
            members: call.members(),
            reduce: *call.collective != Collective::AllGather,
            gather: *call.collective != Collective::ReduceScatter,
        }))
    },
    ..Entry::PLAIN
};

/// Members that halve. A lane is a range of the buffer. Lanes of an allreduce have a part for each member; of the
/// others, messages carry the intersection of the lane with some members' parts of the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecursiveHalving {
    pub(super) members: u32,
    /// Whether parts are summed (reduce-scatter).
    pub(super) reduce: bool,
    /// Whether parts are broadcast (allgather).
    pub(super) gather: bool,
}

impl RecursiveHalving {
    /// The number of members that halve: a power of two.
    fn halving(&self) -> u32 {
        1 << self.members.ilog2()
    }

    /// Pairs of which one member halves.
    fn pairs(&self) -> u32 {
        self.members - self.halving()
    }

    fn is_allreduce(&self) -> bool {
        self.reduce && self.gather
    }

    /// The first member that the halving member `index` acts for; the end for the last index.
    fn first(&self, index: u32) -> u32 {
        index + index.min(self.pairs())
    }
}

impl Lanes for RecursiveHalving {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let halves = Halves { of: *self, member, elements: split.elements, extent: split.extent(index) };
        let RecursiveHalving { reduce, gather, .. } = *self;
        let log = self.members.ilog2();
        // For the even member of a pair.
        let handed = |all: bool, member| if all { halves.extent.clone() } else { halves.parts(member..member + 1) };
        if halves.waits() {
            let (given, wanted) = (handed(reduce, member), handed(gather, member));
            return Lane::new(2, move |k| match k {
                0 => LaneStep::new(Action::Send, member + 1, given.clone()),
                _ => LaneStep::new(Action::RecvInto, member + 1, wanted.clone()),
            });
        }
        let before = u32::from(halves.is_paired());
        let other = member.saturating_sub(1);
        let (taken, given) = (handed(reduce, other), handed(gather, other));
        let (down, up) = (2 * log * u32::from(reduce), 2 * log * u32::from(gather));
        Lane::new(down + up + 2 * before, move |k| match k.checked_sub(before) {
            None => LaneStep::new(if reduce { Action::RecvSum } else { Action::RecvInto }, other, taken.clone()),
            Some(k) if k < down => halves.step(k / 2, k % 2 == 1, Action::RecvSum),
            Some(k) if k < down + up => halves.step(log - 1 - (k - down) / 2, k % 2 == 1, Action::RecvInto),
            Some(_) => LaneStep::new(Action::Send, other, given.clone()),
        })
    }

    /// Each direction has one more round if there are pairs. A reduce-scatter or allgather alone has a second if both
    /// ends of a longest path are paired; an allreduce ends where it began.
    fn rounds(&self) -> u32 {
        let (log, pairs) = (self.members.ilog2(), self.pairs());
        if self.is_allreduce() {
            return 2 * (log + u32::from(pairs > 0));
        }
        log + u32::from(pairs > 0) + u32::from(2 * pairs > self.halving())
    }

    /// All of a lane, or its half where there is one lane and no member sends its whole buffer.
    fn largest_message(&self, split: &Split) -> u64 {
        match self.members {
            1 => 0,
            p if p.is_power_of_two() && self.is_allreduce() => shard(split.longest(), p.into(), u64::from(p / 2)).start,
            p if p.is_power_of_two() => split.longest().min(shard(split.elements, p.into(), u64::from(p / 2)).start),
            _ => split.longest(),
        }
    }

    /// One lane has all parts; of several each has those of some members, except for an allreduce.
    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let chunks = split.chunks.max(1);
        match self.members.is_power_of_two() && (chunks == 1 || self.is_allreduce()) {
            true => (Permutations::Masks { unit: 1 }, chunks.saturating_mul(self.members.into())),
            false => (Permutations::Identity, 1),
        }
    }
}

/// One lane on one member.
struct Halves {
    of: RecursiveHalving,
    member: u32,
    elements: u64,
    extent: Range<u64>,
}

impl Halves {
    /// Whether this member is one of a pair.
    fn is_paired(&self) -> bool {
        self.member < 2 * self.of.pairs()
    }

    /// Whether it sends its whole buffer and gets its part back.
    fn waits(&self) -> bool {
        self.is_paired() && self.member.is_multiple_of(2)
    }

    /// The elements of the lane in the parts of `members`.
    fn parts(&self, members: Range<u32>) -> Range<u64> {
        let of = |elements, member: u32| shard(elements, self.of.members.into(), member.into()).start;
        if self.of.is_allreduce() {
            let (first, length) = (self.extent.start, self.extent.end - self.extent.start);
            return first + of(length, members.start)..first + of(length, members.end);
        }
        let start = |member: u32| of(self.elements, member);
        let clamp = |element: u64| element.clamp(self.extent.start, self.extent.end);
        clamp(start(members.start))..clamp(start(members.end))
    }

    /// Round `t` with the partner across the middle of the block of 2^(log − t) halving members: on the way down half
    /// of the block for its members, on the way up what each has.
    fn step(&self, t: u32, receives: bool, action: Action) -> LaneStep {
        let index = if self.is_paired() { self.member / 2 } else { self.member - self.of.pairs() };
        let half = self.of.halving() >> (t + 1);
        let partner = index ^ half;
        let theirs = receives == (action == Action::RecvInto);
        let owner = (if theirs { partner } else { index }) & !(half - 1);
        // The last member of a pair halves.
        let peer = self.of.first(partner + 1) - 1;
        let action = if receives { action } else { Action::Send };
        LaneStep::new(action, peer, self.parts(self.of.first(owner)..self.of.first(owner + half)))
    }
}
