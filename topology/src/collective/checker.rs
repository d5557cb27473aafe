//! The symbolic checker: proves that lanes do what their collective says, for every timing, and reports the sums.
//!
//! A collective's meaning is stated here once, apart from all algorithms. Each lane is replayed on expressions instead of
//! numbers (`replay.rs`); what a lane reads and when is decided by its own order and its messages alone, so one replay
//! stands for all timings, and vector clocks show that no sent range is written too early in any of them.

use std::ops::Range;
use std::sync::Arc;

use super::bracketing::{Bracketing, ExpressionId, Expressions};
use super::fault::{Fault, Reason};
use super::meaning::Collective;
use super::pairwise;
use super::replay::Replay;
use super::schedule::Schedule;
use super::step::Step;

/// What lanes are held to.
#[derive(Debug, Clone)]
pub(super) struct Contract {
    /// What holds afterwards.
    pub(super) collective: Collective,
    /// Members of the group.
    pub(super) members: u32,
    /// Members `0..contributors` contribute and get the result.
    pub(super) contributors: u32,
    /// Of these only so many contribute, where leaders do it for their nodes; behind them the number of members.
    pub(super) leaders: Option<Arc<[u32]>>,
    /// Elements of the buffer.
    pub(super) elements: u64,
    /// Lanes of each member.
    pub(super) lanes: u32,
    /// Whether sends copy their range when they are posted; else it must stay as it is until it has been consumed.
    pub(super) buffered_sends: bool,
}

/// Proves a schedule against its collective.
///
/// It expands every lane of every member; memory grows with members × steps of one lane. Meant for groups of up to some
/// hundred members.
///
/// # Errors
///
/// The first fault: of a deadlock, the members that wait for each other.
pub fn check(schedule: &Schedule) -> Result<Bracketing, Fault> {
    prove(&schedule.contract(), |member, lane| schedule.lane(member, lane))
}

/// Proves lanes from any source, broken ones included: `lane(member, index)` gives the steps of a lane on a member.
pub(super) fn prove<I: Iterator<Item = Step>>(
    contract: &Contract,
    lane: impl Fn(u32, u32) -> I,
) -> Result<Bracketing, Fault> {
    let mut expressions = Expressions::new(contract.members);
    let mut replay = Replay::new(contract);
    let mut results = Vec::new();
    let mut touched: Vec<(Range<u64>, u32)> = Vec::new();
    let mut received: Vec<(u32, Range<u64>, u32)> = Vec::new();
    for index in 0..contract.lanes {
        replay.run(index, |member| lane(member, index), &mut expressions)?;
        if replay.blocks.is_some() {
            received.extend(replay.received().map(|(member, range)| (member, range, index)));
            continue;
        }
        for (range, values) in replay.segments() {
            let result = contract.settle(range.clone(), Some(index), |member| values[member as usize], &expressions)?;
            results.push((range.clone(), result));
            match touched.last_mut() {
                Some((last, same)) if last.end == range.start && *same == index => last.end = range.end,
                _ => touched.push((range, index)),
            }
        }
    }
    if let Some(blocks) = &replay.blocks {
        return covered(contract, blocks, received).map(|()| expressions.finish(Vec::new()));
    }
    touched.sort_by_key(|(range, _)| range.start);
    // what no lane touches must be right from the start
    let mut untouched = |gap: Range<u64>| {
        contract.parts(gap).try_for_each(|part| {
            let initial = |member| contract.initial(member, part.start);
            results.push((part.clone(), contract.settle(part.clone(), None, initial, &expressions)?));
            Ok(())
        })
    };
    let (mut end, mut before) = (0, 0);
    for (range, index) in touched {
        if range.start < end {
            let reason = Reason::LanesOverlap { other: before, range: range.start..end.min(range.end) };
            return Err(Fault { member: 0, lane: Some(index), step: None, reason });
        }
        untouched(end..range.start)?;
        (end, before) = (range.end, index);
    }
    untouched(end..contract.elements)?;
    Ok(expressions.finish(results))
}

impl Contract {
    /// What a member's buffer holds in an element before the collective.
    pub(super) fn initial(&self, member: u32, element: u64) -> ExpressionId {
        let has = match self.collective {
            Collective::AllGather | Collective::AllGatherV { .. } | Collective::Gather { .. } => {
                self.owner(element) == member
            }
            Collective::Broadcast { root } | Collective::Scatter { root } => member == root,
            _ => self.contributes(member),
        };
        if has { ExpressionId::leaf(member) } else { ExpressionId::NOTHING }
    }

    /// Whether a sum needs what `member` has.
    fn contributes(&self, member: u32) -> bool {
        member < self.contributors && self.leaders.as_ref().is_none_or(|leaders| leaders.binary_search(&member).is_ok())
    }

    /// The first member that should contribute to an expression and does not.
    fn missing(&self, id: ExpressionId, expressions: &Expressions) -> Option<u32> {
        (0..self.contributors).find(|member| self.contributes(*member) && !expressions.holds(id, *member))
    }

    /// The member whose shard holds `element`.
    fn owner(&self, element: u64) -> u32 {
        if let Collective::AllGatherV { counts } | Collective::ReduceScatterV { counts } = &self.collective {
            let mut end = 0;
            let ends = counts.iter().map(|count| {
                end += count;
                end
            });
            return ends.take_while(|end| *end <= element).count() as u32;
        }
        let (short, longer) = (self.elements / u64::from(self.members), self.elements % u64::from(self.members));
        let boundary = longer * (short + 1);
        let owner = if element < boundary { element / (short + 1) } else { longer + (element - boundary) / short };
        owner as u32
    }

    /// `range` cut where shards meet, if the collective's meaning knows shards.
    pub(super) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let sharded = matches!(
            self.collective,
            Collective::AllGather
                | Collective::ReduceScatter
                | Collective::AllGatherV { .. }
                | Collective::ReduceScatterV { .. }
                | Collective::Scatter { .. }
                | Collective::Gather { .. }
        );
        let mut rest = range;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut part = rest.clone();
            if sharded {
                let owner = self.owner(rest.start);
                let end = self.collective.part(self.elements, self.members, owner).end;
                part.end = part.end.min(end);
            }
            rest.start = part.end;
            Some(part)
        })
    }

    /// The result in `range` (inside one shard), from what each member ends with; or why it is none.
    fn settle(
        &self,
        range: Range<u64>,
        lane: Option<u32>,
        value: impl Fn(u32) -> ExpressionId,
        expressions: &Expressions,
    ) -> Result<ExpressionId, Fault> {
        let fault = |member, reason| Err(Fault { member, lane, step: None, reason });
        let (witness, everyone) = match self.collective {
            Collective::ReduceScatter | Collective::ReduceScatterV { .. } | Collective::Scatter { .. } => {
                (self.owner(range.start), false)
            }
            Collective::Reduce { root } | Collective::Gather { root } => (root, false),
            _ => (0, true),
        };
        let result = value(witness);
        let missing = match self.collective {
            Collective::AllGather | Collective::AllGatherV { .. } | Collective::Gather { .. } => {
                Some(self.owner(range.start)).filter(|owner| result != ExpressionId::leaf(*owner))
            }
            Collective::Broadcast { root } | Collective::Scatter { root } => {
                Some(root).filter(|root| result != ExpressionId::leaf(*root))
            }
            _ => self.missing(result, expressions),
        };
        if let Some(contributor) = missing {
            return fault(witness, Reason::Missing { range, contributor });
        }
        let others = if everyone { 0..self.contributors } else { 0..0 };
        match others.into_iter().find(|member| value(*member) != result) {
            None => Ok(result),
            Some(member) => {
                let own = value(member);
                let missing = self.missing(own, expressions);
                match (missing, &self.collective) {
                    (Some(contributor), Collective::AllReduce | Collective::AllReduceOfNodes) => {
                        fault(member, Reason::Missing { range, contributor })
                    }
                    _ => fault(member, Reason::Differs { range, from: witness }),
                }
            }
        }
    }
}

/// That each member of an alltoallv has received each element of its output exactly once.
fn covered(
    contract: &Contract,
    blocks: &pairwise::Blocks,
    mut received: Vec<(u32, Range<u64>, u32)>,
) -> Result<(), Fault> {
    received.sort_by_key(|(member, range, _)| (*member, range.start));
    let mut received = received.into_iter().peekable();
    for member in 0..contract.members {
        let (mut end, mut before) = (0, 0);
        let last = blocks.received(contract.members - 1, member).end;
        let missing = |range: Range<u64>| {
            let from = (0..contract.members).find(|from| blocks.received(*from, member).end > range.start).unwrap_or(0);
            Err(Fault { member, lane: None, step: None, reason: Reason::Missing { range, contributor: from } })
        };
        while let Some((_, range, lane)) = received.next_if(|(of, ..)| *of == member) {
            if range.start < end {
                let reason = Reason::LanesOverlap { other: before, range: range.start..end.min(range.end) };
                return Err(Fault { member, lane: Some(lane), step: None, reason });
            }
            if range.start > end {
                return missing(end..range.start);
            }
            (end, before) = (range.end, lane);
        }
        if end < last {
            return missing(end..last);
        }
    }
    Ok(())
}
