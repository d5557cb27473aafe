//! The max-min network: each wire is a resource that the transfers crossing it share.
//!
//! A wire crossed twice is used twice; a link that is no common good (one core's copying) caps each transfer instead.

use lockstep_topology::cluster::{Route, Sharing};
use lockstep_topology::{Cluster, InputError};

use super::{Carrier, Network};
use crate::fluid::{Fluid, Use};
use crate::machine::Resources;

/// Wires are shared max-min fair.
#[derive(Debug, Clone, Copy)]
pub struct MaxMin;

impl Network for MaxMin {
    fn carrier(
        &self,
        cluster: &Cluster,
        route: &Route,
        cap: f64,
        taps: &[Use],
        resources: &mut Resources,
        fluid: &mut dyn Fluid,
    ) -> Result<Carrier, InputError> {
        let mut cap = route.transport.cap.map_or(cap, |own| own.bytes_per_s().min(cap));
        let mut uses = Vec::with_capacity(route.links.len());
        for id in &route.links {
            let link = cluster.link(*id);
            match link.sharing {
                Sharing::PerTransfer => cap = cap.min(link.payload().bytes_per_s()),
                Sharing::Shared => uses.push(Use::one(resources.wire(cluster, link, fluid)?)),
            }
        }
        resources.transfer(cap, &uses, taps, fluid).map(Carrier::Shared)
    }
}
