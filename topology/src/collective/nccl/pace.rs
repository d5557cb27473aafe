//! Lists the figures of NCCL's kernels by generation of GPU, transport and version; none is specific to a machine.
//!
//! Chosen with the curves of `experiments/collectives` (fitted) unless a comment names another source.
//! Microseconds and GB/s.

use super::{Generation, NcclProtocol, Version};

/// The share of the NVLinks' line rate that rings reach with Simple: less packets' headers and synchronisation.
pub(super) fn ring_share(generation: Generation) -> f64 {
    match generation {
        // As its 20 of 25 GB/s a link (assumed).
        Generation::Volta => 0.80,
        Generation::Ampere => 0.783,
        Generation::Hopper => 0.813,
        Generation::Blackwell => 0.757,
    }
}

/// The share of the line rate of PCI Express that copies reach below one root complex: 24.6 of 31.5 GB/s, as adapters of
/// 200 Gbit/s do; NCCL itself counts 24.
pub(super) const PCIE_SHARE: f64 = 0.78;

/// The same between GPUs through a root complex: about 20 of 31.5 GB/s among four and eight A100 (fitted).
pub(super) const PCIE_THROUGH_HOST: f64 = 0.64;

/// The same from a GPU to a NIC, where one waits for the other with every message: 16 of 31.5 GB/s (fitted).
pub(super) const NIC_THROUGH_HOST: f64 = 0.51;

/// The limit of a channel: one thread block's copies (NCCL's own speeds of channels).
pub(super) fn of_channel(generation: Generation) -> f64 {
    match generation {
        Generation::Volta | Generation::Ampere => 20.0,
        Generation::Hopper => 30.0,
        Generation::Blackwell => 45.0,
    }
}

/// The share of the rate of Simple that a protocol leaves. LL's share is of 4 in 8 bytes, halved again across nodes,
/// where its flags are polled in the host's memory.
pub(super) fn protocol_share(protocol: NcclProtocol, across: bool) -> f64 {
    match protocol {
        NcclProtocol::Ll if across => 0.25,
        NcclProtocol::Ll => 0.5,
        NcclProtocol::Ll128 => 0.83,
        NcclProtocol::Simple => 1.0,
    }
}

/// The share of the NVLinks' line rate that sums in the switch reach: NCCL's 0.85 and 0.74 of its 20.6 and 40.1
/// GB/s a link.
pub(super) fn nvls_share(generation: Generation) -> f64 {
    if generation == Generation::Blackwell { 0.60 } else { 0.68 }
}

/// The share of that which is left where chunks are of `kib` KiB: the synchronisation of short ones is not hidden.
pub(super) fn nvls_chunk_share(generation: Generation, kib: u32) -> f64 {
    match (generation == Generation::Blackwell, kib) {
        (_, 128..) => 1.0,
        (false, 64..) => 0.95,
        (false, 32..) => 0.83,
        (false, _) => 0.7,
        (true, 64..) => 0.87,
        (true, 32..) => 0.6,
        (true, _) => 0.4,
    }
}

/// From the first word at the switch until the last GPU has the sum.
pub(super) const NVLS_PASS: f64 = 12.0;

/// The share of their payload that NICs reach: on V100 every chunk is flushed after it.
pub(super) fn nic_share(generation: Generation) -> f64 {
    if generation == Generation::Volta { 0.94 } else { 0.98 }
}

/// The share left to an out-of-place allgather, which copies its own part.
pub(super) const OWN_COPY: f64 = 0.95;

/// The share of a ring's rate that sends and receives reach: pairs are of unequal speed within a round.
pub(super) const PAIRS_SHARE: f64 = 0.96;

/// Launches on one GPU after another, back to back.
const LAUNCH: f64 = 16.0;

/// A call's time besides that of its kernels, where a process launches on `per_process` GPUs.
pub(super) fn launch(generation: Generation, per_process: u32) -> f64 {
    // Hosts of later GPUs are faster.
    let another = if generation >= Generation::Hopper { 0.86 } else { 2.0 };
    LAUNCH + another * (f64::from(per_process) - 1.0)
}

/// The least time from one call to the next where one process launches on several GPUs in turn; until 2.13 each channel
/// of each GPU is one more write to its memory (the version is assumed).
pub(super) fn least(version: Version, per_process: u32, channels: u32) -> f64 {
    if per_process < 2 {
        return 0.0;
    }
    let writes = if version.minor < 14 { 0.206 * f64::from(channels) } else { 0.0 };
    f64::from(per_process) * (4.25 + writes)
}

/// The same for an alltoall, which is a call of sends and receives; assumed for one process per GPU.
pub(super) fn least_of_pairs(per_process: u32) -> f64 {
    if per_process < 2 { 30.0 } else { 10.9 * f64::from(per_process) }
}
