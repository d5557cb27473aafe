//! `Contract`: states the meaning of a collective for each element and member, independently of all algorithms; lanes
//! are checked against it.

use std::ops::Range;

use super::fault::{Reason, ScheduleError};
use super::meaning::Collective;
use super::reduction_order::{ExpressionId, Expressions};

/// The requirements on lanes.
#[derive(Debug, Clone)]
pub(super) struct Contract {
    /// What holds afterwards.
    pub(super) collective: Collective,
    /// Members of the group.
    pub(super) members: u32,
    /// Members `0..contributors` contribute.
    pub(super) contributors: u32,
    /// Whether each of these gets the result of a collective that is not rooted.
    pub(super) receives: Box<[bool]>,
    /// Elements of the buffer.
    pub(super) elements: u64,
    /// Lanes of each member.
    pub(super) lanes: u32,
    /// Whether sends copy their range when they are posted; else it must stay unchanged until it has been consumed.
    pub(super) buffered_sends: bool,
}

impl Contract {
    /// What a member's buffer holds in an element before the collective.
    pub(super) fn initial(&self, member: u32, element: u64) -> ExpressionId {
        let has = match self.collective {
            Collective::AllGather
            | Collective::AllGatherV { .. }
            | Collective::Gather { .. }
            | Collective::GatherV { .. } => self.owner(element) == member,
            Collective::AllToAll => self.pair(element).0 == member,
            Collective::Broadcast { root } | Collective::Scatter { root } => member == root,
            _ => member < self.contributors,
        };
        if has { ExpressionId::leaf(member) } else { ExpressionId::NOTHING }
    }

    /// The first member that should contribute to an expression and does not.
    fn missing(&self, id: ExpressionId, expressions: &Expressions) -> Option<u32> {
        (0..self.contributors).find(|member| !expressions.holds(id, *member))
    }

    /// The member whose shard holds `element`.
    fn owner(&self, element: u64) -> u32 {
        if let Collective::AllGatherV { counts }
        | Collective::ReduceScatterV { counts }
        | Collective::GatherV { counts, .. } = &self.collective
        {
            let mut end = 0;
            let ends = counts.iter().map(|count| {
                end += count;
                end
            });
            return ends.take_while(|end| *end <= element).count() as u32;
        }
        self.shard_of(element, self.contributors.into()) as u32
    }

    /// The source and the destination of the block that has `element`.
    fn pair(&self, element: u64) -> (u32, u32) {
        let members = u64::from(self.contributors);
        let pair = self.shard_of(element, members * members);
        ((pair / members) as u32, (pair % members) as u32)
    }

    /// Which of `shards` even parts of the buffer has `element`.
    fn shard_of(&self, element: u64, shards: u64) -> u64 {
        let (short, longer) = (self.elements / shards, self.elements % shards);
        let boundary = longer * (short + 1);
        if element < boundary { element / (short + 1) } else { longer + (element - boundary) / short }
    }

    /// `range` cut at the boundaries of shards, if the collective's meaning depends on shards.
    pub(super) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let sharded = matches!(
            self.collective,
            Collective::AllGather
                | Collective::ReduceScatter
                | Collective::AllGatherV { .. }
                | Collective::ReduceScatterV { .. }
                | Collective::Scatter { .. }
                | Collective::Gather { .. }
                | Collective::GatherV { .. }
        );
        let mut rest = range;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut part = rest.clone();
            if self.collective == Collective::AllToAll {
                let end = Collective::block(self.elements, self.contributors, self.pair(rest.start)).end;
                part.end = part.end.min(end);
            } else if sharded {
                let owner = self.owner(rest.start);
                let end = self.collective.part(self.elements, self.contributors, owner).end;
                part.end = part.end.min(end);
            }
            rest.start = part.end;
            Some(part)
        })
    }

    /// The result in `range` (inside one shard), from each member's final value; or why there is none.
    pub(super) fn combine(
        &self,
        range: Range<u64>,
        lane: Option<u32>,
        value: impl Fn(u32) -> ExpressionId,
        expressions: &Expressions,
    ) -> Result<ExpressionId, ScheduleError> {
        let fault = |member, reason| Err(ScheduleError { member, lane, step: None, reason });
        let (witness, everyone) = match self.collective {
            Collective::ReduceScatter | Collective::ReduceScatterV { .. } | Collective::Scatter { .. } => {
                (self.owner(range.start), false)
            }
            Collective::Reduce { root } | Collective::Gather { root } | Collective::GatherV { root, .. } => {
                (root, false)
            }
            Collective::AllToAll => (self.pair(range.start).1, false),
            _ => (0, true),
        };
        let result = value(witness);
        let missing = match self.collective {
            Collective::AllGather
            | Collective::AllGatherV { .. }
            | Collective::Gather { .. }
            | Collective::GatherV { .. } => {
                Some(self.owner(range.start)).filter(|owner| result != ExpressionId::leaf(*owner))
            }
            Collective::Broadcast { root } | Collective::Scatter { root } => {
                Some(root).filter(|root| result != ExpressionId::leaf(*root))
            }
            Collective::AllToAll => {
                Some(self.pair(range.start).0).filter(|source| result != ExpressionId::leaf(*source))
            }
            _ => self.missing(result, expressions),
        };
        if let Some(contributor) = missing {
            return fault(witness, Reason::Missing { range, contributor });
        }
        let others = if everyone { 0..self.contributors } else { 0..0 };
        match others.into_iter().find(|member| self.receives[*member as usize] && value(*member) != result) {
            None => Ok(result),
            Some(member) => {
                let own = value(member);
                let missing = self.missing(own, expressions);
                match (missing, &self.collective) {
                    (Some(contributor), Collective::AllReduce | Collective::AllReduceToLeaders) => {
                        fault(member, Reason::Missing { range, contributor })
                    }
                    _ => fault(member, Reason::Differs { range, from: witness }),
                }
            }
        }
    }
}
