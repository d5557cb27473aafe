//! `Orbits`: maps ranks, links and devices to those that represent them in a run, folded or not.

use std::sync::Arc;

use lockstep_topology::cluster::{Device, DeviceId, Link, LinkId};
use lockstep_topology::{Cluster, Fold, InputError};

/// The place of an error that a route does not fold.
pub(crate) const UNFOLDABLE: &str = "folding";

/// The ranks, wires and devices that are simulated, and those that they represent.
#[derive(Debug, Clone, Default)]
pub struct Orbits {
    fold: Option<Arc<Fold>>,
}

impl Orbits {
    /// Every rank, link and device represents itself.
    pub(crate) fn all() -> Orbits {
        Orbits { fold: None }
    }

    /// Representatives of a common symmetry.
    pub(crate) fn of(fold: Fold) -> Orbits {
        Orbits { fold: Some(Arc::new(fold)) }
    }

    /// The symmetry, if there is one.
    pub(crate) fn fold(&self) -> Option<&Fold> {
        self.fold.as_deref()
    }

    /// Ranks that are simulated, of `ranks`.
    pub(crate) fn count(&self, ranks: u32) -> u32 {
        self.fold().map_or(ranks, Fold::representatives)
    }

    /// The rank that is simulated for `rank`.
    pub(crate) fn representative(&self, rank: u32) -> u32 {
        self.fold().map_or(rank, |fold| fold.representative(rank))
    }

    /// The rank that is to the representative of `rank` what `other` is to `rank`.
    pub(crate) fn seen_from(&self, rank: u32, other: u32) -> u32 {
        self.fold().map_or(other, |fold| fold.seen_from(rank, other))
    }

    /// The link that represents `link`, and how many uses it has for each that is simulated.
    pub(crate) fn link<'c>(&self, cluster: &'c Cluster, link: &'c Link) -> (&'c Link, f64) {
        match self.fold() {
            Some(fold) => {
                let (id, crowd) = fold.link(cluster, link.id);
                (cluster.link(id), f64::from(crowd))
            }
            None => (link, 1.0),
        }
    }

    /// The device that represents `device`, and how many uses it has for each that is simulated.
    pub(crate) fn device(&self, cluster: &Cluster, device: &Device) -> (DeviceId, f64) {
        match self.fold() {
            Some(fold) => {
                let (id, crowd) = fold.device(cluster, device);
                (id, f64::from(crowd))
            }
            None => (device.id, 1.0),
        }
    }

    /// Refuses a port that images of one rank would share: it serves them one after the other, so they are not equal.
    ///
    /// # Errors
    /// The reason, at a place that `Folded::after` recognises.
    pub(crate) fn check_port(&self, cluster: &Cluster, port: &Link) -> Result<(), InputError> {
        if self.link(cluster, port).1 > 1.0 {
            let message = "a NIC serves ranks one after the other that are equal otherwise";
            return Err(InputError::new(UNFOLDABLE, "", message));
        }
        Ok(())
    }

    /// The reverse of a direction between two ranks, as its representative sees it.
    ///
    /// # Errors
    /// Where both are images of one: they take turns on a stream, so they are not equal.
    pub(crate) fn reverse(&self, (from, to): (u32, u32)) -> Result<(u32, u32), InputError> {
        let back = (self.representative(to), self.seen_from(to, from));
        if back == (from, to) && from != to {
            let message = "a connection serves two directions in turn that are equal otherwise";
            return Err(InputError::new(UNFOLDABLE, "", message));
        }
        Ok(back)
    }

    /// The largest smaller group of the same kind; after that, every rank by itself.
    pub(crate) fn coarser(&self) -> Orbits {
        Orbits { fold: self.fold().and_then(Fold::coarser).map(Arc::new) }
    }

    /// Refuses a route that crosses two images of one wire.
    ///
    /// # Errors
    /// The reason, at a place that `Folded::after` recognises.
    pub(crate) fn check(&self, cluster: &Cluster, route: &[LinkId]) -> Result<(), InputError> {
        let Some(fold) = self.fold() else { return Ok(()) };
        if !route.iter().all(|id| fold.knows(*id)) {
            return Err(InputError::new(UNFOLDABLE, "", "a route that no exchange takes"));
        }
        let mut wires: Vec<_> = route.iter().map(|id| cluster.link(*id)).collect();
        wires.sort_unstable_by_key(|link| link.wire);
        wires.dedup_by_key(|link| link.wire);
        let mut images: Vec<_> = wires.iter().map(|link| self.link(cluster, link).0.wire).collect();
        images.sort_unstable();
        if images.windows(2).any(|pair| pair[0] == pair[1]) {
            let message = "a route crosses two wires that are equal by symmetry";
            return Err(InputError::new(UNFOLDABLE, "", message));
        }
        Ok(())
    }
}
