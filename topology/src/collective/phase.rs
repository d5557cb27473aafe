//! Rounds in which every member sends a block to the next one.

use super::step::Action;

/// Rounds of a [`Schedule::pipeline`](super::Schedule::pipeline) that do the same with the blocks that go round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelinePhase {
    /// How many.
    pub rounds: u32,
    /// What is done with the block that comes.
    pub action: Action,
    /// Elements of a block, but for the longer ones.
    pub elements: u64,
    /// So many blocks, the first ones, are an element longer.
    pub longer: u32,
    /// In round k member m takes in block m − `back` − k, counted round the ring.
    pub back: u32,
}

impl PipelinePhase {
    /// Elements that `member` of `members` takes in in `round < rounds`.
    pub fn taken_in(&self, member: u32, round: u32, members: u32) -> u64 {
        let ahead = u64::from(member) + 2 * u64::from(members) - u64::from(self.back) - u64::from(round);
        self.elements + u64::from(ahead % u64::from(members) < u64::from(self.longer))
    }

    /// How many of the blocks that `member` of `members` takes in are longer: one of all does not come by.
    pub fn longer_taken_in(&self, member: u32, members: u32) -> u32 {
        self.longer - (self.taken_in(member, self.rounds, members) - self.elements) as u32
    }
}
