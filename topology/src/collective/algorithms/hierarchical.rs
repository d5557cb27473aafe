//! Runs a hierarchical allreduce: sum in each node, any algorithm across leaders, broadcast in each node.
//!
//! Goyal 2017 §4.1 and §4.2. In a node the members form a chain to their leader, the first of them, and back. The three
//! phases are pipelined by chunk and not separated by barriers: a lane carries its chunk through all three, and lanes
//! follow each other. A node of s members adds s − 1 rounds before and s − 1 after those of the algorithm across.
//!
//! Buffers of less than 256 KiB, which are bound by latency and not by bandwidth, take a star instead: every member
//! sends its part to the leader, which sums, and gets the result back from it, one round each way. (The paper's small
//! buffers go through the host's memory, where the CPU sums; here the leader takes its role.)
//!
//! Where only leaders need the sum, the third phase is left out.

use std::ops::Range;
use std::sync::Arc;

use super::super::group::Group;
use super::prelude::*;

pub(super) static ENTRY: Entry = Entry {
    name: "hierarchical",
    parameters: &[Parameter::Algorithm { what: "the algorithm across nodes", example: "ring" }],
    help: "sums in each node, the named algorithm across the nodes' leaders, broadcast in each node",
    serves: |collective| matches!(collective, Collective::AllReduce | Collective::AllReduceToLeaders),
    lanes: |call| Hierarchical::new(call).map(|lanes| -> Box<dyn Lanes> { Box::new(lanes) }),
    by_nodes: true,
    ..Entry::PLAIN
};

impl Algorithm {
    /// `hierarchical:` and the algorithm among leaders, of one level itself.
    pub fn hierarchical(across: Algorithm) -> Algorithm {
        Algorithm::new(&ENTRY, [Value::Algorithm(across)])
    }
}

/// Buffers of fewer bytes take the star inside nodes (Goyal 2017 §4.1: "256 KB or more" go by NCCL's rings).
const SMALL_BYTES: u64 = 256 * 1024;

/// Members on nodes, and the lanes among their leaders.
#[derive(Debug)]
struct Hierarchical {
    members: u32,
    across: Box<dyn Lanes>,
    leaders: u32,
    /// First member of each node, then the number of members; absent where every member leads.
    starts: Option<Arc<[u32]>>,
    /// Members of the largest node.
    largest: u32,
    /// Whether members exchange with their leader directly.
    star: bool,
    /// Whether every member gets the sum, or leaders alone.
    returns: bool,
}

impl Hierarchical {
    fn new(call: &Call<'_>) -> Result<Hierarchical, InputError> {
        let across = call.algorithm.inner().ok_or_else(|| call.refuse("needs the algorithm across nodes"))?;
        if across.library().is_some() {
            return Err(call.refuse(format!("a library sees to nodes itself: use `{across}` alone")));
        }
        if across.by_nodes() {
            return Err(call.refuse(format!("there are two levels: use `{across}`")));
        }
        if across.servers() > 0 {
            let cure = Algorithm::hierarchical(across.without_words());
            return Err(call.refuse(format!("leaders contribute for their nodes: use {cure}")));
        }
        let starts = call.group.starts();
        let sizes = || starts.iter().flat_map(|starts| starts.windows(2).map(|pair| pair[1] - pair[0]));
        if let Some(node) = sizes().position(|size| size == 0) {
            return Err(call.refuse(format!("node {node} has no member: leave it out of the group")));
        }
        // Across nodes, or where each member is one, both sums are the same.
        let (collective, group) = (&Collective::AllReduce, &Group::flat(call.group.node_count()));
        let (elements, dtype, nested) = (call.elements, call.dtype, starts.is_some());
        Ok(Hierarchical {
            members: call.members(),
            across: super::lanes(&Call { algorithm: across, collective, group, elements, dtype, nested })?,
            leaders: group.members(),
            starts: starts.cloned(),
            largest: sizes().max().unwrap_or(1),
            star: dtype.bytes(elements) < SMALL_BYTES,
            returns: *call.collective == Collective::AllReduce,
        })
    }

    /// Rounds before and after those among the leaders, together.
    fn around(&self) -> u32 {
        let one_way = if self.star { (self.largest - 1).min(1) } else { self.largest - 1 };
        if self.returns { 2 * one_way } else { one_way }
    }
}

impl Lanes for Hierarchical {
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane {
        let Some(starts) = &self.starts else { return self.across.lane(member, index, split) };
        let node = starts.partition_point(|start| *start <= member) - 1;
        let (before, behind) = (member - starts[node], starts[node + 1] - 1 - member);
        let across = if before == 0 { self.across.lane(node as u32, index, split) } else { Lane::idle() };
        let inside =
            InNode { member, before, behind, star: self.star, returns: self.returns, extent: split.extent(index) };
        let (ups, rounds, downs, starts) = (inside.ups(), across.len(), inside.downs(), Arc::clone(starts));
        let step = move |k: u32| {
            if k < ups {
                inside.up(k)
            } else if k - ups < rounds {
                // its peers are nodes
                let step = across.step(k - ups);
                LaneStep { peer: starts[step.peer as usize], ..step }
            } else {
                inside.down(k - ups - rounds)
            }
        };
        Lane::new(ups + rounds + downs, step)
    }

    fn rounds(&self) -> u32 {
        self.across.rounds() + self.around()
    }

    fn largest_message(&self, split: &Split) -> u64 {
        let across = self.across.largest_message(split);
        if self.largest > 1 { across.max(split.longest()) } else { across }
    }

    fn symmetry(&self, split: &Split) -> (Permutations, u64) {
        let (across, multiple) = self.across.symmetry(split);
        let even = u64::from(self.largest) * u64::from(self.leaders) == u64::from(self.members);
        let known = even && self.leaders > 1;
        (if known { across.of_blocks(self.largest) } else { Permutations::Identity }, multiple)
    }

    fn pipeline(&self, split: &Split) -> Option<Vec<PipelinePhase>> {
        if self.leaders == self.members { self.across.pipeline(split) } else { None }
    }

    fn window(&self) -> u32 {
        self.across.window().saturating_add(self.around())
    }

    fn roots(&self) -> u32 {
        self.across.roots()
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        self.across.chunks(elements, chunk)
    }

    fn receives(&self, member: u32) -> bool {
        self.returns || self.starts.as_ref().is_none_or(|starts| starts.binary_search(&member).is_ok())
    }
}

/// A member's part of a lane inside its node, around the part of its leader across nodes.
struct InNode {
    member: u32,
    /// Members of its node before it, and after it.
    before: u32,
    behind: u32,
    star: bool,
    returns: bool,
    extent: Range<u64>,
}

impl InNode {
    /// Whether it takes part across nodes.
    fn leads(&self) -> bool {
        self.before == 0
    }

    /// Steps before the leaders' part.
    fn ups(&self) -> u32 {
        match (self.star, self.leads()) {
            (true, true) => self.behind,
            (true, false) => 1,
            (false, _) => self.before.min(1) + self.behind.min(1),
        }
    }

    /// Steps after it.
    fn downs(&self) -> u32 {
        if self.returns { self.ups() } else { 0 }
    }

    /// Step `k` of the sum towards the leader.
    fn up(&self, k: u32) -> LaneStep {
        let range = self.extent.clone();
        match (self.star, self.leads()) {
            (true, true) => LaneStep::new(Action::RecvSum, self.member + 1 + k, range),
            (true, false) => LaneStep::new(Action::Send, self.member - self.before, range),
            (false, _) if self.behind > 0 && k == 0 => LaneStep::new(Action::RecvSum, self.member + 1, range),
            (false, _) => LaneStep::new(Action::Send, self.member - 1, range),
        }
    }

    /// Step `k` of the broadcast from the leader.
    fn down(&self, k: u32) -> LaneStep {
        let range = self.extent.clone();
        match (self.star, self.leads()) {
            (true, true) => LaneStep::new(Action::Send, self.member + 1 + k, range),
            (true, false) => LaneStep::new(Action::RecvInto, self.member - self.before, range),
            (false, false) if k == 0 => LaneStep::new(Action::RecvInto, self.member - 1, range),
            (false, _) => LaneStep::new(Action::Send, self.member + 1, range),
        }
    }
}
