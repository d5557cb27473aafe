//! Reduces up a rooted tree and broadcasts down it, for binomial trees, chains, k-ary trees and servers.
//!
//! A place defines parents and children; this file defines their steps. On an edge of the tree the whole extent of the
//! lane passes once up and once down, so an allreduce sends n·(children + 1) elements from an inner member.

use std::fmt;

use super::prelude::*;

/// A member of a tree whose members are numbered from its root on.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) position: u32,
    pub(super) members: u32,
    root: u32,
}

impl Numbered {
    pub(super) fn new(member: u32, members: u32, root: u32) -> Numbered {
        let position = if member >= root { member - root } else { member + (members - root) };
        Numbered { position, members, root }
    }

    /// The member at a position.
    pub(super) fn member(&self, position: u64) -> u32 {
        ((position + u64::from(self.root)) % u64::from(self.members)) as u32
    }
}

/// A member's position in a rooted tree. Children are numbered in the order in which their sums are awaited.
pub(super) trait TreePosition: Send + Sync + 'static {
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

/// The directions of a lane.
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

/// Whether a single tree with any root serves the collective.
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
    /// Children that a root receives from, and sends to, one after the other while further lanes are in flight: those
    /// of a switch.
    pub(super) in_turn: u32,
    pub(super) ways: Ways,
    /// Trees in order that take the same flow between nodes, before the next ones take the next.
    pub(super) per_flow: u32,
    /// The position of a member in a tree; `None` if it takes no part in it.
    pub(super) place: F,
}

impl<F> fmt::Debug for Trees<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} trees over {} members, {:?}", self.trees, self.members, self.ways)
    }
}

impl<P: TreePosition, F: Fn(u32, u32) -> Option<P> + Send + Sync> Lanes for Trees<F> {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let Some(place) = (self.place)(member, split.group(index)) else { return Lane::idle() };
        let (extent, ways) = (split.extent(index), self.ways);
        let (children, parent) = (place.children(), place.parent());
        // one for each edge at this member
        let edges = children + u32::from(parent.is_some());
        let (ups, downs) = (edges * u32::from(ways.up), edges * u32::from(ways.down));
        Lane::new(ups + downs, move |k| {
            let (action, peer) = match (k.checked_sub(ups), parent) {
                (None, Some(parent)) if k == children => (Action::Send, parent),
                (None, _) if k == 0 && !place.contributes() => (Action::RecvInto, place.child(k)),
                (None, _) => (Action::RecvSum, place.child(k)),
                (Some(0), Some(parent)) => (Action::RecvInto, parent),
                (Some(k), _) => (Action::Send, place.served(k - u32::from(parent.is_some()))),
            };
            LaneStep::new(action, peer, extent.clone())
        })
    }

    fn rounds(&self) -> u32 {
        self.depth * (u32::from(self.ways.up) + u32::from(self.ways.down))
    }

    fn largest_message(&self, split: &Split) -> u64 {
        if self.members == 1 { 0 } else { split.longest() }
    }

    /// The lanes that start while the first one is in flight.
    fn window(&self) -> u32 {
        (self.rounds().saturating_add(2 * self.in_turn)).saturating_mul(self.trees)
    }

    fn roots(&self) -> u32 {
        self.trees
    }

    fn flow(&self, tree: u32) -> u32 {
        tree / self.per_flow
    }

    fn is_pipelined(&self) -> bool {
        self.is_pipelined
    }
}
