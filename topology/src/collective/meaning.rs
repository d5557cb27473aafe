//! What a collective leaves behind, apart from how it is done.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{InputError, nearest};

/// What holds after a collective over the members of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every member ends with the sum of all contributions.
    AllReduce,
    /// Member `i` ends with the sum of all contributions in `shard(elements, members, i)`.
    ReduceScatter,
    /// Member `i` starts with `shard(elements, members, i)`; every member ends with all shards.
    AllGather,
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
    /// Every member sends a block to every member, itself included. It reads an input buffer (its blocks in the order of
    /// their destinations) and writes an output buffer (its blocks in the order of their sources).
    AllToAllV {
        /// `counts[from · members + to]` elements.
        counts: Arc<[u64]>,
    },
}

/// The names of the collectives, in the order of the enum.
const NAMES: [&str; 6] = ["allreduce", "reduce-scatter", "allgather", "broadcast", "reduce", "alltoallv"];

impl Collective {
    /// Its name on the command line, without a root.
    pub fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce => NAMES[0],
            Collective::ReduceScatter => NAMES[1],
            Collective::AllGather => NAMES[2],
            Collective::Broadcast { .. } => NAMES[3],
            Collective::Reduce { .. } => NAMES[4],
            Collective::AllToAllV { .. } => NAMES[5],
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collective::Broadcast { root } | Collective::Reduce { root } => write!(f, "{}:{root}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

/// Reads `allreduce`, `reduce-scatter`, `allgather`, `broadcast`, `broadcast:3` (its root, else 0), `reduce:3`; an
/// alltoallv has counts, which no name can carry.
impl FromStr for Collective {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Collective, InputError> {
        let (name, root) = match text.split_once(':') {
            Some((name @ ("broadcast" | "reduce"), root)) => {
                let parsed = root.parse().map_err(|_| {
                    InputError::new("", text, format!("`{root}` is not a member: write `{name}:0` for the first one"))
                })?;
                (name, parsed)
            }
            _ => (text, 0),
        };
        match name {
            "allreduce" => Ok(Collective::AllReduce),
            "reduce-scatter" => Ok(Collective::ReduceScatter),
            "allgather" => Ok(Collective::AllGather),
            "broadcast" => Ok(Collective::Broadcast { root }),
            "reduce" => Ok(Collective::Reduce { root }),
            "alltoallv" => Err(InputError::new("", text, "alltoallv needs the count of every pair of members")),
            _ => {
                let near = nearest(name, NAMES);
                let cure = if near.is_empty() { NAMES.join(", ") } else { near.join(" or ") };
                Err(InputError::new("", text, format!("unknown collective; did you mean {cure}?")))
            }
        }
    }
}
