//! `Scale`: names figures of a cluster that are multiplied together, and the factors to try.

use std::str::FromStr;

use lockstep_topology::cluster::{DeviceKind, Figure, LinkKind};
use lockstep_topology::{Cluster, nearest};

/// What can be scaled: bandwidths by kind of link, peaks of devices, and each kind's latency and overhead per message.
pub const SCALES: [&str; 29] = [
    "nic",
    "ethernet",
    "infiniband",
    "gemini",
    "nvlink",
    "pcie",
    "host-bridge",
    "shared-memory",
    "host-memory",
    "gpu-memory",
    "cpu",
    "gpu",
    "launch",
    "nic-latency",
    "ethernet-latency",
    "infiniband-latency",
    "gemini-latency",
    "nvlink-latency",
    "pcie-latency",
    "host-bridge-latency",
    "shared-memory-latency",
    "nic-overhead",
    "ethernet-overhead",
    "infiniband-overhead",
    "gemini-overhead",
    "nvlink-overhead",
    "pcie-overhead",
    "host-bridge-overhead",
    "shared-memory-overhead",
];

/// The links between hosts.
const NETWORKS: [LinkKind; 3] = [LinkKind::Ethernet, LinkKind::InfiniBand, LinkKind::Gemini];
/// Limits on factors.
const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Figures that are multiplied together, and their factors.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterScale {
    /// One of [`SCALES`].
    pub name: String,
    /// The figures it includes.
    pub figures: Vec<Figure>,
    /// The factors, in the order given.
    pub factors: Vec<f64>,
}

impl ClusterScale {
    /// The scale called `name` with these factors.
    ///
    /// # Errors
    /// An unknown name; a factor outside 10⁻⁶ to 10⁶, or none, or one twice.
    pub fn new(name: &str, factors: Vec<f64>) -> Result<ClusterScale, String> {
        let figures = figures(name).ok_or_else(|| {
            let near = nearest(name, SCALES);
            let hint = if near.is_empty() { SCALES[..13].join(", ") } else { near.join(" or ") };
            format!("{name:?} cannot be scaled; did you mean {hint}?")
        })?;
        if factors.is_empty() {
            return Err(format!("{name} needs factors, as in {name}=0.5,1,2"));
        }
        for (index, factor) in factors.iter().enumerate() {
            if !FACTORS.contains(factor) {
                return Err(format!("{name}={factor:?} must be a factor from 0.000001 to 1000000"));
            }
            if factors[..index].contains(factor) {
                return Err(format!("{name} has the factor {factor:?} twice: leave one out"));
            }
        }
        Ok(ClusterScale { name: name.to_owned(), figures, factors })
    }

    /// The error where two of `all` multiply the same figure.
    pub fn overlap(all: &[ClusterScale]) -> Option<String> {
        let pairs = all.iter().enumerate().flat_map(|(index, one)| all[..index].iter().map(move |other| (other, one)));
        let both = |(one, other): &(&ClusterScale, &ClusterScale)| {
            one.figures.iter().any(|figure| other.figures.contains(figure))
        };
        let (one, other) = pairs.into_iter().find(both)?;
        Some(format!("{} and {} scale the same figures: leave one out", one.name, other.name))
    }

    /// Whether `cluster` has any of its figures.
    pub fn touches(&self, cluster: &Cluster) -> bool {
        let has = |kind: LinkKind| cluster.links().iter().any(|link| link.kind == kind);
        let gpus = || cluster.devices().iter().any(|device| matches!(device.kind, DeviceKind::Gpu(_)));
        self.figures.iter().any(|figure| match figure {
            Figure::Bandwidth(kind) | Figure::Latency(kind) | Figure::Overhead(kind) => has(*kind),
            Figure::CpuPeak | Figure::CpuMemory => true,
            Figure::GpuPeak | Figure::GpuMemory | Figure::Launch => gpus(),
        })
    }
}

impl FromStr for ClusterScale {
    type Err = String;

    /// Reads `nic=0.5,1,2`.
    fn from_str(text: &str) -> Result<ClusterScale, String> {
        let cure = || format!("{text:?}: write a name and factors, as in nic=0.5,1,2");
        let (name, factors) = text.split_once('=').ok_or_else(cure)?;
        let factor = |text: &str| text.trim().parse::<f64>().map_err(|_| cure());
        ClusterScale::new(name.trim(), factors.split(',').map(factor).collect::<Result<_, _>>()?)
    }
}

/// The figures of a name.
fn figures(name: &str) -> Option<Vec<Figure>> {
    if !SCALES.contains(&name) {
        return None;
    }
    let of = |name: &str, figure: fn(LinkKind) -> Figure| -> Option<Vec<Figure>> {
        match name {
            "nic" => Some(NETWORKS.map(figure).to_vec()),
            name => Some(vec![figure(name.parse().ok()?)]),
        }
    };
    match name {
        "cpu" => Some(vec![Figure::CpuPeak]),
        "gpu" => Some(vec![Figure::GpuPeak]),
        "launch" => Some(vec![Figure::Launch]),
        "gpu-memory" => Some(vec![Figure::GpuMemory]),
        _ => match (name.strip_suffix("-latency"), name.strip_suffix("-overhead")) {
            (Some(kind), _) => of(kind, Figure::Latency),
            (_, Some(kind)) => of(kind, Figure::Overhead),
            _ => of(name, Figure::bandwidth_of),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_name_has_figures() {
        for name in SCALES {
            let scale = ClusterScale::new(name, vec![2.0]).unwrap();
            assert_eq!(scale.figures.len(), if name.starts_with("nic") { 3 } else { 1 }, "{name}");
        }
        let nic: ClusterScale = "nic = 0.5, 1,2".parse().unwrap();
        assert_eq!((nic.name.as_str(), nic.factors), ("nic", vec![0.5, 1.0, 2.0]));
    }

    #[test]
    fn invalid_scales_are_refused() {
        for (text, words) in [
            ("nic", "nic=0.5,1,2"),
            ("nic=", "nic=0.5,1,2"),
            ("nic=fast", "nic=0.5,1,2"),
            ("nik=2", "did you mean nic"),
            ("nic=0", "0.000001"),
            ("nic=nan", "must be a factor"),
            ("nic=1,1.0", "twice"),
        ] {
            let error = text.parse::<ClusterScale>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let both = ["nic=1,2", "ethernet=1,2"].map(|text| text.parse::<ClusterScale>().unwrap());
        assert!(ClusterScale::overlap(&both).unwrap().contains("nic and ethernet"));
        assert_eq!(ClusterScale::overlap(&both[..1]), None);
    }

    #[test]
    fn a_scale_affects_only_clusters_with_such_parts() {
        let cluster = Cluster::load("ethernet-gpu-8").unwrap();
        let touches = |text: &str| text.parse::<ClusterScale>().unwrap().touches(&cluster);
        assert!(touches("nic=2") && touches("gpu=2") && touches("host-memory=2") && touches("pcie-latency=2"));
        assert!(!touches("infiniband=2") && !touches("nvlink=2"));
    }
}
