//! `Size`: estimates the number of parts and the bytes of a cluster, so that one that does not fit is refused before it
//! is built.

use super::{Device, Link, LinkId, Vertex};
use crate::Bytes;
use petgraph::graph::{Edge, Node};
use std::mem::size_of;

/// A cluster may take at most this many bytes.
pub(super) const MOST_BYTES: Bytes = Bytes(4 << 30);

/// A name, a list of one link and what the allocator adds to each.
const HEAP: u64 = 32;

/// Numbers of parts, memories counting as things.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) devices: u64,
    /// Vertices: devices, memories, NICs and switches.
    pub(super) things: u64,
    /// Both directions count as one.
    pub(super) wires: u64,
}

impl Size {
    /// The approximate number of bytes.
    pub(super) fn bytes(self) -> Bytes {
        let device = size_of::<Device>() as u64 + 2 * HEAP;
        let thing = size_of::<Node<Vertex>>() as u64 + HEAP;
        let wire = 2 * (size_of::<Link>() + size_of::<Edge<LinkId>>()) as u64;
        let sum = [(self.devices, device), (self.things, thing), (self.wires, wire)]
            .into_iter()
            .fold(0u64, |sum, (count, each)| sum.saturating_add(count.saturating_mul(each)));
        Bytes(sum)
    }

    /// The error if it is too large.
    pub(super) fn refused(self) -> Option<String> {
        (self.bytes() > MOST_BYTES).then(|| {
            let Size { devices, things, wires } = self;
            format!(
                "{devices} devices, {} NICs, memories and switches and {wires} wires take about {}, more than {MOST_BYTES}; \
                 lower a count",
                things.saturating_sub(devices),
                self.bytes()
            )
        })
    }
}
