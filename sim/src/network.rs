//! How a transfer gets along its route: alone, or sharing the links with others.
//!
//! Bytes are those of the payload: a wire's capacity is what headers leave of its line rate.

mod alpha_beta;
mod connection;
mod incast;
mod max_min;
mod ports;
mod slow_start;

pub use alpha_beta::AlphaBeta;
pub(crate) use connection::{Connections, Terms};
pub use max_min::MaxMin;

use lockstep_topology::cluster::Route;
use lockstep_topology::{Cluster, InputError};

use crate::fluid::{ClassId, Fluid, Use};
use crate::machine::Resources;
use crate::platform::NetworkModel;

/// What carries the transfers of one route, once the route's latency is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Carrier {
    /// So many bytes per second, whatever else goes on.
    Alone(f64),
    /// Activities of this class, a unit of work being a byte.
    Shared(ClassId),
}

/// A network model: asked once for each route, when its first message comes along.
pub trait Network {
    /// Prepares the transfers over `route`, none faster than `cap` bytes per second (infinite: only the route's own caps),
    /// which take `taps` of the memories at its ends.
    ///
    /// # Errors
    /// Links of a bandwidth that the solver refuses.
    fn carrier(
        &self,
        cluster: &Cluster,
        route: &Route,
        cap: f64,
        taps: &[Use],
        resources: &mut Resources,
        fluid: &mut dyn Fluid,
    ) -> Result<Carrier, InputError>;
}

impl NetworkModel {
    /// The model itself.
    pub fn model(self) -> &'static dyn Network {
        match self {
            NetworkModel::AlphaBeta => &AlphaBeta,
            NetworkModel::MaxMin => &MaxMin,
        }
    }
}
