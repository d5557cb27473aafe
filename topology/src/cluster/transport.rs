//! `Transport`: combines the protocols of a route's links.
//!
//! A message between hosts is set up once, by the network's stack; the buses on its way inside the hosts carry it
//! packet by packet and cost only their headers. So overheads, thresholds and windows are those of the links that
//! reach farthest.

use super::LinkKind;
use super::parts::*;
use super::{Cluster, Protocol};
use crate::{Bandwidth, Bytes, Time};
use std::sync::Arc;

/// The cost of messages on one route besides latency and line rate.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteTransport {
    /// The figures of a message; its `efficiency` is only one link's.
    pub protocol: Arc<Protocol>,
    /// The first of the links with that protocol: the sender's port, through which messages pass one by one.
    pub sender: LinkId,
    /// The last of them: the receiver's port.
    pub receiver: LinkId,
    /// The most that one transfer may get, even on idle wires: window per round trip, pageable and peer copies.
    pub cap: Option<Bandwidth>,
    /// Payload that one transfer alone gets: the least of the links' payload rates (a wire crossed n times counting
    /// 1/n) and of `cap`.
    pub rate: Bandwidth,
}

impl Link {
    /// Payload per second: the line rate less headers.
    pub fn payload(&self) -> Bandwidth {
        Bandwidth::new(self.bandwidth.bytes_per_s() * self.protocol.efficiency).unwrap_or(self.bandwidth)
    }
}

/// How far a kind of link reaches: memory, bus, network.
fn reach(kind: LinkKind) -> u8 {
    match kind {
        LinkKind::Ethernet | LinkKind::InfiniBand | LinkKind::Gemini => 2,
        LinkKind::NvLink | LinkKind::Pcie | LinkKind::HostBridge | LinkKind::Peer => 1,
        LinkKind::SharedMemory | LinkKind::HostMemory | LinkKind::DeviceMemory => 0,
    }
}

impl Cluster {
    /// The transport of a route over `links` (at least one) of this total latency, from one device to another.
    pub(super) fn transport(&self, links: &[LinkId], latency: Time, from: &Device, to: &Device) -> RouteTransport {
        let farthest = links.iter().map(|link| reach(self.link(*link).kind)).max().unwrap_or(0);
        let carrying: Vec<&Link> =
            links.iter().map(|link| self.link(*link)).filter(|link| reach(link.kind) == farthest).collect();
        let (first, last) = (carrying[0], carrying[carrying.len() - 1]);
        let mut protocol = first.protocol.clone();
        for link in &carrying[1..] {
            if !Arc::ptr_eq(&link.protocol, &protocol) && link.protocol != protocol {
                protocol = Arc::new(protocol.and(&link.protocol));
            }
        }
        let round_trip = 2.0 * latency.as_secs_f64();
        let windowed = |window: Bytes| Bandwidth::new(window.0 as f64 / round_trip);
        let window = protocol.window.and_then(windowed);
        let copies = links.iter().filter_map(|link| self.copy_limit(self.link(*link), from, to));
        let cap = copies.chain(window).reduce(|a, b| if b < a { b } else { a });
        let shares = self.shares(links, Link::payload);
        let least = shares.chain(cap.map(Bandwidth::bytes_per_s)).fold(f64::MAX, f64::min);
        let rate = Bandwidth::new(least).unwrap_or(first.bandwidth);
        RouteTransport { protocol, sender: first.id, receiver: last.id, cap, rate }
    }

    /// The limit of a bus on a single copy between these two devices.
    fn copy_limit(&self, link: &Link, from: &Device, to: &Device) -> Option<Bandwidth> {
        let host = self.vertex(link.from).host;
        let gpu_here = |device: &Device| Some(device.host) == host && matches!(device.kind, DeviceKind::Gpu(_));
        let cpu_here = |device: &Device| Some(device.host) == host && matches!(device.kind, DeviceKind::Cpu(_));
        match (gpu_here(from) || gpu_here(to), cpu_here(from) || cpu_here(to)) {
            (true, true) => link.protocol.pageable,
            (true, false) => link.protocol.peer,
            (false, _) => None,
        }
    }
}
