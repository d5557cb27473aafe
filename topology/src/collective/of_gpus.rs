//! Names the library that frameworks call between the GPUs of a cluster.

use super::algorithm::Algorithm;
use super::nccl::Generation;
use crate::cluster::{Architecture, Cluster, DeviceKind};

/// The library between the GPUs of `cluster`: NCCL between NVIDIA's of one generation whose figures are known, RCCL
/// between AMD's; `None` for other devices.
///
/// ```
/// use lockstep_topology::{Cluster, library_of_gpus};
/// let name = |cluster: &str| library_of_gpus(&Cluster::load(cluster).unwrap()).map(|library| library.to_string());
/// assert_eq!(name("dgx-h100").as_deref(), Some("library:nccl"));
/// assert_eq!(name("mi300x-8").as_deref(), Some("library:rccl"));
/// assert_eq!(name("ethernet-4"), None);
/// ```
pub fn library_of_gpus(cluster: &Cluster) -> Option<Algorithm> {
    let mut gpus = cluster.devices().iter().filter_map(|device| match &device.kind {
        DeviceKind::Gpu(gpu) => Some(&**gpu),
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
    });
    let first = gpus.next()?;
    let (generation, architecture) = (Generation::of(first), first.architecture);
    if generation.is_some() {
        return gpus.all(|gpu| Generation::of(gpu) == generation).then(Algorithm::nccl_library);
    }
    let alike = architecture.is_some_and(Architecture::is_amd) && gpus.all(|gpu| gpu.architecture == architecture);
    alike.then(Algorithm::rccl_library)
}
