//! Runs parallel aggregated trees: a binomial tree for every part, all at once, the farthest members first.
//!
//! NCCL's PAT (2.23 and later, for one GPU a node): an allgather in ⌈log2 p⌉ rounds as Bruck's (1997), with the
//! distances in reverse order, so that few parts go far and many go near. In the round of distance d member m sends to
//! m + d what it has of m, m − 2d, m − 4d, … A reduce-scatter is the same backwards, from near to far. A member sends
//! each of p − 1 parts once: n(p − 1)/p elements. Parts of a round are separate messages here, since a message is a
//! range of the buffer; NCCL packs them.

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "pat",
    help: "a binomial tree for each part, all at once, in as many rounds as one has",
    serves: |collective| matches!(collective, Collective::ReduceScatter | Collective::AllGather),
    lanes: |call| Ok(Box::new(Pat { members: call.members(), reduce: *call.collective == Collective::ReduceScatter })),
    ..Entry::PLAIN
};

/// A tree for each member's part.
#[derive(Debug)]
struct Pat {
    members: u32,
    /// Whether parts are summed on the way to their owners; else they are broadcast from them.
    reduce: bool,
}

/// Parts that a member sends in the round of this distance: the number of its even multiples that stay below p with it.
fn parts(members: u32, distance: u32) -> u32 {
    (members - distance).div_ceil(2 * distance)
}

impl Lanes for Pat {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (&Pat { members, reduce }, split, rounds) = (self, *split, self.rounds());
        let own = move |owner: u32| {
            piece(shard(split.elements, members.into(), owner.into()), split.groups * split.chunks, index)
        };
        let step = move |mut k: u32| {
            let mut round = 0;
            let (distance, count) = loop {
                let distance = 1 << if reduce { round } else { rounds - 1 - round };
                let count = parts(members, distance);
                if k < 2 * count {
                    break (distance, count);
                }
                (k, round) = (k - 2 * count, round + 1);
            };
            // In u64, since p + p may overflow.
            let before = |from: u32, by: u64| {
                let p = u64::from(members);
                ((u64::from(from) + p - by % p) % p) as u32
            };
            let (ahead, behind) = (before(member, u64::from(members - distance)), before(member, distance.into()));
            let (sends, way) = (k < count, 2 * u64::from(distance) * u64::from(k % count));
            // An allgather's messages backwards are a reduce-scatter's.
            let here = before(member, way);
            let there = before(behind, way);
            match (reduce, sends) {
                (false, true) => LaneStep::new(Action::Send, ahead, own(here)),
                (false, false) => LaneStep::new(Action::RecvInto, behind, own(there)),
                (true, true) => LaneStep::new(Action::Send, behind, own(there)),
                (true, false) => LaneStep::new(Action::RecvSum, ahead, own(here)),
            }
        };
        Lane::new(2 * (members - 1), step)
    }

    fn rounds(&self) -> u32 {
        self.members.next_power_of_two().ilog2()
    }

    fn largest_message(&self, split: &Split) -> u64 {
        let part = split.elements.div_ceil(self.members.into()).div_ceil(split.groups * split.chunks);
        if self.members == 1 { 0 } else { part }
    }

    fn symmetry(&self, _: &Split) -> (Permutations, u64) {
        (Permutations::Rotations { unit: 1 }, self.members.into())
    }
}
