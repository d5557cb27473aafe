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
        let incast = match (receiver.protocol.incast, carrier) {
            (Some(incast), Carrier::Shared(_)) => {
                let wire = resources.wire(receiver)?;
                Some(self.incasts.of(wire, incast))
            }
            // Without contention connections do not affect each other.
            (None, _) | (_, Carrier::Alone(_)) => None,
        };
        let (port, send) = (self.ports.of(transport.sender), Time::from_secs_f64(cost.send));
        Ok((carrier, Terms { port, send, queue, rendezvous: cost.rendezvous, ramp, incast }))
    }
}
