//! Recursive halving: pairs at distance p/2, p/4, … 1 exchange what the other half of their block wants summed.
//!
//! Reduce-scatter of Thakur et al. 2005 §4.1, as in MPICH: for p a power of two log2 p rounds, and n(p − 1)/p elements sent by each
//! member. For any other p the first 2r members, r = p − 2^⌊log2 p⌋, pair up: the even one hands its buffer to the odd one before,
//! and gets its part back behind. In between, an odd member acts for both, whose parts lie side by side.

use std::ops::Range;

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "recursive-halving",
    help: "pairs at distance p/2, p/4, … exchange the sums of the other half",
    serves: |collective| *collective == Collective::ReduceScatter,
    lanes: |call| Ok(Box::new(RecursiveHalving { members: call.members() })),
    ..Entry::PLAIN
};

/// Members that halve. A lane is a range of the buffer, of which messages carry what they have in common with some parts.
#[derive(Debug, Clone, Copy)]
struct RecursiveHalving {
    members: u32,
}

impl RecursiveHalving {
    /// Those that halve: a power of two.
    fn halving(&self) -> u32 {
        1 << self.members.ilog2()
    }

    /// Pairs of which one member halves.
    fn pairs(&self) -> u32 {
        self.members - self.halving()
    }

    /// The first member that the halving member `index` acts for; the end for the last index.
    fn first(&self, index: u32) -> u32 {
        index + index.min(self.pairs())
    }
}

impl Lanes for RecursiveHalving {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let halves = Halves { of: *self, member, elements: split.elements, extent: split.extent(index) };
        let rounds = 2 * self.members.ilog2();
        if halves.waits() {
            return Lane::new(2, move |k| match k {
                0 => LaneStep::new(Action::Send, member + 1, halves.extent.clone()),
                _ => LaneStep::new(Action::RecvInto, member + 1, halves.parts(member..member + 1)),
            });
        }
        let before = u32::from(halves.is_paired());
        Lane::new(rounds + 2 * before, move |k| match k.checked_sub(before) {
            None => LaneStep::new(Action::RecvSum, member - 1, halves.extent.clone()),
            Some(k) if k < rounds => halves.halve(k / 2, k % 2 == 1),
            Some(_) => LaneStep::new(Action::Send, member - 1, halves.parts(member - 1..member)),
        })
    }

    /// One more where a pair begins or ends the chain, and two where two pairs stand in opposite corners.
    fn rounds(&self) -> u32 {
        self.members.ilog2() + u32::from(self.pairs() > 0) + u32::from(2 * self.pairs() > self.halving())
    }

    /// All of a lane, or its half where there is one lane and no member hands over a buffer.
    fn largest_message(&self, split: &Split) -> u64 {
        match self.members {
            1 => 0,
            p if p.is_power_of_two() => split.longest().min(shard(split.elements, p.into(), u64::from(p / 2)).start),
            _ => split.longest(),
        }
    }

    /// One lane has all parts; of several each has those of some members.
    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        match self.members.is_power_of_two() && split.chunks <= 1 {
            true => (Permutations::Masks { unit: 1 }, self.members.into()),
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

    /// Whether it hands its buffer over and gets its part back.
    fn waits(&self) -> bool {
        self.is_paired() && self.member.is_multiple_of(2)
    }

    /// What the lane has of the parts of `members`.
    fn parts(&self, members: Range<u32>) -> Range<u64> {
        let start = |member: u32| shard(self.elements, self.of.members.into(), member.into()).start;
        let clamp = |element: u64| element.clamp(self.extent.start, self.extent.end);
        clamp(start(members.start))..clamp(start(members.end))
    }

    /// Round `t` with the partner across the middle of the block of 2^(log − t) halving members.
    fn halve(&self, t: u32, receives: bool) -> LaneStep {
        let index = if self.is_paired() { self.member / 2 } else { self.member - self.of.pairs() };
        let half = self.of.halving() >> (t + 1);
        let partner = index ^ half;
        let owner = (if receives { index } else { partner }) & !(half - 1);
        // of a pair the last one halves
        let peer = self.of.first(partner + 1) - 1;
        let action = if receives { Action::RecvSum } else { Action::Send };
        LaneStep::new(action, peer, self.parts(self.of.first(owner)..self.of.first(owner + half)))
    }
}
