//! Halves and doubles with binary blocks: pairs at distance 1, 2, 4 … exchange halves of halves, then reverse.
//!
//! Goyal 2017 §4.1; Rabenseifner 2004; Thakur 2005. For p a power of two: 2·log2 p rounds and 2n(p − 1)/p elements sent
//! per member. Any other p is split into blocks, one for each bit of p, the largest first. After each block has halved,
//! a block sends its sums to the next larger one, the smallest first; before doubling, the results come back the same
//! way. These two extra steps add no round to the longest chain (a smaller block is done earlier and starts later), but
//! they are uneven: a member of a block of 2^b sends 2^(c−b) messages to the block of 2^c above it.
//!
//! At level t a member holds 1/2^t of the elements, at the position that its lowest t bits, reversed, name. Boundaries
//! are ⌊n·position/2^t⌋, so that levels nest for every n and blocks of different sizes agree.

use std::ops::Range;

use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "halving-doubling",
    help: "pairs at distance 1, 2, 4 … exchange halves; binary blocks for any number of members",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| Ok(Box::new(HalvingDoubling { members: call.members() })),
    ..Entry::PLAIN
};

/// Binary blocks of members.
#[derive(Debug)]
pub(super) struct HalvingDoubling {
    pub(super) members: u32,
}

impl Lanes for HalvingDoubling {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let halves = Halves::new(member, self.members, split.extent(index));
        Lane::new(halves.len(), move |k| halves.step(k))
    }

    fn rounds(&self) -> u32 {
        2 * self.members.ilog2()
    }

    fn largest_message(&self, split: &Split) -> u64 {
        if self.members == 1 { 0 } else { split.longest().div_ceil(2) }
    }

    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        if self.members.is_power_of_two() {
            (Permutations::Masks { unit: 1 }, split.chunks.max(1).saturating_mul(self.members.into()))
        } else {
            (Permutations::Identity, 1)
        }
    }
}

/// A block of 2^`log` members from member `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first: u32,
    log: u32,
}

impl Block {
    /// The block of members for bit `log` of `members`: larger bits come first.
    fn of_bit(members: u32, log: u32) -> Block {
        Block { first: (((u64::from(members) >> log) >> 1) << 1 << log) as u32, log }
    }
}

/// One lane of halving-doubling on one member.
#[derive(Debug)]
struct Halves {
    start: u64,
    length: u64,
    block: Block,
    /// The next smaller block, which sends its sums.
    smaller: Option<Block>,
    /// The next larger block, to which our sums go.
    larger: Option<Block>,
    /// This member's index in its block.
    local: u32,
}

impl Halves {
    /// `member` of `members` (at least one) over `extent`.
    fn new(member: u32, members: u32, extent: Range<u64>) -> Halves {
        // the member's block is that of the highest bit where `members` has a one and `member` a zero
        let log = (members & !member).ilog2();
        let below = members & ((1 << log) - 1);
        let above = (members >> log) & !1;
        let block = Block::of_bit(members, log);
        Halves {
            start: extent.start,
            length: extent.end - extent.start,
            block,
            smaller: below.checked_ilog2().map(|log| Block::of_bit(members, log)),
            larger: (above != 0).then(|| Block::of_bit(members, log + above.trailing_zeros())),
            local: member - block.first,
        }
    }

    /// The range of the member with index `local` at `level`.
    fn held(&self, local: u32, level: u32) -> Range<u64> {
        let position = if level == 0 { 0 } else { u128::from(local.reverse_bits() >> (32 - level)) };
        let boundary = |position: u128| self.start + ((u128::from(self.length) * position) >> level) as u64;
        let mask = (1u128 << level) - 1;
        boundary(position & mask)..boundary((position & mask) + 1)
    }

    /// Messages to (and from) the next larger block.
    fn fan(&self) -> u32 {
        self.larger.map_or(0, |larger| 1 << (larger.log - self.block.log))
    }

    /// The `index`-th member of the next larger block that holds a piece of ours, and the piece.
    fn piece(&self, index: u32) -> (u32, Range<u64>) {
        let larger = self.larger.unwrap_or(self.block);
        let local = self.local + (index << self.block.log);
        (larger.first + local, self.held(local, larger.log))
    }

    /// The exchange with the partner at distance 2^t.
    fn exchange(&self, t: u32, receives: bool, action: Action, theirs: bool) -> LaneStep {
        let partner = self.local ^ (1 << t);
        let holder = if theirs { partner } else { self.local };
        let action = if receives { action } else { Action::Send };
        LaneStep::new(action, self.block.first + partner, self.held(holder, t + 1))
    }

    /// The message to or from the next smaller block.
    fn with_smaller(&self, action: Action) -> LaneStep {
        let smaller = self.smaller.unwrap_or(self.block);
        let peer = smaller.first + (self.local & ((1 << smaller.log) - 1));
        LaneStep::new(action, peer, self.held(self.local, self.block.log))
    }

    /// Number of steps.
    fn len(&self) -> u32 {
        4 * self.block.log + 2 * self.fan() + 2 * u32::from(self.smaller.is_some())
    }

    /// Step `k`.
    fn step(&self, k: u32) -> LaneStep {
        let (pairs, fan, below) = (2 * self.block.log, self.fan(), u32::from(self.smaller.is_some()));
        if k < pairs {
            let receives = k % 2 == 1;
            return self.exchange(k / 2, receives, Action::RecvSum, !receives);
        }
        let k = k - pairs;
        if k < below {
            return self.with_smaller(Action::RecvSum);
        }
        let k = k - below;
        if k < 2 * fan {
            let (peer, range) = self.piece(k % fan);
            return LaneStep::new(if k < fan { Action::Send } else { Action::RecvInto }, peer, range);
        }
        let k = k - 2 * fan;
        if k < below {
            return self.with_smaller(Action::Send);
        }
        let k = k - below;
        let receives = k % 2 == 1;
        self.exchange(self.block.log - 1 - k / 2, receives, Action::RecvInto, receives)
    }
}
