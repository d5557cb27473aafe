//! Defines the interface of messages between ranks: post, poll, and one blocking wait.
//!
//! A rank on a CPU is one thread that computes and makes communication progress between its tasks, so nothing here
//! blocks but [`Transport::wait`], and a transport has no thread of its own where each rank is a process or a thread.
//! Where possible there is no intermediate copy: the receiver copies or sums directly from the sender's memory.

use std::fmt;
use std::time::Instant;

use lockstep_topology::{ErrorPlace, Rank};

pub mod control;
mod error;
pub mod memory;
#[cfg(feature = "mpi")]
pub mod mpi;
mod slab;

pub use crate::number::Number;
pub use crate::region::{Combine, Port, Region, RegionMut};
pub use error::TransportError;

/// Identifies messages: those with equal sender, receiver and tag are matched in the order of posting.
///
/// Lane k uses slot `k mod window`. Lanes start in order, and lane `k + window` only after lane `k`
/// is done, on the sender as on the receiver, so the order of posting separates lanes that share a slot, and
/// successive runs of one exchange too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// 0 for control messages, else 1 + the exchange's number.
    pub(crate) exchange: u32,
    pub(crate) slot: u32,
}

impl Tag {
    /// The tag of the lanes in `slot` of exchange number `exchange`.
    pub fn exchange(exchange: u32, slot: u32) -> Tag {
        Tag { exchange: exchange + 1, slot }
    }

    /// The tag of messages outside of every exchange, distinguished by `kind`; see [`control`].
    pub const fn control(kind: u32) -> Tag {
        Tag { exchange: 0, slot: kind }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exchange {
            0 => write!(f, "control message {}", self.slot),
            exchange => write!(f, "exchange {} slot {}", exchange - 1, self.slot),
        }
    }
}

/// A send in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub(crate) u32);

/// A receive in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecvId(pub(crate) u32);

/// One rank's endpoint.
///
/// After an error an endpoint cannot be used: the job has ended. Dropping an endpoint with messages in flight ends the
/// job.
pub trait Transport {
    /// The rank of this endpoint.
    fn rank(&self) -> Rank;

    /// Number of ranks in the job.
    fn ranks(&self) -> u32;

    /// Starts to send `data`, which must stay in place and unchanged until [`Transport::send_done`] returns true.
    ///
    /// # Errors
    /// When the job has ended, or the transport does not support the tag.
    fn post_send(&mut self, to: Rank, tag: Tag, data: Region) -> Result<SendId, TransportError>;

    /// Whether the send is complete and its data free again; the id is invalid after `true`.
    ///
    /// # Errors
    /// When the job has ended, or the receiver has.
    fn send_done(&mut self, id: SendId) -> Result<bool, TransportError>;

    /// Starts to receive into `into`. For [`Combine::Sum`], `scratch` must have at least the message's length, unless
    /// [`Transport::needs_scratch`] is false.
    ///
    /// # Errors
    /// When the job has ended, or the transport does not support the tag.
    fn post_recv(
        &mut self,
        from: Rank,
        tag: Tag,
        into: RegionMut,
        combine: Combine,
        scratch: RegionMut,
    ) -> Result<RecvId, TransportError>;

    /// Whether the message has arrived and is combined into its region; the id is invalid after `true`.
    ///
    /// # Errors
    /// When the job or the sender has ended, or the lengths differ.
    fn recv_done(&mut self, id: RecvId) -> Result<bool, TransportError>;

    /// Checks once for events; call it before a round of `send_done` and `recv_done`.
    ///
    /// # Errors
    /// When the job has ended.
    fn poll(&mut self) -> Result<(), TransportError>;

    /// Blocks until something may have changed since the last call, or until the deadline; changes become visible with
    /// the next [`Transport::poll`].
    ///
    /// # Errors
    /// When the job has ended.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), TransportError>;

    /// Ends the job: every other rank's current or next call returns this cause.
    fn abort(&mut self, cause: &str);

    /// Whether sums need the caller's scratch memory.
    fn needs_scratch(&self) -> bool;

    /// Whether messages to and from `rank` stay inside this process, so that both ends may be devices that can access
    /// each other.
    fn is_near(&self, rank: Rank) -> bool {
        rank == self.rank()
    }

    /// Whether messages that leave this process may be in device memory too; the same in all processes.
    fn takes_devices(&self) -> bool {
        false
    }

    /// The MPI library's own allreduce over `ranks`, blocking; nothing else may be in flight in this process.
    ///
    /// # Errors
    /// When the transport is not MPI, or the process has several ranks.
    fn library_allreduce(&mut self, _ranks: &[Rank], _data: RegionMut) -> Result<(), TransportError> {
        let transport = ErrorPlace::Flag("transport");
        let message =
            format!("library:mpi needs MPI with one rank in each process; use {transport} mpi, or another algorithm");
        Err(TransportError::Unsupported(message))
    }
}
