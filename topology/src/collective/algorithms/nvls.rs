//! Sums in the switch of a node: it receives every member's part once, adds, and multicasts the result.
//!
//! NCCL's NVLS (`src/device/all_reduce.h`, 2.17 and later) over NVSwitch of Hopper and later. Each member heads a share
//! of the buffer: the switch hands the head the sum of its share (`multimem.ld_reduce`), and the head stores it back to
//! all (`multimem.st`). So a member of p sends n(1 + 1/p) elements up its own links and receives n. A reduce-scatter is
//! the first half, an allgather the second. Switches are the last members and have no data, one for each node; members
//! are divided among nodes in order. Between nodes the heads of a share are a double tree (`nvls_tree.rs`), or switches
//! of the network add for them too (`nvls_collnet.rs`).

use super::super::node_trees::{levels, neighbours};
use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "nvls",
    help: "the switch of the node adds what members send once, and multicasts the sum",
    serves: |collective| {
        matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather)
    },
    lanes: |call| Ok(Box::new(Nvls::new(call, 1, 0)?)),
    servers: |_| 1,
    joins: Some(|_, contributors, _| (0..contributors).collect()),
    ..Entry::PLAIN
};

/// Elements in a chunk of a share, if the caller names none: 1 MiB, large enough to hide the times per message.
const CHUNK: u64 = 256 * 1024;

/// Sums in the switches of nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nvls {
    /// Members that have data; those after them are the switches.
    contributors: u32,
    nodes: u32,
    /// Switches between nodes that add, after those of the nodes; none where heads form trees.
    rails: u32,
    /// Whether shares are summed.
    reduce: bool,
    /// Whether heads store them to all.
    gather: bool,
}

impl Nvls {
    /// Members in `nodes` nodes, a switch for each, and one for each of `rails` between nodes.
    ///
    /// # Errors
    /// Fewer members with data than nodes.
    pub(super) fn new(call: &Call<'_>, nodes: u32, rails: u32) -> Result<Nvls, InputError> {
        let switches = nodes.saturating_add(rails);
        match call.members().checked_sub(switches) {
            Some(contributors) if contributors >= nodes => Ok(Nvls {
                contributors,
                nodes,
                rails,
                reduce: *call.collective != Collective::AllGather,
                gather: *call.collective != Collective::ReduceScatter,
            }),
            contributors => {
                let (count, least) = (contributors.unwrap_or(0), if nodes == 1 { "one" } else { "a node each" });
                let message = format!("{count} members with data and {switches} switches: use at least {least}");
                Err(call.refuse(message))
            }
        }
    }

    /// The first member of a node, and how many it has.
    fn extent(&self, node: u32) -> (u32, u32) {
        let members = of_node(self.contributors, self.nodes, node);
        (members.start, members.len() as u32)
    }

    fn node_of(&self, member: u32) -> u32 {
        shard_of(self.contributors, self.nodes, member)
    }

    /// Trees between the heads of a share.
    fn trees(&self) -> u32 {
        if self.nodes > 1 && self.rails == 0 { 2 } else { 1 }
    }

    /// The switch between nodes that adds a share.
    fn rail(&self, share: u32) -> u32 {
        self.contributors + self.nodes + share * self.rails / self.largest()
    }

    /// The steps of a switch between nodes for a share of its rail: adds in the order of nodes.
    fn between(&self, share: u32) -> Vec<(Action, u32)> {
        let heads = || (0..self.nodes).map(|node| self.head(node, share));
        let action = |node: usize| if node == 0 { Action::RecvInto } else { Action::RecvSum };
        let taken = heads().enumerate().map(|(node, head)| (action(node), head));
        taken.chain(heads().map(|head| (Action::Send, head))).collect()
    }

    /// The member of a node that heads a share.
    fn head(&self, node: u32, share: u32) -> u32 {
        let (start, size) = self.extent(node);
        start + share / self.trees() % size
    }

    /// Members of the largest node.
    fn largest(&self) -> u32 {
        self.contributors.div_ceil(self.nodes)
    }

    /// The steps of a node's switch: adds in the order of members.
    fn switch(&self, node: u32, share: u32) -> Vec<(Action, u32)> {
        let ((start, size), head) = (self.extent(node), self.head(node, share));
        if size == 1 {
            return Vec::new();
        }
        let all = start..start + size;
        let mut steps = Vec::new();
        if self.reduce {
            let action = |member: u32| if member == start { Action::RecvInto } else { Action::RecvSum };
            steps.extend(all.clone().map(|member| (action(member), member)));
            steps.push((Action::Send, head));
        }
        if self.gather {
            steps.push((Action::RecvInto, head));
            steps.extend(all.filter(|member| *member != head).map(|member| (Action::Send, member)));
        }
        steps
    }

    /// The steps of a node's member; the head passes its node's sum to other nodes before it stores the result.
    fn member(&self, member: u32, share: u32) -> Vec<(Action, u32)> {
        let node = self.node_of(member);
        let (switch, shares, heads) =
            (self.contributors + node, self.extent(node).1 > 1, self.head(node, share) == member);
        let mut steps = Vec::new();
        if shares {
            steps.extend(self.reduce.then_some((Action::Send, switch)));
            let gets = if heads { self.reduce } else { self.gather };
            steps.extend(gets.then_some((Action::RecvInto, switch)));
        }
        if !heads {
            return steps;
        }
        if self.rails > 0 {
            steps.extend([(Action::Send, self.rail(share)), (Action::RecvInto, self.rail(share))]);
            steps.extend((shares && self.gather).then_some((Action::Send, switch)));
            return steps;
        }
        let (parent, children) = neighbours(node, self.nodes, share % self.trees() == 1);
        let head = |node: &u32| self.head(*node, share);
        steps.extend(children.iter().map(|child| (Action::RecvSum, head(child))));
        steps.extend(parent.iter().flat_map(|node| [(Action::Send, head(node)), (Action::RecvInto, head(node))]));
        steps.extend(children.iter().rev().map(|child| (Action::Send, head(child))));
        steps.extend((shares && self.gather).then_some((Action::Send, switch)));
        steps
    }
}

impl Lanes for Nvls {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let (extent, share) = (split.extent(index), split.group(index));
        let steps = match member.checked_sub(self.contributors) {
            Some(node) if node < self.nodes => self.switch(node, share),
            Some(_) if self.rail(share) == member => self.between(share),
            Some(_) => Vec::new(),
            None => self.member(member, share),
        };
        Lane::new(steps.len() as u32, move |k| {
            let (action, peer) = steps[k as usize];
            LaneStep::new(action, peer, extent.clone())
        })
    }

    /// Up, to the head, up again and down in a node; up and down the tree or by a switch between nodes.
    fn rounds(&self) -> u32 {
        let ways = u32::from(self.reduce) + u32::from(self.gather);
        let inside = if self.largest() > 1 { 2 * ways } else { 0 };
        inside + if self.rails > 0 { 2 } else { 2 * levels(self.nodes) }
    }

    fn largest_message(&self, split: &Split) -> u64 {
        if self.contributors == 1 && self.rails == 0 { 0 } else { split.longest() }
    }

    /// The lanes that start while the first one is in flight.
    fn window(&self) -> u32 {
        // A switch between nodes receives from them, and sends to them, one after the other.
        let in_turn = if self.rails > 0 { 2 * self.nodes } else { 0 };
        self.rounds().saturating_add(in_turn).saturating_mul(self.roots())
    }

    fn roots(&self) -> u32 {
        self.largest().saturating_mul(self.trees())
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        let chunk = if chunk == u64::MAX { CHUNK } else { chunk };
        elements.div_ceil(self.roots().into()).div_ceil(chunk)
    }
}
