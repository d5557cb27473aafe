//! Names parameters, and the sources of their figures.

use std::collections::BTreeSet;

use lockstep_sim::answer::{CostParameter, OwnTime};
use lockstep_topology::Placement;
use lockstep_topology::cluster::{DEFAULT_LAUNCH, DeviceKind, Figure};

use crate::site::Site;

/// `ethernet bandwidth`, `GPU peak FLOP/s`, `kernel times`.
pub(super) fn parameter(parameter: CostParameter) -> String {
    match parameter {
        CostParameter::Cluster(Figure::Bandwidth(kind)) => format!("{kind} bandwidth"),
        CostParameter::Cluster(Figure::Latency(kind)) => format!("{kind} latency"),
        CostParameter::Cluster(Figure::Overhead(kind)) => format!("{kind} overhead per message"),
        CostParameter::Cluster(Figure::CpuPeak) => "CPU peak FLOP/s".to_owned(),
        CostParameter::Cluster(Figure::CpuMemory) => "host memory bandwidth".to_owned(),
        CostParameter::Cluster(Figure::GpuPeak) => "GPU peak FLOP/s".to_owned(),
        CostParameter::Cluster(Figure::GpuMemory) => "GPU memory bandwidth".to_owned(),
        CostParameter::Cluster(Figure::Launch) => "time from one GPU kernel to the next".to_owned(),
        CostParameter::Own(OwnTime::Kernels) => "kernel times".to_owned(),
        CostParameter::Own(OwnTime::MessageLatency) => "message latency".to_owned(),
        CostParameter::Own(OwnTime::MessageOverhead) => "overhead per message".to_owned(),
        CostParameter::Own(OwnTime::MessageBytes) => "copy and sum times".to_owned(),
        CostParameter::Own(OwnTime::Library) => "the library's own times".to_owned(),
    }
}

/// The parameter's name where it is a figure of this site: data sheets have no kernel times, and a profile
/// nothing else.
pub(super) fn in_words(of: CostParameter, site: &Site) -> Option<String> {
    let own = matches!(of, CostParameter::Own(_));
    (!own || site.profile.is_some()).then(|| parameter(of))
}

/// The sources of a parameter's figures, each once.
pub(super) fn provenance(parameter: CostParameter, site: &Site, placement: &Placement) -> Vec<String> {
    let mut sources: BTreeSet<String> = BTreeSet::new();
    match parameter {
        CostParameter::Own(_) if site.profile.is_some() => {
            sources.insert(site.basis.clone());
        }
        CostParameter::Own(_) => {
            sources.insert("assumed: a constant of the cost model".to_owned());
        }
        CostParameter::Cluster(Figure::Bandwidth(kind) | Figure::Latency(kind)) => {
            let links = site.cluster.links().iter().filter(|link| link.kind == kind);
            sources.extend(links.map(|link| link.provenance.to_string()));
        }
        CostParameter::Cluster(Figure::Overhead(kind)) => {
            let links = site.cluster.links().iter().filter(|link| link.kind == kind);
            sources.extend(links.map(|link| link.protocol.provenance.to_string()));
        }
        CostParameter::Cluster(figure) => {
            let of_gpus = matches!(figure, Figure::GpuPeak | Figure::GpuMemory | Figure::Launch);
            for rank in placement.all() {
                let device = &site.cluster.devices()[placement.device(rank).0 as usize];
                match &device.kind {
                    // Data sheets do not state it.
                    DeviceKind::Gpu(gpu) if figure == Figure::Launch && gpu.launch == DEFAULT_LAUNCH => {
                        sources.insert("assumed: the default of cluster files".to_owned());
                    }
                    kind if matches!(kind, DeviceKind::Gpu(_)) == of_gpus => {
                        sources.insert(device.provenance.to_string());
                    }
                    _ => {}
                }
            }
        }
    }
    sources.into_iter().collect()
}
