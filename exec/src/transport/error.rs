//! Defines the errors of a transport, each with the rank that failed first and its cause.

use std::fmt;

use lockstep_topology::Rank;

use super::Tag;

/// A failure that ends the whole job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// Some rank failed; every other rank gets this, with the first cause.
    Aborted {
        /// The rank that failed first.
        rank: Rank,
        /// Its error message.
        cause: String,
    },
    /// A peer ended normally although a message to or from it is still open.
    Ended {
        /// The rank that waits.
        rank: Rank,
        /// The rank that has ended.
        peer: Rank,
        /// The tag of the open message.
        tag: Tag,
    },
    /// A message is longer or shorter than its receive.
    Length {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// The tag of both.
        tag: Tag,
        /// Elements sent.
        sent: usize,
        /// Elements expected.
        expected: usize,
    },
    /// The transport does not support the request; says what to do instead.
    Unsupported(String),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportError::Aborted { rank, cause } => {
                write!(f, "the job ended because rank {} failed: {cause}", rank.0)
            }
            TransportError::Ended { rank, peer, tag } => {
                write!(f, "rank {} waits for {tag} with rank {}, which has ended", rank.0, peer.0)
            }
            TransportError::Length { from, to, tag, sent, expected } => {
                write!(f, "rank {} sent {sent} elements as {tag}, rank {} expects {expected}", from.0, to.0)
            }
            TransportError::Unsupported(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for TransportError {}
