//! `PipelinePhase`: models rounds in which each member sends the next a block.

use std::ops::Range;

use super::step::Action;

/// Rounds of a [`Schedule::pipeline`](super::Schedule::pipeline) that do the same with the blocks that move
/// around the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelinePhase {
    /// How many.
    pub rounds: u32,
    /// The action on the block that arrives.
    pub action: Action,
    /// Elements of a block, except the longer ones.
    pub elements: u64,
    /// The number of blocks, the first ones, that are an element longer.
    pub longer: u32,
    /// In round k member m receives block m − `back` − k, counted around the ring.
    pub back: u32,
}

impl PipelinePhase {
    /// Elements that `member` of `members` receives in `round < rounds`.
    pub fn taken_in(&self, member: u32, round: u32, members: u32) -> u64 {
        let ahead = u64::from(member) + 2 * u64::from(members) - u64::from(self.back) - u64::from(round);
        self.elements + u64::from(ahead % u64::from(members) < u64::from(self.longer))
    }

    /// How many of the blocks that `member` of `members` receives are longer; there are fewer rounds than members.
    pub fn longer_taken_in(&self, member: u32, members: u32) -> u32 {
        // Blocks come in descending order: down to 0, and then from the last one on.
        let ahead = (u64::from(member) + 2 * u64::from(members) - u64::from(self.back)) % u64::from(members);
        let (first, longer) = (ahead as u32 + 1, self.longer);
        let down = longer.min(first) - longer.min(first.saturating_sub(self.rounds));
        let lowest = members - self.rounds.saturating_sub(first);
        down + longer.max(lowest) - lowest
    }

    /// These rounds of the phase, which `members` have, as a separate phase.
    #[must_use]
    pub fn part(&self, rounds: Range<u32>, members: u32) -> PipelinePhase {
        let back = (u64::from(self.back) + u64::from(rounds.start)) % u64::from(members);
        PipelinePhase { rounds: rounds.end - rounds.start, back: back as u32, ..*self }
    }
}
