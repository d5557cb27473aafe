//! Calls `MPI_Allreduce` in the transport. Its lanes are those of the algorithm that Open MPI's `tuned` component
//! chooses by its fixed rules since version 4.1, by members and bytes.

use super::binomial_tree;
use super::halving_doubling::HalvingDoubling;
use super::prelude::*;
use super::recursive_doubling::RecursiveDoubling;
use super::recursive_halving::RecursiveHalving;
use super::ring::Ring;

pub(super) static ENTRY: Entry = Entry {
    name: "library:mpi",
    help: "MPI_Allreduce",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| {
        let (members, elements) = (call.members(), call.elements);
        match Taken::of(members, elements, call.dtype) {
            Taken::Doubling => Ok(Box::new(RecursiveDoubling { members })),
            Taken::Ring => Ok(Box::new(Ring { members, reduce: true, gather: true })),
            Taken::Tree => (binomial_tree::ENTRY.lanes)(call),
            // Halves at distance 1, 2, 4 …; pairs take members beyond a power of two in.
            Taken::Halving if members.is_power_of_two() => Ok(Box::new(HalvingDoubling { members })),
            Taken::Halving => Ok(Box::new(RecursiveHalving { members, reduce: true, gather: true })),
        }
    },
    library: Some(Library::Transport),
    ..Entry::PLAIN
};

/// The algorithm that the library takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Recursive doubling of the whole buffer.
    Doubling,
    /// A ring, in segments of 1 MiB where they are shorter than blocks.
    Ring,
    /// A reduce and a broadcast, one after the other.
    Tree,
    /// Rabenseifner's halving and doubling.
    Halving,
}

/// For communicators below a number of members: the algorithms of buffers below a number of bytes, and of all others.
type Rule = (u32, &'static [(u64, Taken)], Taken);

/// `ompi_coll_tuned_allreduce_intra_dec_fixed` of Open MPI 4.1, for commutative operations.
const RULES: [Rule; 11] = {
    use Taken::{Doubling, Halving, Ring, Tree};
    [
        (4, &[(8, Ring), (4 << 10, Doubling), (8 << 10, Ring), (16 << 10, Doubling), (256 << 10, Ring)], Halving),
        (8, &[(16, Ring), (8 << 10, Doubling)], Halving),
        (16, &[(8 << 10, Doubling)], Halving),
        (32, &[(64, Ring), (4 << 10, Doubling)], Halving),
        (64, &[(128, Ring)], Halving),
        (128, &[(256 << 10, Doubling)], Halving),
        (256, &[(128 << 10, Tree), (256 << 10, Doubling)], Halving),
        (512, &[(4 << 10, Tree)], Halving),
        (2048, &[(2 << 10, Tree), (16 << 10, Doubling)], Halving),
        (4096, &[(2 << 10, Tree), (4 << 10, Ring), (16 << 10, Doubling)], Halving),
        (u32::MAX, &[(2 << 10, Tree), (16 << 10, Ring), (32 << 10, Doubling)], Ring),
    ]
};

impl Taken {
    fn of(members: u32, elements: u64, dtype: Dtype) -> Taken {
        let bytes = dtype.bytes(elements);
        let [.., last] = &RULES;
        let (_, small, large) = RULES.iter().find(|(below, ..)| members < *below).unwrap_or(last);
        let taken = small.iter().find(|(below, _)| bytes < *below).map_or(*large, |(_, taken)| *taken);
        // Blocks need an element for each member.
        if matches!(taken, Taken::Ring | Taken::Halving) && elements < u64::from(members) {
            return Taken::Doubling;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Group, Schedule};

    #[test]
    fn the_library_uses_the_algorithms_of_open_mpi() {
        for (members, bytes, name) in [
            (2, 6_000, "ring"),
            (2, 1 << 20, "halving-doubling"),
            (3, 65_536, "ring"),
            (4, 1 << 20, "halving-doubling"),
            (6, 25 << 20, "recursive-halving"),
            (200, 1_024, "binomial-tree"),
            (5_000, 1 << 20, "ring"),
        ] {
            let schedule = |algorithm: &str| {
                let algorithm = algorithm.parse().expect("a known algorithm");
                Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(members), bytes / 4, 0).expect("serves")
            };
            let (library, own) = (schedule("library:mpi"), schedule(name));
            assert_eq!(library.lanes(), own.lanes(), "{members} members, {bytes} bytes");
            for member in [0, 1, members - 1] {
                let steps = |of: &Schedule| (0..of.lanes()).flat_map(|lane| of.lane(member, lane)).collect::<Vec<_>>();
                assert_eq!(steps(&library), steps(&own), "{members} members, {bytes} bytes");
            }
        }
        assert_eq!(Taken::of(4, 1_000, Dtype::F32), Taken::Doubling);
        assert_eq!(Taken::of(5_000, 4_999, Dtype::F32), Taken::Doubling, "a block for each member");
    }
}
