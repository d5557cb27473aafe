//! Holds the systems that come with lockstep, and machines that resemble no preset, as text.

use lockstep_topology::{Cluster, InputError};

/// Name and text of `experiments/collectives/$name.toml` for each.
macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../../experiments/collectives/", $name, ".toml")))),+]
    };
}

/// The systems, in the order in which they are printed.
pub(super) const SYSTEMS: [(&str, &str); 10] = shipped![
    "a100-superbench",
    "azure-a100",
    "azure-h100",
    "azure-h200",
    "h200-gpus",
    "b200-hgx",
    "b200-gpus",
    "h100-p5",
    "v100-roce",
    "a100-coreweave",
];

/// A machine that is no preset.
const MACHINE: (&str, &str) =
    ("dgx1-v100-roce", include_str!("../../../../experiments/collectives/machines/dgx1-v100-roce.toml"));

/// The cluster called `name`: one of these machines, a preset or a file.
///
/// # Errors
/// As [`Cluster::load`].
pub(super) fn cluster(name: &str) -> Result<Cluster, InputError> {
    let (own, text) = MACHINE;
    if name == own { Cluster::parse(&format!("{own}.toml"), text) } else { Cluster::load(name) }
}
