//! Direct exchange: every part goes straight to its owner, which adds it up, and from the owner straight to everybody.
//!
//! One round each way: p − 1 messages of other members' parts to be summed, p − 1 of the own part to be spread. With even
//! parts that is n(p − 1)/p elements each way, as a ring sends; Krizhevsky 2014 §4.1 synchronises weights so. Parts may be of
//! any size: with all elements in one part it is his one-to-all broadcast and its reverse (§4, scheme (b)).

use std::ops::Range;
use std::sync::Arc;

use super::super::algorithm::{Algorithm, Call, Entry};
use super::super::lanes::{Lanes, Steps};
use super::super::meaning::Collective;
use super::super::shard::{Split, piece, shard};
use super::super::step::{Action, Step};
use super::rooted::Rooted;
use crate::InputError;
use crate::symmetry::Permutations;

pub(super) static ENTRY: Entry = Entry {
    name: "direct",
    help: "every part straight to its owner and from it straight to everybody",
    serves: |collective| {
        !matches!(
            collective,
            Collective::AllReduceOfNodes
                | Collective::Broadcast { .. }
                | Collective::Reduce { .. }
                | Collective::AllToAllV { .. }
        )
    },
    lanes: |call| {
        let members = call.members();
        if let Some(root) = call.collective.root() {
            call.root()?;
            return Ok(Box::new(Rooted {
                members,
                root,
                scatter: matches!(call.collective, Collective::Scatter { .. }),
            }));
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
    let (Collective::ReduceScatterV { counts } | Collective::AllGatherV { counts }) = call.collective else {
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
    /// Where each part starts, and the end, if not all are even.
    starts: Option<Arc<[u64]>>,
    /// Whether a lane divides its own elements, those that its nodes sum; else it has its share of each part.
    nested: bool,
    /// Whether parts go to their owners, to be summed.
    reduce: bool,
    /// Whether they go from their owners to all.
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
    fn steps(&self, member: u32, lane: u32, split: &Split) -> Arc<dyn Steps> {
        let (extent, lane, lanes) =
            if self.nested { (split.extent(lane), 0, 1) } else { (0..split.elements, lane, split.chunks) };
        let (elements, starts) = (extent.end - extent.start, self.starts.clone());
        let &Direct { members, reduce, gather, .. } = self;
        Arc::new(Parts { start: extent.start, elements, starts, reduce, gather, member, members, lane, lanes })
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

/// One lane on one member: piece `lane` of `lanes` of every part.
#[derive(Debug)]
struct Parts {
    start: u64,
    elements: u64,
    starts: Option<Arc<[u64]>>,
    reduce: bool,
    gather: bool,
    member: u32,
    members: u32,
    lane: u32,
    lanes: u64,
}

impl Parts {
    /// The lane's piece of the part of `member`.
    fn piece(&self, member: u32) -> Range<u64> {
        let part = match &self.starts {
            None => shard(self.elements, self.members.into(), member.into()),
            Some(starts) => starts[member as usize]..starts[member as usize + 1],
        };
        piece(self.start + part.start..self.start + part.end, self.lanes, self.lane)
    }
}

impl Steps for Parts {
    fn len(&self) -> u32 {
        2 * (self.members - 1) * (u32::from(self.reduce) + u32::from(self.gather))
    }

    /// A way's sends come before its receives, to and from ever more distant members.
    fn step(&self, k: u32) -> Step {
        let others = self.members - 1;
        let (way, place) = (k / (2 * others), k % (2 * others));
        let reduces = self.reduce && way == 0;
        let distance = place % others + 1;
        if place < others {
            let to = (self.member + distance) % self.members;
            return Step::new(Action::Send, to, self.piece(if reduces { to } else { self.member }));
        }
        let from = (self.member + self.members - distance) % self.members;
        match reduces {
            true => Step::new(Action::RecvSum, from, self.piece(self.member)),
            false => Step::new(Action::RecvInto, from, self.piece(from)),
        }
    }
}
