//! How the ranks of a measured run meet: `--transport` and the key `transport`.

use std::fmt;
use std::str::FromStr;

use lockstep_topology::HostingRule;

/// How the ranks of a job meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// A process per host, a thread per rank: messages through memory.
    #[default]
    Threads,
    /// A process per rank, or for several neighbours: messages between processes through MPI.
    Mpi,
}

impl TransportKind {
    /// How it gathers ranks into processes where nobody has started any.
    pub fn hosting(self) -> HostingRule {
        match self {
            TransportKind::Threads => HostingRule::PerHost,
            TransportKind::Mpi => HostingRule::PerRank,
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportKind::Threads => "threads",
            TransportKind::Mpi => "mpi",
        })
    }
}

impl FromStr for TransportKind {
    type Err = String;

    fn from_str(text: &str) -> Result<TransportKind, String> {
        match text {
            "threads" => Ok(TransportKind::Threads),
            "mpi" => Ok(TransportKind::Mpi),
            _ => Err(format!("{text:?}: unknown transport: write threads or mpi")),
        }
    }
}
