//! Models NCCL's handling of a collective: which channels it finds, which algorithm and protocol it chooses, and how
//! long they run.
//!
//! All of it is a pure function of a [`NcclMachine`], a [`Request`] and the collective's bytes. Two sets of figures are
//! kept apart: `constants.rs` has those that NCCL itself decides by (source: NVIDIA/nccl, `src/graph/tuning.cc`,
//! `search.cc`, `topo.h`, `src/enqueue.cc`, tags v2.10.3 to v2.28), `pace.rs` those with which its kernels run, by
//! generation of GPU and by transport.

mod carried;
mod choice;
mod constants;
mod fabric;
mod generation;
mod linked;
mod machine;
mod method;
mod orders;
mod pace;
mod paths;
mod request;
mod search;
#[cfg(test)]
mod tests;
mod time;
mod way;
mod wire;

pub use carried::Carried;
pub use choice::NcclChoice;
pub use fabric::FabricShare;
pub use generation::Generation;
pub use linked::LinkedRings;
pub use machine::{NcclMachine, Network, RingOrder};
pub use method::{Method, NcclProtocol};
pub use request::{Request, Version};
pub use wire::{Terms, Wire};

use crate::{Collective, InputError};

/// A call of NCCL: a collective over a buffer, the whole gathered, scattered or exchanged one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NcclCall<'a> {
    /// The collective.
    pub collective: &'a Collective,
    /// Bytes of the whole buffer.
    pub bytes: u64,
}

/// NCCL's choice for a call, and how long it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NcclAnswer {
    /// Algorithm, protocol and channels.
    pub choice: NcclChoice,
    /// Seconds from one call to the next in back-to-back calls, as nccl-tests count.
    pub seconds: f64,
    /// The bytes that it sends over each wire.
    pub carried: Carried,
}

/// NCCL's choice and time on `machine`.
///
/// ```
/// use lockstep_topology::nccl::{NcclCall, NcclMachine, Request, answer};
/// use lockstep_topology::{Cluster, Collective};
/// let cluster = Cluster::load("dgx-a100").unwrap();
/// let gpus: Vec<_> = cluster.devices()[1..9].iter().map(|gpu| gpu.id).collect();
/// let machine = NcclMachine::of(&cluster, &gpus, 1).unwrap().expect("eight A100 behind NVSwitch");
/// let call = NcclCall { collective: &Collective::AllReduce, bytes: 1 << 30 };
/// let answer = answer(&machine, &Request::default(), &call).unwrap();
/// assert_eq!(answer.choice.to_string(), "Ring/Simple, 24 channels");
/// assert!((answer.seconds / 8.16e-3 - 1.0).abs() < 0.03, "230 GB/s on the bus");
/// ```
///
/// # Errors
/// A request that the machine or the collective does not serve, with the cure.
pub fn answer(machine: &NcclMachine, request: &Request, call: &NcclCall<'_>) -> Result<NcclAnswer, InputError> {
    let choice = choice::choose(machine, request, call)?;
    let seconds = time::seconds(machine, request, call, &choice);
    Ok(NcclAnswer { choice, seconds, carried: carried::carried(machine, call, &choice) })
}
