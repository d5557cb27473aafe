//! Models transfers along a route: alone, or sharing the links with others.
//!
//! Bytes are those of the payload: a wire's capacity is its line rate less headers.

mod bursts;
mod connection;
mod incast;
mod ports;
mod slow_start;

pub(crate) use bursts::{Bursts, Piece, Waits};
pub(crate) use connection::{Connections, Terms};
pub(crate) use ports::TransmitQueue;

use lockstep_topology::InputError;
use lockstep_topology::cluster::{LinkKind, Route, Sharing};

use crate::fluid::{ClassId, Fluid, Use};
use crate::machine::Resources;
use crate::platform::NetworkModel;

/// The carrier of the transfers of one route, once the route's latency is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Carrier {
    /// A fixed number of bytes per second, whatever else is sent.
    Alone(f64),
    /// Activities of this class, a unit of work being a byte.
    Shared(ClassId),
}

/// The part of its route that a transfer's own stack may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pace {
    /// The most bytes per second.
    pub(crate) cap: f64,
    /// Bytes of the wires' payload that each of its own takes.
    load: f64,
    /// The same of links of PCI Express.
    load_of_pcie: f64,
    /// The part of that which it takes of links with bursts.
    of_bursts: f64,
    /// Whether the CPU's cores copy what passes a host's memory.
    copied: bool,
}

impl Pace {
    /// All of it.
    pub(crate) const OF_THE_ROUTE: Pace =
        Pace { cap: f64::INFINITY, load: 1.0, load_of_pcie: 1.0, of_bursts: 1.0, copied: true };

    /// The limits of a protocol of NCCL.
    pub(crate) fn of(terms: &lockstep_topology::nccl::Terms) -> Pace {
        let (cap, load, load_of_pcie) = (terms.channel.bytes_per_s(), terms.load, terms.load_of_pcie);
        Pace { cap, load, load_of_pcie, copied: false, ..Pace::OF_THE_ROUTE }
    }

    /// The same with `share` of its load on links with bursts.
    fn of_bursts(self, share: f64) -> Pace {
        Pace { of_bursts: share, ..self }
    }

    /// The same, and at most `cap` bytes per second.
    pub(crate) fn below(self, cap: f64) -> Pace {
        Pace { cap: self.cap.min(cap), ..self }
    }
}

/// The rate at which one core can send or receive on a route; infinite where the stack uses no cores.
fn core_rate(route: &Route) -> f64 {
    route.transport.protocol.core_bandwidth.map_or(f64::INFINITY, |core| core.bytes_per_s())
}

impl<F: Fluid> Resources<'_, F> {
    /// Prepares the transfers over `route`, at their `pace`, which take `taps` of the memories at its ends; called once
    /// for each route, at its first message.
    ///
    /// Under α-β a message takes its bytes at the least rate and cap of its route, whatever else is sent: the network
    /// of the closed forms (Hockney 1994). Under max-min each wire is a resource that the transfers crossing it share;
    /// a wire crossed twice is used twice, and a link that is not shared (one core's copying) caps each transfer
    /// instead. If the stack uses cores, the two hosts' cores are resources, too.
    ///
    /// # Errors
    /// Links of a bandwidth that the solver refuses.
    pub(crate) fn carrier(&mut self, route: &Route, pace: Pace, taps: &[Use]) -> Result<Carrier, InputError> {
        let pace = pace.below(core_rate(route));
        match self.platform.network {
            NetworkModel::AlphaBeta => {
                Ok(Carrier::Alone((route.transport.rate.bytes_per_s() / pace.load).min(pace.cap)))
            }
            NetworkModel::MaxMin => self.sharing(route, pace, taps).map(Carrier::Shared),
        }
    }

    /// The class of transfers over `route` that share its links, as under max-min.
    ///
    /// # Errors
    /// As for [`Resources::carrier`].
    pub(crate) fn sharing(
        &mut self,
        route: &Route,
        Pace { cap, load, load_of_pcie, of_bursts, copied }: Pace,
        taps: &[Use],
    ) -> Result<ClassId, InputError> {
        let mut cap = route.transport.cap.map_or(cap, |own| own.bytes_per_s().min(cap));
        let mut uses = Vec::with_capacity(route.links.len() + 2);
        for id in &route.links {
            let link = self.platform.cluster.link(*id);
            let load = if link.kind == LinkKind::Pcie { load_of_pcie } else { load };
            match link.sharing {
                Sharing::PerTransfer if !copied => {}
                Sharing::PerTransfer => cap = cap.min(link.payload().bytes_per_s()),
                Sharing::Shared if link.protocol.burst.is_none() => {
                    uses.push(Use { resource: self.wire(link)?, per_speed: load });
                }
                Sharing::Shared if of_bursts > 0.0 => {
                    uses.push(Use { resource: self.wire(link)?, per_speed: load * of_bursts });
                }
                Sharing::Shared => {}
            }
        }
        self.stack(route, &mut uses)?;
        self.transfer(cap, &uses, taps)
    }

    /// Adds the cores that a transfer's stack takes: on the host of the sending port, and on that of the receiving one.
    fn stack(&mut self, route: &Route, uses: &mut Vec<Use>) -> Result<(), InputError> {
        let (cluster, transport) = (self.platform.cluster, &route.transport);
        let per_byte = 1.0 / core_rate(route);
        if per_byte == 0.0 {
            return Ok(());
        }
        let ends = [cluster.link(transport.sender).from, cluster.link(transport.receiver).to];
        for host in ends.into_iter().filter_map(|end| cluster.vertex(end).host) {
            let cpu = &cluster.devices()[cluster.hosts()[host.0 as usize].devices[0].0 as usize];
            uses.push(Use { resource: self.cores(cpu)?, per_speed: per_byte });
        }
        Ok(())
    }
}
