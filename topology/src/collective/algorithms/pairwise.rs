//! Pairwise alltoallv: step s exchanges with the members at distance s, the own block at distance 0.
//!
//! p − 1 rounds and a message to itself; each member sends its row of counts. Thakur 2005 §3.3 (long messages). Send
//! ranges index the sender's row (blocks by destination), receive ranges the receiver's column (blocks by source).

use std::ops::Range;
use std::sync::Arc;

use super::super::algorithm::{Algorithm, Entry};
use super::super::blocks::Blocks;
use super::super::lanes::{Lanes, Steps};
use super::super::meaning::Collective;
use super::super::shard::{Split, piece};
use super::super::step::{Action, Step};
use crate::symmetry::Permutations;

pub(super) static ENTRY: Entry = Entry {
    name: "pairwise",
    help: "step s exchanges with the members at distance s",
    serves: |collective| matches!(collective, Collective::AllToAllV { .. }),
    lanes: |call| {
        let (Collective::AllToAllV { counts }, members) = (call.collective, call.members()) else {
            return Err(call.refuse("exchanges counted blocks: take alltoallv"));
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

/// Members that exchange blocks.
#[derive(Debug)]
struct Pairwise {
    blocks: Arc<Blocks>,
}

impl Lanes for Pairwise {
    fn steps(&self, member: u32, lane: u32, split: &Split) -> Arc<dyn Steps> {
        Arc::new(Distances { blocks: Arc::clone(&self.blocks), member, lane, lanes: split.chunks })
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

/// One lane on one member: part `lane` of `lanes` of each block.
#[derive(Debug)]
struct Distances {
    blocks: Arc<Blocks>,
    member: u32,
    lane: u32,
    lanes: u64,
}

impl Distances {
    /// The lane's part of a block.
    fn part(&self, block: Range<u64>) -> Range<u64> {
        piece(block, self.lanes, self.lane)
    }
}

impl Steps for Distances {
    fn len(&self) -> u32 {
        2 * self.blocks.members
    }

    fn step(&self, k: u32) -> Step {
        let (distance, members) = (k / 2, self.blocks.members);
        let at = |ahead: u32| if ahead >= members { ahead - members } else { ahead };
        if k.is_multiple_of(2) {
            let to = at(self.member + distance);
            return Step::new(Action::Send, to, self.part(self.blocks.sent(self.member, to)));
        }
        let from = at(self.member + members - distance);
        Step::new(Action::RecvInto, from, self.part(self.blocks.received(from, self.member)))
    }
}
