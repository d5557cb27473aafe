//! Runs a pairwise all-to-all: step s exchanges with members at distance s, the own block of an alltoallv at distance 0.
//!
//! p − 1 rounds and a message to itself; each member sends its row of counts. Thakur 2005 §3.3 (long messages). Send
//! ranges index the sender's row (blocks by destination), receive ranges the receiver's column (blocks by source).

use std::sync::Arc;

use super::super::blocks::Blocks;
use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "pairwise",
    help: "step s exchanges with the members at distance s",
    serves: |collective| matches!(collective, Collective::AllToAll | Collective::AllToAllV { .. }),
    lanes: |call| {
        if *call.collective == Collective::AllToAll {
            return Ok(Box::new(InPlace { members: call.members() }));
        }
        let (Collective::AllToAllV { counts }, members) = (call.collective, call.members()) else {
            return Err(call.refuse("exchanges counted blocks: use alltoallv"));
        };
        let pairs = u64::from(members) * u64::from(members);
        if counts.len() as u64 != pairs {
            return Err(call.refuse(format!("{members} members need {pairs} counts and there are {}", counts.len())));
        }
        match Blocks::new(members, counts) {
            Some(blocks) if blocks.longest <= call.elements => Ok(Box::new(Pairwise { blocks: Arc::new(blocks) })),
            Some(blocks) => Err(call.refuse(format!(
                "a member sends or receives {} elements and the buffers have {}: make them as long",
                blocks.longest, call.elements
            ))),
            None => Err(call.refuse("the counts of a member add up to more than 2^64: make them smaller")),
        }
    },
    ..Entry::PLAIN
};

impl Algorithm {
    /// `pairwise`.
    pub fn pairwise() -> Algorithm {
        Algorithm::new(&ENTRY, [])
    }
}

/// Members that exchange blocks in place: each keeps its own block.
#[derive(Debug)]
struct InPlace {
    members: u32,
}

impl Lanes for InPlace {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (members, elements, lanes) = (self.members, split.elements, split.chunks);
        Lane::new(2 * (members - 1), move |k| {
            let distance = k / 2 + 1;
            let (to, from) = ((member + distance) % members, (member + members - distance) % members);
            let (action, peer, pair) = if k.is_multiple_of(2) {
                (Action::Send, to, (member, to))
            } else {
                (Action::RecvInto, from, (from, member))
            };
            LaneStep::new(action, peer, piece(Collective::block(elements, members, pair), lanes, index))
        })
    }

    fn rounds(&self) -> u32 {
        self.members - 1
    }

    fn largest_message(&self, split: &Split) -> u64 {
        if self.members == 1 {
            return 0;
        }
        // Longer blocks come first, and the first one stays.
        let first = Collective::block(split.elements, self.members, (0, 1));
        (first.end - first.start).div_ceil(split.chunks)
    }

    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let pairs = u64::from(self.members) * u64::from(self.members);
        match split.elements.is_multiple_of(pairs) {
            true => (Permutations::Rotations { unit: 1 }, pairs),
            false => (Permutations::Identity, 1),
        }
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        elements.div_ceil(u64::from(self.members) * u64::from(self.members)).div_ceil(chunk)
    }
}

/// Members that exchange blocks.
#[derive(Debug)]
struct Pairwise {
    blocks: Arc<Blocks>,
}

impl Lanes for Pairwise {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (blocks, members, lanes) = (Arc::clone(&self.blocks), self.blocks.members, split.chunks);
        let at = move |ahead: u32| if ahead >= members { ahead - members } else { ahead };
        Lane::new(2 * members, move |k| {
            let distance = k / 2;
            let (action, peer, block) = if k.is_multiple_of(2) {
                let to = at(member + distance);
                (Action::Send, to, blocks.sent(member, to))
            } else {
                let from = at(member + members - distance);
                (Action::RecvInto, from, blocks.received(from, member))
            };
            LaneStep::new(action, peer, piece(block, lanes, index))
        })
    }

    fn rounds(&self) -> u32 {
        self.blocks.members - 1
    }

    fn largest_message(&self, split: &Split) -> u64 {
        self.blocks.largest.div_ceil(split.chunks)
    }

    fn symmetry(&self, _: &Split) -> (Permutations, u64) {
        (if self.blocks.even() { Permutations::Rotations { unit: 1 } } else { Permutations::Identity }, 1)
    }

    fn chunks(&self, _: u64, chunk: u64) -> u64 {
        self.blocks.largest.div_ceil(chunk)
    }
}
