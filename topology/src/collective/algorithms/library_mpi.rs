//! `MPI_Allreduce`, called by the transport. Its lanes are those of Open MPI's `tuned` component by its fixed rules:
//! recursive doubling below 10,000 bytes or when there are fewer elements than members, the ring above.

use super::prelude::*;
use super::recursive_doubling::RecursiveDoubling;
use super::ring::Ring;

/// Open MPI `tuned` takes recursive doubling below this many bytes.
const SMALL_BYTES: u64 = 10_000;

pub(super) static ENTRY: Entry = Entry {
    name: "library:mpi",
    help: "MPI_Allreduce",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| {
        let (members, elements) = (call.members(), call.elements);
        let small = elements.saturating_mul(ELEMENT_BYTES) < SMALL_BYTES || elements < u64::from(members);
        Ok(if small {
            Box::new(RecursiveDoubling { members })
        } else {
            Box::new(Ring { members, reduce: true, gather: true })
        })
    },
    library: Some(Library::Transport),
    ..Entry::PLAIN
};
