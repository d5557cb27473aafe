//! The α-β network: a message takes its latency and its bytes at the least rate and cap of its route, whatever else goes on.
//!
//! The network of the closed forms (Hockney 1994); what it leaves out is contention.

use lockstep_topology::cluster::Route;
use lockstep_topology::{Cluster, InputError};

use super::{Carrier, Network};
use crate::fluid::{Fluid, Use};
use crate::machine::Resources;

/// Nothing is shared.
#[derive(Debug, Clone, Copy)]
pub struct AlphaBeta;

impl Network for AlphaBeta {
    fn carrier(
        &self,
        _: &Cluster,
        route: &Route,
        cap: f64,
        _: &[Use],
        _: &mut Resources,
        _: &mut dyn Fluid,
    ) -> Result<Carrier, InputError> {
        Ok(Carrier::Alone(route.transport.rate.bytes_per_s().min(cap)))
    }
}
