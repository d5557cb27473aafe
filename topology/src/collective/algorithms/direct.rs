//! Exchanges directly: sends every part to its owner, which sums it and sends the sum to all members.
//!
//! One round each way: p − 1 messages of other members' parts to be summed, p − 1 of the own part to be spread. With
//! even parts that is n(p − 1)/p elements each way, as a ring sends; Krizhevsky 2014 §4.1 synchronises weights so.
//! Parts may be of any size: with all elements in one part it is that paper's one-to-all broadcast and its reverse (§4,
//! scheme (b)).

use std::sync::Arc;

use super::prelude::*;
use super::rooted::Rooted;

pub(super) static ENTRY: Entry = Entry {
    name: "direct",
    help: "every part straight to its owner and from it straight to everybody",
    serves: |collective| {
        !matches!(
            collective,
            Collective::AllReduceToLeaders
                | Collective::Broadcast { .. }
                | Collective::Reduce { .. }
                | Collective::AllToAll
                | Collective::AllToAllV { .. }
        )
    },
    lanes: |call| {
        let members = call.members();
        if let Some(root) = call.collective.root() {
            call.root()?;
            let scatter = matches!(call.collective, Collective::Scatter { .. });
            return Ok(Box::new(Rooted { members, root, scatter, starts: starts(call)? }));
        }
        Ok(Box::new(Direct {
            members,
            starts: starts(call)?,
            nested: call.nested,
            reduce: !matches!(call.collective, Collective::AllGather | Collective::AllGatherV { .. }),
            gather: !matches!(call.collective, Collective::ReduceScatter | Collective::ReduceScatterV { .. }),
        }))
    },
    ..Entry::PLAIN
};

impl Algorithm {
    /// `direct`.
    pub fn direct() -> Algorithm {
        Algorithm::new(&ENTRY, [])
    }
}

/// Where the parts of a collective with counts start, and the end.
fn starts(call: &Call<'_>) -> Result<Option<Arc<[u64]>>, InputError> {
    let (Collective::ReduceScatterV { counts }
    | Collective::AllGatherV { counts }
    | Collective::GatherV { counts, .. }) = call.collective
    else {
        return Ok(None);
    };
    let members = call.members();
    if counts.len() as u64 != u64::from(members) {
        return Err(call.refuse(format!("{members} members need as many counts and there are {}", counts.len())));
    }
    let mut starts = Vec::with_capacity(counts.len() + 1);
    let mut end = Some(0u64);
    for count in counts.iter() {
        starts.extend(end);
        end = end.and_then(|end| end.checked_add(*count));
    }
    if end != Some(call.elements) {
        return Err(call.refuse(format!("the counts must add up to the {} elements of the buffer", call.elements)));
    }
    starts.extend(end);
    Ok(Some(starts.into()))
}

/// Members that own parts.
#[derive(Debug)]
struct Direct {
    members: u32,
    /// The start of each part, and the end, if not all are even.
    starts: Option<Arc<[u64]>>,
    /// Whether a lane divides its own elements, those that its nodes sum; else it has its share of each part.
    nested: bool,
    /// Whether parts are sent to their owners, to be summed.
    reduce: bool,
    /// Whether they are sent from their owners to all.
    gather: bool,
}

impl Direct {
    /// Elements of the largest part.
    fn largest(&self, elements: u64) -> u64 {
        match &self.starts {
            None => elements.div_ceil(self.members.into()),
            Some(starts) => starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0),
        }
    }
}

impl Lanes for Direct {
    /// Each way's sends come before its receives, to and from ever more distant members.
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let &Direct { members, reduce, .. } = self;
        let (extent, index, lanes) =
            if self.nested { (split.extent(index), 0, 1) } else { (0..split.elements, index, split.chunks) };
        let (start, elements, starts) = (extent.start, extent.end - extent.start, self.starts.clone());
        // the lane's piece of a member's part
        let own = move |member: u32| {
            let part = match &starts {
                None => shard(elements, members.into(), member.into()),
                Some(starts) => starts[member as usize]..starts[member as usize + 1],
            };
            piece(start + part.start..start + part.end, lanes, index)
        };
        let others = members - 1;
        Lane::new(2 * others * self.rounds(), move |k| {
            let (way, place) = (k / (2 * others), k % (2 * others));
            let reduces = reduce && way == 0;
            let distance = place % others + 1;
            if place < others {
                let to = (member + distance) % members;
                return LaneStep::new(Action::Send, to, own(if reduces { to } else { member }));
            }
            let from = (member + members - distance) % members;
            match reduces {
                true => LaneStep::new(Action::RecvSum, from, own(member)),
                false => LaneStep::new(Action::RecvInto, from, own(from)),
            }
        })
    }

    fn rounds(&self) -> u32 {
        if self.members == 1 { 0 } else { u32::from(self.reduce) + u32::from(self.gather) }
    }

    fn largest_message(&self, split: &Split) -> u64 {
        match self.members {
            1 => 0,
            p if self.nested => split.longest().div_ceil(p.into()),
            _ => self.largest(split.elements).div_ceil(split.chunks),
        }
    }

    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let p = u64::from(self.members);
        let even = self.starts.is_none() || self.largest(split.elements).checked_mul(p) == Some(split.elements);
        let parts = if self.nested { split.chunks.max(1).saturating_mul(p) } else { p };
        match even {
            true => (Permutations::Rotations { unit: 1 }, parts),
            false => (Permutations::Identity, 1),
        }
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        if self.nested { elements.div_ceil(chunk) } else { self.largest(elements).div_ceil(chunk) }
    }
}
