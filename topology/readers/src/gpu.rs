//! Finds a machine's GPU in the catalogue: by name, or by compute capability and wiring.

use lockstep_topology::cluster::{CatalogueGpu, catalogue};
use lockstep_topology::{InputError, nearest};

/// The GPU called `name`.
pub(crate) fn named(name: &str) -> Result<CatalogueGpu, InputError> {
    let gpus = catalogue()?;
    let near = nearest(name, gpus.iter().map(|gpu| gpu.name.as_str())).join(", ");
    let hint = if near.is_empty() { String::new() } else { format!("did you mean {near}? ") };
    let known = gpus.into_iter().find(|gpu| gpu.name == name);
    known.ok_or_else(|| InputError::flag("gpu", name, format!("is not a GPU; {hint}lockstep clusters gpus lists them")))
}

/// The name of a GPU with compute capability `sm` (80 is 8.0), with or without NVLinks, beside an ARM CPU or another.
/// Where several differ in memory alone, the larger.
pub(crate) fn by_capability(sm: u32, has_nvlink: bool, is_arm: bool) -> Option<&'static str> {
    Some(match (sm, has_nvlink, is_arm) {
        (37, ..) => "k80",
        (52, ..) => "m40",
        (60, true, _) => "p100-sxm2",
        (60, false, _) => "p100-pcie",
        (61, ..) => "titan-x-pascal",
        (70, true, _) => "v100-sxm2-32",
        (70, false, _) => "v100-pcie-32",
        (75, ..) => "t4",
        (80, true, _) => "a100-80-sxm",
        (80, false, _) => "a100-80-pcie",
        (86, ..) => "a10",
        (89, ..) => "l4",
        (90, true, false) => "h100-sxm",
        (90, false, false) => "h100-pcie",
        (100, _, false) => "b200-sxm",
        (100, _, true) => "gb200",
        (103, _, true) => "gb300",
        _ => return None,
    })
}
