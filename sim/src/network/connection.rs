//! Models the cost of a path's messages besides latency and their share of the links: set-up, handshake,
//! window, incast.
//!
//! The closed form of a message of n bytes, alone, its receive posted in time: with o the sender's time per message, L
//! the route's latency and B the least of payload rates and caps,
//!
//! - eager, or without handshake: o + L + n/B;
//! - rendezvous by write: the announcement o + L, the answer o + L, the bytes o + L + n/B;
//! - rendezvous by read: the announcement o + L, the request o + L, and the NIC by itself L + n/B.
//!
//! Messages queue only at the sender's port; answers and requests do not queue at the receiver's.

use lockstep_topology::cluster::{Rendezvous, Route};
use lockstep_topology::{InputError, Time};

use super::bursts::{BurstPath, Bursts, LEVELS};
use super::incast::Incasts;
use super::ports::{Ports, TransmitQueue};
use super::slow_start::{Ramp, Windows};
use super::{Carrier, Pace};
use crate::costs::MessageCost;
use crate::fluid::{Fluid, Use};
use crate::machine::Resources;

/// The cost of the messages of one path.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The port through which they leave.
    pub(crate) port: u32,
    /// The sender's time per message.
    pub(crate) send: Time,
    /// The transmit queue of that port, if it has one.
    pub(crate) queue: Option<TransmitQueue>,
    /// Where the path has links with bursts.
    pub(crate) bursts: Option<BurstPath>,
    /// How messages beyond the eager size find their receiver.
    pub(crate) rendezvous: Rendezvous,
    /// How connections start, unless with their whole window.
    pub(crate) ramp: Option<Ramp>,
    /// The receiver's port, where its rate depends on the number of senders.
    pub(crate) incast: Option<u32>,
}

/// The state of ports and connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) ports: Ports,
    pub(crate) windows: Windows,
    pub(crate) incasts: Incasts,
    pub(crate) bursts: Bursts,
}

impl Connections {
    /// The carrier of the bytes over `route`, which take `taps` of the memories at its ends, and the terms of
    /// its messages.
    ///
    /// # Errors
    /// Links of a bandwidth that the solver refuses.
    pub(crate) fn over<F: Fluid>(
        &mut self,
        route: &Route,
        cost: &MessageCost,
        pace: Pace,
        taps: &[Use],
        resources: &mut Resources<'_, F>,
    ) -> Result<(Carrier, Terms), InputError> {
        let (cluster, transport) = (resources.platform.cluster, &route.transport);
        let carrier = resources.carrier(route, pace, taps)?;
        let mut ramp = None;
        if let Some(first) = transport.protocol.slow_start {
            let (round_trip, rate) = (2.0 * route.latency.as_secs_f64(), transport.rate.bytes_per_s());
            ramp = Ramp::new(first.0, round_trip, rate, |cap| resources.carrier(route, pace.below(cap), taps))?;
        }
        let receiver = cluster.link(transport.receiver);
        let sender = cluster.link(transport.sender);
        let most = sender.protocol.transmit_queue;
        let byte_s = 1.0 / sender.payload().bytes_per_s();
        let queues = most > Time::ZERO && matches!(carrier, Carrier::Shared(_));
        let queue = queues.then_some(TransmitQueue { most, byte_s });
        if cost.send > 0.0 || queue.is_some() {
            resources.orbits().check_port(cluster, sender)?;
        }
        if receiver.protocol.incast.is_some() {
            resources.orbits().check_port(cluster, receiver)?;
        }
        // A connection that starts slowly sends too few bytes for a burst.
        let bursts = match (carrier, &ramp) {
            (Carrier::Shared(_), None) => self.bursts(route, pace, taps, resources)?,
            (Carrier::Alone(_), _) | (_, Some(_)) => None,
        };
        let incast = match (receiver.protocol.incast, carrier) {
            (Some(incast), Carrier::Shared(_)) => {
                let wire = resources.wire(receiver)?;
                Some(self.incasts.of(wire, incast))
            }
            // Without contention connections do not affect each other.
            (None, _) | (_, Carrier::Alone(_)) => None,
        };
        let (port, send) = (self.ports.of(transport.sender), Time::from_secs_f64(cost.send));
        Ok((carrier, Terms { port, send, queue, bursts, rendezvous: cost.rendezvous, ramp, incast }))
    }

    /// The part of `route` that bursts concern, if it has such links.
    fn bursts<F: Fluid>(
        &mut self,
        route: &Route,
        pace: Pace,
        taps: &[Use],
        resources: &mut Resources<'_, F>,
    ) -> Result<Option<BurstPath>, InputError> {
        let cluster = resources.platform.cluster;
        let mut links = Vec::new();
        for link in route.links.iter().map(|id| cluster.link(*id)) {
            if let Some(burst) = link.protocol.burst {
                resources.orbits().check_port(cluster, link)?;
                links.push(self.bursts.of(resources.wire(link)?, link, burst));
            }
        }
        if links.is_empty() {
            return Ok(None);
        }
        let level = |level: u32| resources.carrier(route, pace.of_bursts(f64::from(level) / f64::from(LEVELS)), taps);
        let carriers = (0..=LEVELS).map(level).collect::<Result<_, _>>()?;
        Ok(Some(BurstPath { links, carriers }))
    }
}
