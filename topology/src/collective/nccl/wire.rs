//! `Wire`: models a protocol as a property of messages: the cost of a lane's messages where NCCL's kernels carry them,
//! by its model's own figures.
//!
//! A step takes NCCL's latency instead of the links' (between nodes in addition to theirs), flags and synchronisation
//! leave a share of the wire, a channel is one thread block's copies, and its FIFO takes a number of bytes before the
//! receiver waits for them.

use super::constants::{self as figures, Hop};
use super::{Generation, Method, NcclProtocol, Version, pace};
use crate::cluster::{Cluster, Device, DeviceKind, LinkKind, Route, Stack};
use crate::{Bandwidth, Bytes, InputError, Time};

/// A protocol of the messages of an algorithm's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wire {
    /// The method whose steps are taken.
    pub method: Method,
    /// How they are synchronised.
    pub protocol: NcclProtocol,
}

/// The cost of a message on a route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// From its post until its bytes flow.
    pub step: Time,
    /// Bytes of the wires' payload that each of its own bytes takes.
    pub load: f64,
    /// The limit of a channel.
    pub channel: Bandwidth,
    /// Bytes sent before a receive is posted.
    pub slots: Bytes,
}

impl Wire {
    /// The cost of messages over `route` between two GPUs.
    ///
    /// ```
    /// use lockstep_topology::nccl::{Method, NcclProtocol, Wire};
    /// let cluster = lockstep_topology::Cluster::load("dgx-h100").unwrap();
    /// let [one, other] = [1, 2].map(|id| &cluster.devices()[id]);
    /// let route = cluster.route(one.id, other.id).unwrap();
    /// let wire = Wire { method: Method::Ring, protocol: NcclProtocol::Ll128 };
    /// let terms = wire.on(&cluster, [one, other], &route).unwrap();
    /// assert_eq!((terms.step.as_secs_f64() * 1e6, terms.slots.0), (1.9, 4_608_000));
    /// ```
    ///
    /// # Errors
    /// A route that the protocol does not serve, with the cure.
    pub fn on(self, cluster: &Cluster, ends: [&Device; 2], route: &Route) -> Result<Terms, InputError> {
        let Wire { method, protocol } = self;
        let refuse = |message: &str| {
            let way = format!("{protocol} from {} to {}", ends[0].name, ends[1].name);
            Err(InputError::new("", way, message))
        };
        let kind = |device: &Device| match &device.kind {
            DeviceKind::Gpu(gpu) => Generation::of(gpu),
            _ => None,
        };
        let (Some(generation), Some(_)) = (kind(ends[0]), kind(ends[1])) else {
            return refuse("is a protocol of NCCL on GPUs with NVLink, from V100 on: leave the protocol out");
        };
        let kinds = || route.links.iter().map(|link| cluster.link(*link).kind);
        let across = ends[0].host != ends[1].host;
        if !across && kinds().any(|kind| kind != LinkKind::NvLink) {
            return refuse(
                "has figures for NVLink and for networks, and here the way is another: leave the protocol out",
            );
        }
        let stack = route.transport.protocol.stack;
        if across && protocol == NcclProtocol::Ll128 && !matches!(stack, Stack::InfiniBand | Stack::Roce) {
            return refuse("needs a network that keeps the order of bytes: use ll or simple");
        }
        let hop = if across { Hop::Network } else { Hop::NvLink };
        let own = Time::from_secs_f64(figures::step(Version::default(), hop, method, protocol) * 1e-6);
        let share = pace::protocol_share(protocol, across);
        let reached = match across {
            true => pace::NIC_SHARE,
            false => {
                let link = cluster.link(route.links[0]);
                // A share of the line rate, while headers leave the payload.
                pace::ring_share(generation) * link.bandwidth.bytes_per_s() / link.payload().bytes_per_s()
            }
        };
        let channel = Bandwidth::new(pace::of_channel(generation) * share * 1e9).expect("positive figures");
        let slots = match protocol {
            NcclProtocol::Simple => 4 << 20,
            NcclProtocol::Ll => 256 << 10,
            NcclProtocol::Ll128 => 4_915_200 / 16 * 15,
        };
        let step = if across { own + route.latency } else { own };
        Ok(Terms { step, load: 1.0 / (reached * share), channel, slots: Bytes(slots) })
    }
}
