//! `Collective`: defines the result of a collective, independently of how it is computed.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use super::shard::shard;
use crate::aliases::ours;
use crate::{InputError, nearest};

/// What holds after a collective over the members of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every member ends with the sum of all contributions.
    AllReduce,
    /// The first member of each node, its leader, ends with the sum of all contributions.
    AllReduceToLeaders,
    /// Member `i` ends with the sum of all contributions in `shard(elements, members, i)`.
    ReduceScatter,
    /// Member `i` starts with `shard(elements, members, i)`; every member ends with all shards.
    AllGather,
    /// As `ReduceScatter`, with parts of any size: member `i` ends with the sum in the `i`-th of consecutive parts.
    ReduceScatterV {
        /// Elements of each member's part, zero allowed; together the buffer.
        counts: Arc<[u64]>,
    },
    /// As `AllGather`, with parts of any size: member `i` starts with the `i`-th of consecutive parts.
    AllGatherV {
        /// Elements of each member's part, zero allowed; together the buffer.
        counts: Arc<[u64]>,
    },
    /// Every member ends with the root's buffer.
    Broadcast {
        /// The member that has the data.
        root: u32,
    },
    /// The root ends with the sum of all contributions.
    Reduce {
        /// The member that gets the sum.
        root: u32,
    },
    /// Member `i` ends with the root's `shard(elements, members, i)`.
    Scatter {
        /// The member that has the data.
        root: u32,
    },
    /// Member `i` starts with `shard(elements, members, i)`; the root ends with all shards.
    Gather {
        /// The member that gets the data.
        root: u32,
    },
    /// As `Gather`, with consecutive parts of any size: member `i` starts with the `i`-th, the root ends with all.
    GatherV {
        /// The member that gets the data.
        root: u32,
        /// Elements of each member's part, zero allowed; together the buffer.
        counts: Arc<[u64]>,
    },
    /// Every member sends a block to every member, in place: the buffer has a block for each pair, in the order of sources and
    /// then of destinations, `shard(elements, members², from · members + to)`. Member `i` starts with its row, whose source
    /// it is, and ends with its column.
    AllToAll,
    /// Every member sends a block to every member, itself included. It reads an input buffer (its blocks in the order
    /// of their destinations) and writes an output buffer (its blocks in the order of their sources).
    AllToAllV {
        /// `counts[from · members + to]` elements.
        counts: Arc<[u64]>,
    },
}

/// The names of the collectives.
const NAMES: [&str; 12] = [
    "allreduce",
    "reduce-scatter",
    "allgather",
    "broadcast",
    "reduce",
    "alltoallv",
    "reduce-scatterv",
    "allgatherv",
    "scatter",
    "gather",
    "allreduce-to-leaders",
    "gatherv",
];

impl Collective {
    /// The elements of the block that `from` sends to `to` in an all-to-all in place among `members`.
    pub fn block(elements: u64, members: u32, (from, to): (u32, u32)) -> Range<u64> {
        let members = u64::from(members);
        shard(elements, members * members, u64::from(from) * members + u64::from(to))
    }

    /// The elements that belong to `member` of `members`, in collectives that know parts: by its counts, or evenly.
    pub fn part(&self, elements: u64, members: u32, member: u32) -> Range<u64> {
        match self {
            Collective::ReduceScatterV { counts }
            | Collective::AllGatherV { counts }
            | Collective::GatherV { counts, .. } => {
                let start: u64 = counts[..member as usize].iter().sum();
                start..start + counts[member as usize]
            }
            _ => shard(elements, members.into(), member.into()),
        }
    }

    /// Whether members add contributions; else they only move data.
    ///
    /// ```
    /// # use lockstep_topology::Collective;
    /// let sums = ["reduce:0", "scatter:0", "allgather"].map(|name| name.parse::<Collective>().unwrap().sums());
    /// assert_eq!(sums, [true, false, false]);
    /// ```
    pub fn sums(&self) -> bool {
        match self {
            Collective::AllReduce
            | Collective::AllReduceToLeaders
            | Collective::ReduceScatter
            | Collective::ReduceScatterV { .. }
            | Collective::Reduce { .. } => true,
            Collective::AllGather
            | Collective::AllGatherV { .. }
            | Collective::Broadcast { .. }
            | Collective::Scatter { .. }
            | Collective::Gather { .. }
            | Collective::GatherV { .. }
            | Collective::AllToAll
            | Collective::AllToAllV { .. } => false,
        }
    }

    /// The member that holds or gets all of the data, where there is one.
    pub fn root(&self) -> Option<u32> {
        match *self {
            Collective::Broadcast { root }
            | Collective::Reduce { root }
            | Collective::Scatter { root }
            | Collective::Gather { root }
            | Collective::GatherV { root, .. } => Some(root),
            _ => None,
        }
    }

    /// The least that each of `members` must send per byte of the buffer, as nccl-tests define the bus bandwidth.
    ///
    /// ```
    /// # use lockstep_topology::Collective;
    /// let factors = [Collective::AllReduce, Collective::AllGather, Collective::Broadcast { root: 0 }].map(|c| c.bus_factor(4));
    /// assert_eq!(factors, [1.5, 0.75, 1.0]);
    /// assert_eq!(Collective::AllReduce.bus_factor(1), 0.0);
    /// ```
    pub fn bus_factor(&self, members: u32) -> f64 {
        let others = f64::from(members.saturating_sub(1)) / f64::from(members.max(1));
        match self {
            Collective::AllReduce | Collective::AllReduceToLeaders => 2.0 * others,
            Collective::Broadcast { .. } | Collective::Reduce { .. } => 1.0,
            Collective::AllToAll => others / f64::from(members.max(1)),
            _ => others,
        }
    }

    /// Its name on the command line, without a root.
    pub fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce => NAMES[0],
            Collective::ReduceScatter => NAMES[1],
            Collective::AllGather => NAMES[2],
            Collective::Broadcast { .. } => NAMES[3],
            Collective::Reduce { .. } => NAMES[4],
            Collective::AllToAllV { .. } => NAMES[5],
            Collective::ReduceScatterV { .. } => NAMES[6],
            Collective::AllGatherV { .. } => NAMES[7],
            Collective::Scatter { .. } => NAMES[8],
            Collective::Gather { .. } => NAMES[9],
            Collective::AllReduceToLeaders => NAMES[10],
            Collective::GatherV { .. } => NAMES[11],
            Collective::AllToAll => "alltoall",
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.root().map_or(Ok(()), |root| write!(f, ":{root}"))
    }
}

/// Reads `allreduce`, `allreduce-to-leaders`, `reduce-scatter`, `allgather`, `broadcast`, `broadcast:3` (its root, else
/// 0), `reduce:3`, `scatter:3`, `gather:3`; collectives with counts cannot be read from a name.
impl FromStr for Collective {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Collective, InputError> {
        let text = &*ours("collective", text, NAMES).map_err(|message| InputError::new("", text, message))?;
        let (name, root) = match text.split_once(':') {
            Some((name @ ("broadcast" | "reduce" | "scatter" | "gather"), root)) => {
                let parsed = root.parse().map_err(|_| {
                    InputError::new("", text, format!("`{root}` is not a member: write `{name}:0` for the first one"))
                })?;
                (name, parsed)
            }
            _ => (text, 0),
        };
        match name {
            "allreduce" => Ok(Collective::AllReduce),
            "allreduce-to-leaders" => Ok(Collective::AllReduceToLeaders),
            "reduce-scatter" => Ok(Collective::ReduceScatter),
            "allgather" => Ok(Collective::AllGather),
            "broadcast" => Ok(Collective::Broadcast { root }),
            "reduce" => Ok(Collective::Reduce { root }),
            "scatter" => Ok(Collective::Scatter { root }),
            "gather" => Ok(Collective::Gather { root }),
            "alltoallv" => Err(InputError::new("", text, "alltoallv needs the count of every pair of members")),
            "reduce-scatterv" | "allgatherv" | "gatherv" => {
                let message = format!(
                    "{name} needs a count for every member: strategies have them; use reduce-scatter, allgather or gather"
                );
                Err(InputError::new("", text, message))
            }
            _ => {
                let near = nearest(name, NAMES);
                let cure = if near.is_empty() { NAMES.join(", ") } else { near.join(" or ") };
                Err(InputError::new("", text, format!("unknown collective; did you mean {cure}?")))
            }
        }
    }
}
