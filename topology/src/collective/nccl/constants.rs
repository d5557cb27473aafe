//! Lists the figures by which NCCL chooses, by version: latencies in microseconds, bandwidths in GB/s, as
//! in its source.
//!
//! Source: NVIDIA/nccl, `src/graph/tuning.cc`, tags v2.10.3 (to 2.17), v2.18.5, v2.19.3 (2.19 and 2.20), v2.21 to
//! v2.28. They decide what NCCL takes, not how long it runs: that is `time.rs`.

use super::{Generation, Method, NcclProtocol, Version};

/// The kinds of links in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    /// Between GPUs of a node by NVLink.
    NvLink,
    /// Between GPUs of a node by PCI Express.
    Pcie,
    /// Between nodes.
    Network,
}

/// Microseconds that a call takes besides its steps, by protocol.
pub(super) fn base(version: Version, method: Method, protocol: NcclProtocol) -> f64 {
    let early = version.minor < 18;
    let row = match method {
        Method::Tree if early => [4.4, 4.4, 0.0],
        Method::Tree if version.minor < 23 => [6.8, 14.0, 0.0],
        Method::Tree => [6.8, 14.0, 8.4],
        Method::Ring if early => [3.6, 10.0, 8.4],
        Method::Ring => [6.6, 14.0, 8.4],
        Method::Pat => [0.0, 0.0, 8.0],
        Method::Nvls | Method::NvlsTree | Method::Pairs => [0.0; 3],
    };
    row[protocol as usize]
}

/// Microseconds per step.
pub(super) fn step(version: Version, hop: Hop, method: Method, protocol: NcclProtocol) -> f64 {
    let minor = version.minor;
    let early = minor < 18;
    // Between 2.19 and 2.22 a step of Tree/Simple counts as its whole chunk does.
    let short = minor == 18 || minor >= 23;
    let row = match (hop, method) {
        (Hop::NvLink, Method::Tree) => [if early { 0.52 } else { 0.6 }, 1.25, if short { 4.0 } else { 28.0 }],
        (Hop::NvLink, Method::Ring) => [if early { 0.47 } else { 0.6 }, 1.9, 3.4],
        (Hop::NvLink, Method::Nvls | Method::NvlsTree) => [0.0, 0.0, if minor < 21 { 23.0 } else { 25.0 }],
        (Hop::NvLink | Hop::Pcie, Method::Pat) => [0.0; 3],
        (Hop::NvLink, Method::Pairs) => [0.6, 1.9, 3.4],
        (Hop::Pcie, Method::Tree) => [1.0, 1.9, if short { 4.0 } else { 28.0 }],
        (Hop::Pcie, Method::Ring | Method::Pairs) => [1.0, 2.5, 5.7],
        (Hop::Pcie, Method::Nvls | Method::NvlsTree) => [0.0; 3],
        (Hop::Network, Method::Tree) => [5.0, 8.5, if short { 14.0 } else { 28.0 }],
        (Hop::Network, Method::Ring) => [2.7, 4.0, if early { 9.6 } else { 14.0 }],
        (Hop::Network, Method::Nvls) => [0.0, 0.0, 18.0],
        (Hop::Network, Method::NvlsTree) => [0.0, 0.0, if minor < 27 { 14.0 } else { 20.9 }],
        (Hop::Network, Method::Pat) => [0.0, 0.0, 14.0],
        (Hop::Network, Method::Pairs) => [2.7, 4.0, 14.0],
    };
    row[protocol as usize]
}

/// The column for one, two and more nodes.
fn by_nodes(nodes: u32) -> usize {
    nodes.clamp(1, 3) as usize - 1
}

/// The limit of LL's bus bandwidth, whatever the wires: by generation inside a node; between nodes by the processor,
/// AMD's on A100 and Intel's elsewhere (assumed), from 2.21 the generation's on H100 and later.
pub(super) fn ll_limit(version: Version, generation: Generation, nodes: u32) -> f64 {
    let column = by_nodes(nodes);
    let (volta, ampere) = ([39.0, 39.0, 20.4], [87.7, 22.5, 19.0]);
    let hopper = if version.minor < 21 { [ampere[0], volta[1], volta[2]] } else { [141.0, 45.0, 35.0] };
    match generation {
        Generation::Volta => volta[column],
        Generation::Ampere => ampere[column],
        Generation::Hopper => hopper[column],
        Generation::Blackwell if version.minor < 21 => hopper[column],
        Generation::Blackwell => 2.0 * hopper[column],
    }
}

/// The limit of a channel of Ring/LL128.
pub(super) fn ring_ll128(generation: Generation) -> f64 {
    match generation {
        Generation::Volta | Generation::Ampere => 20.0,
        Generation::Hopper => 36.7,
        Generation::Blackwell => 40.0,
    }
}

/// The limit of a channel of a tree.
pub(super) fn tree(version: Version, generation: Generation, nodes: u32) -> f64 {
    let hopper = [38.7, 41.4, 36.0];
    let row = match generation {
        Generation::Volta => [26.5, 18.5, 10.0],
        Generation::Ampere => [24.0, 23.6, 17.8],
        Generation::Hopper => hopper,
        Generation::Blackwell if version.minor < 28 => hopper.map(|rate| 2.0 * rate),
        Generation::Blackwell => [70.0, 42.8, 24.0],
    };
    row[by_nodes(nodes)]
}

/// The limit of a channel of Tree/LL128.
pub(super) fn tree_ll128(version: Version, generation: Generation, nodes: u32) -> f64 {
    let row = match generation {
        Generation::Volta | Generation::Ampere => [20.0; 3],
        Generation::Blackwell if version.minor >= 28 => [55.6, 31.67, 20.0],
        Generation::Hopper | Generation::Blackwell => [36.7, 36.7, 29.0],
    };
    row[by_nodes(nodes)]
}

/// The limit of a channel of an NVLS tree.
pub(super) fn nvls_tree(version: Version, generation: Generation, nodes: u32) -> f64 {
    let row = match generation {
        Generation::Volta | Generation::Ampere => [0.0; 3],
        Generation::Hopper => [0.0, 57.7, 45.5],
        Generation::Blackwell if version.minor < 28 => [0.0, 115.4, 91.0],
        Generation::Blackwell => [0.0, 96.0, 43.8],
    };
    row[by_nodes(nodes)]
}

/// The share of its links that NVLS reaches (`nvlsEfficiency`).
pub(super) fn nvls_share(generation: Generation) -> f64 {
    match generation {
        Generation::Volta | Generation::Ampere => 0.0,
        Generation::Hopper => 0.85,
        Generation::Blackwell => 0.74,
    }
}

/// Microseconds of the walk of PAT among this number of nodes: a share of a step for each level of its trees, and each
/// rank's part.
pub(super) fn pat_walk(version: Version, nodes: u32) -> f64 {
    f64::from(nodes.ilog2()) * step(version, Hop::Network, Method::Pat, NcclProtocol::Simple) / 3.5
        + 2.8 * f64::from(nodes)
}

/// The share of its bandwidth that PAT reaches.
pub(super) const PAT_SHARE: f64 = 0.75;

/// The share of their bandwidth that trees reach by size: powers of two from 64 B (`treeCorrectionFactor`).
pub(super) fn tree_correction(protocol: NcclProtocol, bytes: u64) -> f64 {
    const LL: [f64; 19] =
        [1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
    const LL128: [f64; 21] =
        [1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9];
    const SIMPLE: [f64; 23] = [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9,
        0.9,
    ];
    let row: &[f64] = match protocol {
        NcclProtocol::Ll => &LL,
        NcclProtocol::Ll128 => &LL128,
        NcclProtocol::Simple => &SIMPLE,
    };
    let place = (bytes >> 6).max(1).ilog2() as usize;
    row.get(place).copied().unwrap_or(1.0)
}
