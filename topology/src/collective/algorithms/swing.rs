//! Swing: halves and doubles like halving-doubling, but with partners that stay close on a ring or torus: at distance 1,
//! −1, 3, −5, 11 … to alternating sides.
//!
//! De Sensi et al. 2024 (NSDI), the bandwidth-optimal variant. In round t an even member m exchanges with m + ρ(t), an
//! odd one with m − ρ(t), modulo p, where ρ(t) = Σ_{i ≤ t} (−2)^i = (1 − (−2)^(t+1))/3. For p a power of two: 2·log2 p
//! rounds and 2n(p − 1)/p elements sent per member, on a ring over a third fewer hops than halving-doubling. For any
//! other p the first 2r members, r = p − 2^⌊log2 p⌋, pair up: the even one sends its buffer to the odd one before, and
//! receives the result after.
//!
//! After t rounds those members hold the same range that the rounds from t on connect: an even member m, m + 2^(t+1)·i,
//! and m + ρ(t) + 2^(t+1)·i for every i. The lowest t bits of m/2, or of (m − ρ(log2 p − 1))/2 of an odd m, name this
//! set; reversed they are the position of its range, so that every message is one range. (The paper's blocks are in
//! the order of the members, which makes ranges of single blocks.)

use std::ops::Range;

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "swing",
    help: "pairs at distance 1, 3, 5, 11 … to alternating sides of a ring exchange halves of halves",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| Ok(Box::new(Swing { members: call.members() })),
    ..Entry::PLAIN
};

/// Members of which 2^⌊log2 p⌋ swing.
#[derive(Debug, Clone, Copy)]
struct Swing {
    members: u32,
}

impl Swing {
    /// Rounds in one direction.
    fn log(&self) -> u32 {
        self.members.ilog2()
    }

    /// Pairs of which the odd member swings for both.
    fn pairs(&self) -> u32 {
        self.members - (1 << self.log())
    }

    /// The member that is number `index` of those that swing.
    fn member(&self, index: u32) -> u32 {
        if index < self.pairs() { 2 * index + 1 } else { index + self.pairs() }
    }

    /// The partner of number `index` in round `t`.
    fn partner(&self, index: u32, t: u32) -> u32 {
        self.moved(index, if index.is_multiple_of(2) { distance(t) } else { distance(t).wrapping_neg() })
    }

    /// The bits that name the range of number `index`, the first round's lowest.
    fn bits(&self, index: u32) -> u32 {
        match (self.log().checked_sub(1), index % 2) {
            (None, _) | (_, 0) => index / 2,
            (Some(last), _) => (self.moved(index, distance(last).wrapping_neg()) / 2) | 1 << last,
        }
    }

    /// Number `index` moved around the ring.
    fn moved(&self, index: u32, by: u32) -> u32 {
        index.wrapping_add(by) & ((1 << self.log()) - 1)
    }

    /// The part of `extent` that number `index` holds after `level` rounds, of which there is at least one.
    fn held(&self, index: u32, level: u32, extent: &Range<u64>) -> Range<u64> {
        let position = u128::from(self.bits(index).reverse_bits() >> (32 - level));
        let length = u128::from(extent.end - extent.start);
        let boundary = |position: u128| extent.start + ((length * position) >> level) as u64;
        boundary(position)..boundary(position + 1)
    }
}

/// ρ(t), modulo 2^32.
fn distance(t: u32) -> u32 {
    ((1 - (-2i64).pow(t + 1)) / 3) as u32
}

impl Lanes for Swing {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (of, extent, log) = (*self, split.extent(index), self.log());
        let is_paired = member < 2 * of.pairs();
        if is_paired && member.is_multiple_of(2) {
            return Lane::new(2, move |k| {
                LaneStep::new(if k == 0 { Action::Send } else { Action::RecvInto }, member + 1, extent.clone())
            });
        }
        let (before, own) = (u32::from(is_paired), if is_paired { member / 2 } else { member - of.pairs() });
        Lane::new(4 * log + 2 * before, move |k| match k.checked_sub(before) {
            None => LaneStep::new(Action::RecvSum, member - 1, extent.clone()),
            Some(k) if k >= 4 * log => LaneStep::new(Action::Send, member - 1, extent.clone()),
            Some(k) => {
                let (round, receives) = (k / 2, k % 2 == 1);
                let halves = round < log;
                let t = if halves { round } else { 2 * log - 1 - round };
                let partner = of.partner(own, t);
                // On the way there the receiver's half, on the way back the sender's.
                let holder = if halves == receives { own } else { partner };
                let action = match (receives, halves) {
                    (false, _) => Action::Send,
                    (true, true) => Action::RecvSum,
                    (true, false) => Action::RecvInto,
                };
                LaneStep::new(action, of.member(partner), of.held(holder, t + 1, &extent))
            }
        })
    }

    /// Two more where pairs begin and end the chain.
    fn rounds(&self) -> u32 {
        2 * (self.log() + u32::from(self.pairs() > 0))
    }

    /// Half of a lane, or all of it where a pair hands it over.
    fn largest_message(&self, split: &Split) -> u64 {
        match self.members {
            1 => 0,
            p if p.is_power_of_two() => split.longest().div_ceil(2),
            _ => split.longest(),
        }
    }

    /// Even members are alike, and odd ones.
    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        if self.members > 2 && self.members.is_power_of_two() {
            (Permutations::Rotations { unit: 2 }, split.chunks.max(1).saturating_mul(self.members.into()))
        } else {
            (Permutations::Identity, 1)
        }
    }
}
