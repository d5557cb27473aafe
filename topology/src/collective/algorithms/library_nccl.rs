//! Calls NCCL's collectives on GPU memory. [`crate::nccl`] determines what NCCL chooses and how long it runs.
//!
//! Its lanes are those that NCCL runs where rings serve: they give messages, and times on devices for which NCCL's
//! figures are not known. Of the calls, GPUs execute `ncclAllReduce`; the others are predicted.

use super::pairwise;
use super::pipelined_chain;
use super::prelude::*;
use super::ring::Ring;
use crate::nccl::Request;

pub(super) static ENTRY: Entry = Entry {
    name: "library:nccl",
    parameters: &[Parameter::Nccl],
    help: "NCCL, among ranks on GPUs of their own; @VERSION, :ALGORITHM, :PROTOCOL and :CHANNELS may follow",
    serves: |collective| {
        matches!(
            collective,
            Collective::AllReduce
                | Collective::ReduceScatter
                | Collective::AllGather
                | Collective::Broadcast { .. }
                | Collective::Reduce { .. }
                | Collective::AllToAllV { .. }
        )
    },
    lanes: |call| match call.collective {
        Collective::AllToAllV { .. } => (pairwise::ENTRY.lanes)(call),
        Collective::Broadcast { .. } | Collective::Reduce { .. } => (pipelined_chain::ENTRY.lanes)(call),
        collective => Ok(Box::new(Ring {
            members: call.members(),
            reduce: *collective != Collective::AllGather,
            gather: *collective != Collective::ReduceScatter,
        })),
    },
    library: Some(Library::Devices),
    ..Entry::PLAIN
};

impl Algorithm {
    /// `library:nccl` of the newest version, free to choose.
    pub fn nccl_library() -> Algorithm {
        Algorithm::new(&ENTRY, [Value::Nccl(Request::default())])
    }
}
