//! Models incast: a receiver's port that too many senders reach at once loses packets, and delivers less than its rate.
//!
//! A step that the cluster file states: up to a number of senders the full rate, beyond it a share. The causes (buffers
//! that overflow, timeouts of whole windows: Vasudevan et al., SIGCOMM 2009) depend on switch and stack.

use std::collections::BTreeMap;

use lockstep_topology::InputError;
use lockstep_topology::cluster::Incast;

use crate::fluid::{Fluid, ResourceId};
use crate::machine::Resources;

/// A receiver's port.
#[derive(Debug)]
struct Port {
    wire: ResourceId,
    incast: Incast,
    /// Connections with bytes in flight to it.
    senders: u32,
}

/// All ports that suffer from incast.
#[derive(Debug, Default)]
pub(crate) struct Incasts {
    known: BTreeMap<ResourceId, u32>,
    ports: Vec<Port>,
}

impl Incasts {
    /// The port whose wire this resource is.
    pub(super) fn of(&mut self, wire: ResourceId, incast: Incast) -> u32 {
        let next = self.ports.len() as u32;
        let port = *self.known.entry(wire).or_insert(next);
        if port == next {
            self.ports.push(Port { wire, incast, senders: 0 });
        }
        port
    }

    /// A connection's bytes begin to flow.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn enter<F: Fluid>(&mut self, port: u32, resources: &mut Resources<'_, F>) -> Result<(), InputError> {
        let Port { wire, incast, senders } = &mut self.ports[port as usize];
        *senders += 1;
        if *senders == incast.senders + 1 { resources.set_share(*wire, CAUSE, incast.goodput) } else { Ok(()) }
    }

    /// A connection has no more bytes in flight.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn leave<F: Fluid>(&mut self, port: u32, resources: &mut Resources<'_, F>) -> Result<(), InputError> {
        let Port { wire, incast, senders } = &mut self.ports[port as usize];
        *senders -= 1;
        if *senders == incast.senders { resources.set_share(*wire, CAUSE, 1.0) } else { Ok(()) }
    }
}

/// The cause of such a port's reduced share.
const CAUSE: &str = "incast";
