//! Finds a machine's GPU in the catalogue: by name, by its PCI device, or by compute capability and wiring; and the
//! rates of links that a machine's report leaves to the model.

use lockstep_topology::cluster::{CatalogueGpu, Lanes, catalogue};
use lockstep_topology::{Bandwidth, InputError, nearest};

/// The GPU called `name`.
pub(crate) fn named(name: &str) -> Result<CatalogueGpu, InputError> {
    let gpus = catalogue()?;
    let near = nearest(name, gpus.iter().map(|gpu| gpu.name.as_str())).join(", ");
    let hint = if near.is_empty() { String::new() } else { format!("did you mean {near}? ") };
    let known = gpus.into_iter().find(|gpu| gpu.name == name);
    known.ok_or_else(|| InputError::flag("gpu", name, format!("is not a GPU; {hint}lockstep clusters gpus lists them")))
}

/// The names of GPUs with compute capability `sm` (80 is 8.0), with or without NVLinks, beside an ARM CPU or another,
/// the one that is taken first: where several differ in memory alone, the largest.
pub(crate) fn by_capability(sm: u32, has_nvlink: bool, is_arm: bool) -> &'static [&'static str] {
    match (sm, has_nvlink, is_arm) {
        (35, ..) => &["k40", "k20x", "k20"],
        (37, ..) => &["k80"],
        (52, ..) => &["m40", "titan-x-maxwell"],
        (60, true, _) => &["p100-sxm2"],
        (60, false, _) => &["p100-pcie"],
        (61, ..) => &["titan-x-pascal", "p40", "gtx-1080-ti"],
        (70, true, _) => &["v100-sxm2-32", "v100-sxm2"],
        (70, false, _) => &["v100-pcie-32", "v100-pcie", "v100s-pcie-32"],
        (75, true, _) => &["quadro-rtx-8000", "quadro-rtx-6000", "titan-rtx", "rtx-2080-ti"],
        (75, false, _) => &["t4", "rtx-2080-ti", "titan-rtx", "quadro-rtx-6000", "quadro-rtx-8000"],
        (80, true, _) => &["a100-80-sxm", "a100-40-sxm", "a800-80-sxm", "a100-80-pcie", "a30"],
        (80, false, _) => &["a100-80-pcie", "a100-40-pcie", "a800-80-pcie", "a30"],
        (86, true, _) => &["rtx-a6000", "a40", "rtx-3090", "rtx-a5000"],
        (86, false, _) => &["a10", "a10g", "a40", "rtx-3090", "rtx-3080", "rtx-a6000", "rtx-a5000"],
        (89, ..) => &["l4", "l40s", "l40", "l20", "rtx-4090", "rtx-4080", "rtx-6000-ada"],
        (90, _, true) => &["gh200", "gh200-144"],
        (90, true, false) => &["h100-sxm", "h200-sxm", "h800-sxm", "h20", "h20-141"],
        (90, false, false) => &["h100-pcie", "h100-nvl", "h200-nvl", "h800-pcie"],
        (100, _, false) => &["b200-sxm"],
        (100, _, true) => &["gb200"],
        (103, _, true) => &["gb300"],
        (103, _, false) => &["b300-sxm"],
        (120, ..) => &["rtx-pro-6000", "rtx-5090", "rtx-5080"],
        (121, ..) => &["gb10"],
        _ => &[],
    }
}

/// The names of AMD's GPUs of an architecture (`906`, `gfx90a`, `910` for it, `gfx942`) with `units` compute units.
pub(crate) fn by_gcn(gcn: &str, units: Option<u64>) -> &'static [&'static str] {
    match (gcn.trim_start_matches("gfx"), units) {
        ("906", Some(60)) => &["mi50"],
        ("906", Some(64)) => &["mi60"],
        ("906", _) => &["mi60", "mi50"],
        ("908", _) => &["mi100"],
        ("910" | "90a", Some(110)) => &["mi250x"],
        ("910" | "90a", _) => &["mi250", "mi210", "mi250x"],
        ("940", _) | ("942", Some(228)) => &["mi300a"],
        ("942", _) => &["mi300x", "mi325x"],
        ("950", _) => &["mi355x", "mi350x"],
        _ => &[],
    }
}

/// The rate of `lanes` NVLinks of a GPU in each direction, where it is not that of their generation: the four links of
/// NVIDIA's GA102 have 112.5 GB/s both ways together (data sheets of A40, RTX A6000 and GeForce RTX 3090).
pub(crate) fn slow_nvlinks(model: &CatalogueGpu, lanes: Lanes) -> Option<Bandwidth> {
    let is_ga102 = matches!(model.name.as_str(), "a40" | "rtx-3090" | "rtx-a5000" | "rtx-a6000");
    is_ga102.then(|| Bandwidth::new(112.5e9 / 2.0 / 4.0 * f64::from(lanes.count))).flatten()
}

/// The rate of one Infinity Fabric link between AMD's GPUs in each direction, by the model's data sheet.
pub(crate) fn xgmi(model: &str) -> Option<Bandwidth> {
    let both_ways = match model {
        "mi50" | "mi60" | "mi100" => 92e9,
        "mi210" | "mi250" | "mi250x" => 100e9,
        "mi300a" | "mi300x" | "mi325x" => 128e9,
        "mi350x" | "mi355x" => 153.6e9,
        _ => return None,
    };
    Bandwidth::new(both_ways / 2.0)
}

/// The rate of NVLink-C2C between a GPU and its CPU in each direction, by the superchip's data sheet.
pub(crate) fn c2c(model: &str) -> Option<Bandwidth> {
    let each_way = match model {
        "gh200" | "gh200-144" => 450e9,
        // 900 GB/s both ways for two GPUs.
        "gb200" | "gb300" => 225e9,
        "gb10" => 300e9,
        _ => return None,
    };
    Bandwidth::new(each_way)
}

/// Whether boards of this model join their GPUs by NVSwitch, from A100 on.
pub(crate) fn has_switch(model: &CatalogueGpu) -> bool {
    let name = model.name.as_str();
    let is_board = name.ends_with("-sxm") || matches!(name, "h20" | "h20-141" | "gb200" | "gb300");
    is_board && model.spec.nvlink.is_some_and(|lanes| lanes.generation >= 3)
}

/// The cure of a GPU that has fewer NVLinks than the file says.
pub(crate) fn with_nvlinks(count: u32) -> Result<String, InputError> {
    let has = |gpu: &CatalogueGpu| gpu.spec.nvlink.is_some_and(|lanes| lanes.count >= count);
    let names: Vec<String> = catalogue()?.into_iter().filter(has).map(|gpu| gpu.name).collect();
    Ok(match names.is_empty() {
        true => "no GPU in the catalogue has as many; print the topology again".to_owned(),
        false => format!("name the right model by the setting gpu, one of {}", names.join(", ")),
    })
}
