//! Predicts RCCL's collectives between AMD's GPUs: rings on channels that together use every link of a node. Where GPUs are
//! not all linked with each other, the simulator takes the orders that a search of the cluster finds (`nccl/linked.rs`).
//!
//! In one node of p linked GPUs the channels are Hamiltonian cycles without a common link, each in both directions, so that
//! 2·⌊(p − 1)/2⌋ of a GPU's p − 1 links work at once: rings of n bytes take 2n(p − 1)/(p·B·2⌊(p − 1)/2⌋) on links of B
//! bytes/s. Across nodes a channel enters each node at a GPU of its own, and passes the others by a Hamiltonian path.
//! Sources: ROCm/rccl, `src/graph/rome_models.cc` (orders of rings on fully connected nodes); Walecki's decomposition
//! (Alspach 2008, "The wonderful Walecki construction"). Its protocols and latencies are not modelled.

use super::pairwise;
use super::pipelined_chain;
use super::prelude::*;
use super::rings::{Order, Rings};

pub(super) static ENTRY: Entry = Entry {
    name: "library:rccl",
    help: "RCCL, among ranks on AMD GPUs of their own, as rings over all links between them; predicted only",
    serves: super::library_nccl::ENTRY.serves,
    lanes: |call| match call.collective {
        Collective::AllToAllV { .. } => (pairwise::ENTRY.lanes)(call),
        Collective::Broadcast { .. } | Collective::Reduce { .. } => (pipelined_chain::ENTRY.lanes)(call),
        collective => Ok(Box::new(Rings {
            group: call.group.clone(),
            channels: Order::Links.channels(call.group),
            order: Order::Links,
            reduce: *collective != Collective::AllGather,
            gather: *collective != Collective::ReduceScatter,
        })),
    },
    library: Some(Library::Predicted),
    by_nodes: true,
    ..Entry::PLAIN
};

impl Algorithm {
    /// `library:rccl`.
    pub fn rccl_library() -> Algorithm {
        Algorithm::new(&ENTRY, [])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::collective::Schedule;

    /// The lanes that send from one member to another, by the two.
    fn senders(group: &Group) -> (u32, BTreeMap<(u32, u32), Vec<u32>>) {
        let algorithm = Algorithm::rccl_library();
        let schedule = Schedule::new(&Collective::AllReduce, &algorithm, group, 1 << 20, 0).expect("serves");
        let mut senders: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for (member, lane) in
            (0..group.members()).flat_map(|member| (0..schedule.lanes()).map(move |lane| (member, lane)))
        {
            let next = schedule.lane(member, lane).find(|step| step.action == Action::Send).expect("sends").peer;
            senders.entry((member, next)).or_default().push(lane);
        }
        (schedule.lanes(), senders)
    }

    #[test]
    fn no_link_of_a_node_serves_two_channels() {
        for members in 3..13 {
            let (lanes, senders) = senders(&Group::nodes(&[members]));
            assert_eq!(lanes, 2 * ((members - 1) / 2), "{members} members");
            assert!(senders.values().all(|lanes| lanes.len() == 1), "{members} members");
        }
    }

    #[test]
    fn channels_leave_and_enter_nodes_on_their_own_rails() {
        let (lanes, senders) = senders(&Group::nodes(&[8, 8, 8, 8]));
        assert_eq!(lanes, 8);
        for ((from, to), lanes) in &senders {
            assert_eq!(lanes.len(), 1, "{from} to {to}");
            assert!(from / 8 == to / 8 || from % 8 == to % 8, "{from} to {to}");
        }
    }
}
