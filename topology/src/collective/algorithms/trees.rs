//! Reduce up a rooted tree, broadcast down it: what binomial trees, chains, k-ary trees and servers have in common.
//!
//! A place says who is whose parent; this file says what a parent and a child do. On an edge of the tree the whole extent
//! of the lane passes once up and once down, so an allreduce sends n·(children + 1) elements from an inner member.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::super::lanes::{Idle, Lanes, Sent, Steps};
use super::super::meaning::Collective;
use super::super::shard::Split;
use super::super::step::{Action, Step};

/// A member's place in a rooted tree. Children are numbered in the order in which their sums are awaited.
pub(super) trait Place: fmt::Debug + Send + Sync + 'static {
    /// The member above, none at the root.
    fn parent(&self) -> Option<u32>;

    /// Number of members directly below.
    fn children(&self) -> u32;

    /// Child `index`, the shallowest subtree first.
    fn child(&self, index: u32) -> u32;

    /// The child that is the `index`th to get the result: of the deepest subtree first.
    fn served(&self, index: u32) -> u32 {
        self.child(self.children() - 1 - index)
    }

    /// Whether this member's own buffer is part of the sum.
    fn contributes(&self) -> bool {
        true
    }
}

/// Which ways a lane goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    /// Sums travel up to the root.
    up: bool,
    /// The root's range travels down.
    down: bool,
}

impl Ways {
    /// Both for an allreduce.
    pub(super) fn of(collective: &Collective) -> Ways {
        Ways {
            up: !matches!(collective, Collective::Broadcast { .. }),
            down: !matches!(collective, Collective::Reduce { .. }),
        }
    }
}

/// What a single tree with any root serves.
pub(super) fn rooted(collective: &Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. })
}

/// Trees over members, each with its share of the buffer.
pub(super) struct Trees<F> {
    pub(super) members: u32,
    pub(super) trees: u32,
    /// Rounds of one way.
    pub(super) depth: u32,
    pub(super) is_pipelined: bool,
    pub(super) ways: Ways,
    /// The place of a member in a tree; `None` if it takes no part in it.
    pub(super) place: F,
}

impl<F> fmt::Debug for Trees<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} trees over {} members, {:?}", self.trees, self.members, self.ways)
    }
}

impl<P: Place, F: Fn(u32, u32) -> Option<P> + Send + Sync> Lanes for Trees<F> {
    fn steps(&self, member: u32, lane: u32, split: &Split) -> Arc<dyn Steps> {
        match (self.place)(member, split.group(lane)) {
            Some(place) => Arc::new(Edges::new(place, self.ways, split.extent(lane))),
            None => Arc::new(Idle),
        }
    }

    fn rounds(&self) -> u32 {
        self.depth * (u32::from(self.ways.up) + u32::from(self.ways.down))
    }

    fn largest_message(&self, split: &Split) -> u64 {
        if self.members == 1 { 0 } else { split.longest() }
    }

    /// Those that start while the first one is under way.
    fn window(&self) -> u32 {
        self.rounds().saturating_mul(self.trees)
    }

    fn roots(&self) -> u32 {
        self.trees
    }

    fn is_pipelined(&self) -> bool {
        self.is_pipelined
    }
}

/// One lane over a tree on one member.
#[derive(Debug)]
struct Edges<P> {
    place: P,
    ways: Ways,
    extent: (u64, u64),
    children: u32,
    parent: Option<u32>,
}

impl<P: Place> Edges<P> {
    fn new(place: P, ways: Ways, extent: Range<u64>) -> Edges<P> {
        let (children, parent) = (place.children(), place.parent());
        Edges { place, ways, extent: (extent.start, extent.end), children, parent }
    }

    /// Steps of one way: one for each edge at this member.
    fn edges(&self) -> u32 {
        self.children + u32::from(self.parent.is_some())
    }
}

impl<P: Place> Steps for Edges<P> {
    fn len(&self) -> u32 {
        self.edges() * (u32::from(self.ways.up) + u32::from(self.ways.down))
    }

    fn step(&self, k: u32) -> Step {
        let range = self.extent.0..self.extent.1;
        let parent = self.parent.unwrap_or(0);
        if self.ways.up && k < self.edges() {
            if k == self.children {
                return Step::new(Action::Send, parent, range);
            }
            let first = k == 0 && !self.place.contributes();
            let action = if first { Action::RecvInto } else { Action::RecvSum };
            return Step::new(action, self.place.child(k), range);
        }
        let k = if self.ways.up { k - self.edges() } else { k };
        if self.parent.is_some() && k == 0 {
            return Step::new(Action::RecvInto, parent, range);
        }
        Step::new(Action::Send, self.place.served(k - u32::from(self.parent.is_some())), range)
    }

    fn sent(&self) -> Sent {
        let up = u64::from(self.ways.up && self.parent.is_some());
        let down = if self.ways.down { u64::from(self.children) } else { 0 };
        Sent::message(self.extent.1 - self.extent.0).times(up + down)
    }
}
