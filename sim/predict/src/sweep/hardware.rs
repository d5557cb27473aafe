//! `Shelf`: builds each cluster of a sweep for its first point, shares it, and drops it after its last.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lockstep_topology::cluster::{DeviceKind, Figure};
use lockstep_topology::{Cluster, InputError};

use crate::site::Site;
use lockstep_experiment::Experiment;
use lockstep_experiment::sweep::{Sweep, SweepPoint};

/// A site, and its cluster as scaled for a point.
pub(super) struct Hardware {
    site: Arc<Site>,
    /// `None` where nothing is scaled.
    scaled: Option<Cluster>,
}

impl Hardware {
    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    pub(super) fn cluster(&self) -> &Cluster {
        self.scaled.as_ref().unwrap_or(&self.site.cluster)
    }

    /// The number of ranks that have a GPU each, or a core each where there are none.
    pub(super) fn most_ranks(&self) -> u32 {
        let devices = || self.cluster().devices().iter();
        let gpus = devices().filter(|device| matches!(device.kind, DeviceKind::Gpu(_))).count() as u32;
        let cores = |kind: &DeviceKind| if let DeviceKind::Cpu(cpu) = kind { cpu.cores } else { 0 };
        if gpus > 0 { gpus } else { devices().map(|device| cores(&device.kind)).sum() }
    }
}

/// A value that one thread builds and all share, or why it cannot be built.
type Shared<T> = Arc<OnceLock<Result<Arc<T>, InputError>>>;

/// The clusters in use.
pub(super) struct Shelf {
    profile: Option<PathBuf>,
    sites: Mutex<BTreeMap<usize, Shared<Site>>>,
    hardware: Mutex<BTreeMap<(usize, usize), Shared<Hardware>>>,
}

impl Shelf {
    pub(super) fn new(profile: Option<PathBuf>) -> Shelf {
        Shelf { profile, sites: Mutex::default(), hardware: Mutex::default() }
    }

    /// The hardware of `point`; drops what only points before `oldest` need.
    pub(super) fn take(
        &self,
        sweep: &Sweep,
        point: &SweepPoint,
        oldest: &SweepPoint,
    ) -> Result<Arc<Hardware>, InputError> {
        let at = |point: &SweepPoint, key| sweep.position(point, key);
        let build = || {
            let site = shared(&self.sites, at(point, "cluster"), at(oldest, "cluster"), || {
                let cluster = sweep.place(point).name.clone();
                Site::open(&Experiment { cluster, ..sweep.base.clone() }, self.profile.as_deref())
            })?;
            let factors = sweep.factors(at(point, "scale"));
            let factor = |figure: Figure| -> f64 {
                let these = sweep.scales.iter().zip(&factors);
                these.filter(|(scale, _)| scale.figures.contains(&figure)).map(|(_, factor)| factor).product()
            };
            let scaled = factors.iter().any(|factor| *factor != 1.0).then(|| site.cluster.scaled(&factor));
            Ok(Hardware { site, scaled })
        };
        let key = |point: &SweepPoint| (at(point, "cluster"), at(point, "scale"));
        shared(&self.hardware, key(point), key(oldest), build)
    }
}

/// The value of `key`, built outside the lock if it does not exist; all before `oldest` are dropped.
fn shared<K: Ord, T>(
    shelf: &Mutex<BTreeMap<K, Shared<T>>>,
    key: K,
    oldest: K,
    build: impl FnOnce() -> Result<T, InputError>,
) -> Result<Arc<T>, InputError> {
    let slot = {
        let mut all = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        *all = all.split_off(&oldest);
        Arc::clone(all.entry(key).or_default())
    };
    slot.get_or_init(|| build().map(Arc::new)).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_values_are_built_once_and_released() {
        let shelf: Mutex<BTreeMap<u32, Shared<u32>>> = Mutex::default();
        let mut built = 0;
        let mut take = |key: u32, oldest: u32| {
            shared(&shelf, key, oldest, || {
                built += 1;
                Ok(10 * key)
            })
        };
        let first = take(1, 0).unwrap();
        assert!(Arc::ptr_eq(&first, &take(1, 1).unwrap()));
        assert_eq!((*take(2, 2).unwrap(), *first), (20, 10));
        drop(take(1, 1).unwrap());
        assert_eq!(built, 3, "1 was let go when 2 became the oldest");
        assert_eq!(shelf.lock().unwrap().len(), 2);
    }
}
