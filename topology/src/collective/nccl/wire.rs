//! `Wire`: models a protocol as a property of messages: the cost of a lane's messages where NCCL's kernels carry them,
//! by its model's own figures.
//!
//! A step takes NCCL's latency instead of the links' (between nodes in addition to theirs), flags and synchronisation
//! leave a share of the wire, a channel is one thread block's copies, and its FIFO takes a number of bytes before the
//! receiver waits for them.

use super::constants::{self as figures, Hop};
use super::way::Way;
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
    /// The number of its flow, by which a channel takes one of several near NICs ([`Cluster::route_of_flow`]).
    pub flow: u32,
}

/// The cost of a message on a route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// From its post until its bytes flow.
    pub step: Time,
    /// Bytes of the wires' payload that each of its own bytes takes.
    pub load: f64,
    /// The same on links of PCI Express.
    pub load_of_pcie: f64,
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
    /// let wire = Wire { method: Method::Ring, protocol: NcclProtocol::Ll128, flow: 0 };
    /// let terms = wire.on(&cluster, [one, other], &route).unwrap();
    /// assert_eq!((terms.step.as_secs_f64() * 1e6, terms.slots.0), (1.9, 4_608_000));
    /// ```
    ///
    /// # Errors
    /// A route that the protocol does not serve, with the cure.
    pub fn on(self, cluster: &Cluster, ends: [&Device; 2], route: &Route) -> Result<Terms, InputError> {
        let Wire { method, protocol, .. } = self;
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
        let across = ends[0].host != ends[1].host;
        let way = Way::new(cluster, ends, route, Some(generation));
        let links = || route.links.iter().map(|link| cluster.link(*link));
        let by_nvlink = links().all(|link| link.kind == LinkKind::NvLink);
        if !across && protocol == NcclProtocol::Ll128 && !by_nvlink {
            return refuse("needs NVLinks between the GPUs of a node: use ll or simple");
        }
        let stack = route.transport.protocol.stack;
        if across && protocol == NcclProtocol::Ll128 && !matches!(stack, Stack::InfiniBand | Stack::Roce) {
            return refuse("needs a network that keeps the order of bytes: use ll or simple");
        }
        let hop = match (across, by_nvlink) {
            (true, _) => Hop::Network,
            (false, true) => Hop::NvLink,
            (false, false) => Hop::Pcie,
        };
        let own = Time::from_secs_f64(figures::step(Version::default(), hop, method, protocol) * 1e-6);
        let share = pace::protocol_share(protocol, across);
        // Of the links that it takes most of, besides PCI Express: a network's, or NVLinks.
        let reached = |pcie: bool| {
            let shares = links().filter(|link| (link.kind == LinkKind::Pcie) == pcie).map(|link| way.share(link));
            shares.fold(1.0, f64::min)
        };
        let channel = Bandwidth::new(pace::of_channel(generation) * share * 1e9).expect("positive figures");
        let slots = match protocol {
            NcclProtocol::Simple => 4 << 20,
            NcclProtocol::Ll => 256 << 10,
            NcclProtocol::Ll128 => 4_915_200 / 16 * 15,
        };
        let step = if across { own + route.latency } else { own };
        let [load, load_of_pcie] = [false, true].map(|pcie| 1.0 / (reached(pcie) * share));
        Ok(Terms { step, load, load_of_pcie, channel, slots: Bytes(slots) })
    }
}
