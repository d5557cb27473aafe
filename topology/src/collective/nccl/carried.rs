//! Counts bytes on the wires: what a call sends over a GPU's NVLinks and over a NIC, including the flags of the
//! protocols.

use super::{Method, NcclCall, NcclChoice, NcclMachine, NcclProtocol};
use crate::Collective;

/// Bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carried {
    /// By a GPU to other GPUs, however they are linked.
    pub sent: f64,
    /// Over all NVLinks of a GPU.
    pub nvlink: f64,
    /// Over a NIC.
    pub nic: f64,
    /// Read from and written to the memory of a GPU.
    pub memory: f64,
}

/// The bytes of a call, S being its buffer among n ranks, h of them a node: rings 2S(n − 1)/n for allreduce and half of
/// it for its halves and PAT, chains S, trees 2S inside and S between two nodes, else 2S; NVLS S(1 + 1/h).
///
/// What a GPU receives is written into a buffer, read from there, and added to what the GPU has or written to its
/// destination: three accesses of its memory for each byte. An NVSwitch reads the buffer once and writes the sum once.
pub(super) fn carried(machine: &NcclMachine, call: &NcclCall<'_>, choice: &NcclChoice) -> Carried {
    let (ranks, local) = (f64::from(machine.ranks), f64::from(machine.per_node()));
    let others = (ranks - 1.0) / ranks;
    let trees = if machine.nodes == 2 { 1.0 } else { 2.0 };
    let (inside, outside) = match choice.method {
        Method::Ring => {
            let volume = match call.collective {
                Collective::AllReduce => 2.0 * others,
                Collective::AllGather | Collective::ReduceScatter => others,
                _ => 1.0,
            };
            (volume, volume)
        }
        Method::Pat => (others, others),
        Method::Tree => (2.0, trees),
        Method::Nvls | Method::NvlsTree => (1.0 + 1.0 / local, trees),
        Method::Pairs => ((local - 1.0) / ranks, local * (ranks - local) / ranks),
    };
    let flags = match choice.protocol {
        NcclProtocol::Ll => 2.0,
        NcclProtocol::Ll128 => 128.0 / 120.0,
        NcclProtocol::Simple => 1.0,
    };
    let bytes = call.bytes as f64 * flags;
    Carried {
        sent: inside * bytes,
        nvlink: if machine.nvlink.is_some() { inside * bytes } else { 0.0 },
        nic: if machine.nodes > 1 { outside * bytes / f64::from(machine.nics.max(1)) } else { 0.0 },
        memory: match choice.method {
            Method::Nvls | Method::NvlsTree => 2.0 * call.bytes as f64,
            _ => 3.0 * inside * bytes,
        },
    }
}
