//! The names of the algorithms, as written on the command line and in experiments.

use std::fmt;
use std::str::FromStr;

use crate::{InputError, nearest};

/// How a collective is performed; the variant's file holds source and formulas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `ring`: each shard travels round the ring, once to be summed and once to be spread.
    Ring,
    /// `halving-doubling`: pairs at distance 1, 2, 4 … exchange halves; binary blocks for any number of members.
    HalvingDoubling,
    /// `binomial-tree`: up and down a binomial tree.
    BinomialTree,
    /// `tree:4`: up and down a tree in which each inner member has that many children; with all of them below the root it is a
    /// server.
    Tree {
        /// The children of an inner member.
        branching: u32,
    },
    /// `pipelined-chain`: chunks are summed along the ring to one root and return in the opposite direction.
    PipelinedChain,
    /// `multi-color:4`: that many k-ary trees, each with its share of the buffer.
    MultiColor {
        /// Number of trees, and the arity of each.
        colors: u32,
    },
    /// `parameter-server:2` or `parameter-server:1:dedicated`: servers own shards, sum them and send them back.
    ParameterServer {
        /// Number of servers: the first members that way, or the last ones where dedicated.
        servers: u32,
        /// Whether the servers only serve and contribute nothing.
        dedicated: bool,
    },
    /// `pairwise`: alltoallv in which step `s` exchanges with the members at distance `s`.
    Pairwise,
    /// `direct`: every part straight to its owner and from it straight to everybody.
    Direct,
    /// `hierarchical:ring`: sums in each node, the named algorithm across the nodes' leaders, broadcast in each node.
    Hierarchical(Box<Algorithm>),
    /// `library:mpi`, `library:nccl`: a vendor's allreduce, called by the executor.
    Library(Library),
}

/// A library whose collective is called instead of running our lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Library {
    /// `MPI_Allreduce`. Its lanes are those of Open MPI's `tuned` component by its fixed rules: recursive doubling below
    /// 10,000 bytes or when there are fewer elements than members, the ring above.
    Mpi,
    /// `ncclAllReduce`, on the memory of GPUs. Its lanes are those of the ring, whatever the size: NCCL chooses among algorithms by
    /// tables of its own, which nobody but NCCL knows for a machine.
    Nccl,
}

/// What can be written, for error messages.
const FORMS: [&str; 12] = [
    "ring",
    "halving-doubling",
    "binomial-tree",
    "tree:4",
    "pipelined-chain",
    "multi-color:4",
    "parameter-server:1",
    "pairwise",
    "direct",
    "hierarchical:ring",
    "library:mpi",
    "library:nccl",
];

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Ring => f.write_str("ring"),
            Algorithm::HalvingDoubling => f.write_str("halving-doubling"),
            Algorithm::BinomialTree => f.write_str("binomial-tree"),
            Algorithm::Tree { branching } => write!(f, "tree:{branching}"),
            Algorithm::PipelinedChain => f.write_str("pipelined-chain"),
            Algorithm::MultiColor { colors } => write!(f, "multi-color:{colors}"),
            Algorithm::ParameterServer { servers, dedicated } => {
                write!(f, "parameter-server:{servers}{}", if *dedicated { ":dedicated" } else { "" })
            }
            Algorithm::Pairwise => f.write_str("pairwise"),
            Algorithm::Direct => f.write_str("direct"),
            Algorithm::Hierarchical(across) => write!(f, "hierarchical:{across}"),
            Algorithm::Library(Library::Mpi) => f.write_str("library:mpi"),
            Algorithm::Library(Library::Nccl) => f.write_str("library:nccl"),
        }
    }
}

/// More colours than this take longer to go through than any buffer needs.
const MOST_COLORS: u32 = 4096;

impl FromStr for Algorithm {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Algorithm, InputError> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, rest) {
            ("ring", None) => Ok(Algorithm::Ring),
            ("halving-doubling", None) => Ok(Algorithm::HalvingDoubling),
            ("binomial-tree", None) => Ok(Algorithm::BinomialTree),
            ("pipelined-chain", None) => Ok(Algorithm::PipelinedChain),
            ("pairwise", None) => Ok(Algorithm::Pairwise),
            ("direct", None) => Ok(Algorithm::Direct),
            ("library", Some("mpi")) => Ok(Algorithm::Library(Library::Mpi)),
            ("library", Some("nccl")) => Ok(Algorithm::Library(Library::Nccl)),
            ("tree", Some(count)) => Ok(Algorithm::Tree { branching: positive(text, count)? }),
            ("multi-color", Some(count)) => match positive(text, count)? {
                colors @ ..=MOST_COLORS => Ok(Algorithm::MultiColor { colors }),
                _ => Err(refusal(text, &format!("each colour is a tree of its own: take at most {MOST_COLORS}"))),
            },
            ("parameter-server", Some(rest)) => {
                let (count, dedicated) = match rest.split_once(':') {
                    Some((count, "dedicated")) => (count, true),
                    Some(_) => return Err(refusal(text, "only `:dedicated` may follow the number of servers")),
                    None => (rest, false),
                };
                Ok(Algorithm::ParameterServer { servers: positive(text, count)?, dedicated })
            }
            // Refused before the rest is read, which may nest as deep as a file is long.
            ("hierarchical", Some(across)) if across.split(':').next() == Some(name) => {
                Err(refusal(text, "there are two levels: name the algorithm across nodes"))
            }
            ("hierarchical", Some(across)) => Ok(Algorithm::Hierarchical(Box::new(across.parse()?))),
            ("tree", None) => Err(refusal(text, "needs the children of an inner member: write `tree:4`")),
            ("multi-color", None) => Err(refusal(text, "needs the number of colours: write `multi-color:4`")),
            ("parameter-server", None) => Err(refusal(text, "needs the number of servers: write `parameter-server:1`")),
            ("hierarchical", None) => Err(refusal(text, "needs the algorithm across nodes: write `hierarchical:ring`")),
            ("library", _) => Err(refusal(text, "the libraries are `library:mpi` and `library:nccl`")),
            (known, Some(_)) if FORMS.contains(&known) => Err(refusal(text, &format!("`{known}` takes no parameter"))),
            _ => {
                let near = nearest(name, FORMS.map(|form| form.split(':').next().unwrap_or(form)));
                let shown = FORMS.iter().filter(|form| near.iter().any(|name| form.starts_with(name))).copied();
                let shown: Vec<&str> = if near.is_empty() { FORMS.to_vec() } else { shown.collect() };
                Err(refusal(text, &format!("unknown algorithm; did you mean {}?", shown.join(", "))))
            }
        }
    }
}

/// An error about the algorithm `text`.
fn refusal(text: &str, message: &str) -> InputError {
    InputError::new("", text, message)
}

/// A count of at least one.
fn positive(text: &str, count: &str) -> Result<u32, InputError> {
    match count.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(refusal(text, &format!("`{count}` must be a whole number of at least 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_back_as_written() {
        let more = ["parameter-server:2:dedicated", "hierarchical:halving-doubling", "hierarchical:multi-color:2"];
        for form in FORMS.iter().chain(&more) {
            assert_eq!(form.parse::<Algorithm>().map(|a| a.to_string()).as_deref(), Ok(*form));
        }
    }

    #[test]
    fn a_wrong_name_is_refused_with_a_cure() {
        for (text, cure) in [
            ("rinng", "ring"),
            ("ring:2", "takes no parameter"),
            ("multi-color", "multi-color:4"),
            ("multi-color:0", "at least 1"),
            ("multi-color:4097", "at most 4096"),
            ("parameter-server", "parameter-server:1"),
            ("parameter-server:-1", "at least 1"),
            ("parameter-server:1:shared", "dedicated"),
            ("hierarchical", "hierarchical:ring"),
            ("hierarchical:hierarchical:ring", "two levels"),
            ("hierarchical:bogus-algorithm", "ring"),
            ("library:gloo", "library:nccl"),
            ("", "ring"),
        ] {
            let refusal = text.parse::<Algorithm>().expect_err(text);
            assert!(refusal.to_string().contains(cure), "{text}: {refusal}");
        }
        // However deep it nests, and whatever is at the bottom.
        assert!("hierarchical:".repeat(1 << 20).parse::<Algorithm>().is_err());
    }
}
