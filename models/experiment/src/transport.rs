//! `TransportKind`: selects the transport between the ranks of a measured run, for `--transport` and the key
//! `transport`.

use lockstep_topology::HostingRule;

/// The transport between the ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// A process per host, a thread per rank: messages through memory.
    #[default]
    Threads,
    /// A process per rank, or for several consecutive ranks: messages between processes through MPI.
    Mpi,
}

impl TransportKind {
    /// How it groups ranks into processes where none have been started.
    pub fn hosting(self) -> HostingRule {
        match self {
            TransportKind::Threads => HostingRule::PerHost,
            TransportKind::Mpi => HostingRule::PerRank,
        }
    }
}

lockstep_topology::named!(TransportKind, "transport": Threads = "threads", Mpi = "mpi");
