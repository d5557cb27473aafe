//! `ncclAllReduce`, on the memory of GPUs. Its lanes are those of the ring, whatever the size: NCCL chooses among algorithms by
//! tables of its own, which are not known outside of NCCL.

use super::prelude::*;
use super::ring::Ring;

pub(super) static ENTRY: Entry = Entry {
    name: "library:nccl",
    help: "ncclAllReduce, among ranks on GPUs of their own",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| Ok(Box::new(Ring { members: call.members(), reduce: true, gather: true })),
    library: Some(Library::Devices),
    ..Entry::PLAIN
};
