//! Reads `[[host.gpu]]` and the catalogue of GPUs (`gpus.toml`), which have the same keys, with one function.
//!
//! A GPU of a cluster takes from the catalogue what its own table leaves out, so that `model = "h100-sxm"` is enough.

use super::gpu::{Architecture, GpuSpec, Lanes, PeakPrecision};
use super::values::{memory, name};
use super::{Origin, Provenance, parse_flops};
use crate::document::{SourceText, Table};
use crate::{Bandwidth, InputError, Time, nearest};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The catalogue's text.
const TEXT: &str = include_str!("../../gpus.toml");
/// Keys of a `[[host.gpu]]`.
pub(super) const GPU: &[&str] = &[
    "name",
    "count",
    "model",
    "driver_name",
    "architecture",
    "multiprocessors",
    "peak_flops",
    "peak_fp64",
    "peak_tf32",
    "peak_fp16",
    "peak_bf16",
    "peak_fp8",
    "memory_bandwidth",
    "memory",
    "launch",
    "nvlink",
    "pcie",
    "provenance",
];
/// A GPU of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueGpu {
    /// Its name as `model` in a cluster file, e.g. `h100-sxm`.
    pub name: String,
    /// Its figures.
    pub spec: GpuSpec,
    /// Their source, except those in `sources`.
    pub provenance: Provenance,
    /// Figures (by key) with another source.
    pub sources: Vec<(String, Provenance)>,
}

impl CatalogueGpu {
    /// The source of the figure under a key of `[[host.gpu]]`.
    pub fn provenance_of(&self, key: &str) -> &Provenance {
        self.sources.iter().find(|(figure, _)| figure == key).map_or(&self.provenance, |(_, source)| source)
    }

    /// All sources on one line, and which figures a table sets itself.
    fn all_sources(&self, changed: &[&str]) -> Provenance {
        let others = self.sources.iter().filter(|(key, _)| !changed.contains(&key.as_str()));
        let mut text = self.provenance.evidence.clone();
        others.for_each(|(key, source)| text += &format!("; {key} {source}"));
        let kind = self.provenance.kind;
        match changed {
            [] => kind.with(text),
            _ => Origin::Assumed.with(format!("{} as the cluster file says; else {kind}: {text}", changed.join(", "))),
        }
    }
}

/// The GPUs that cluster files may name, oldest first.
///
/// # Errors
/// None, unless the shipped file is broken; a test reads it.
pub fn catalogue() -> Result<Vec<CatalogueGpu>, InputError> {
    let document = SourceText { file: "gpus.toml", text: TEXT }.parse()?;
    // The keys of a `[[host.gpu]]`, and which figures are not from the cited source.
    let keys: Vec<&str> = GPU.iter().copied().filter(|key| *key != "count").chain(["sources"]).collect();
    document.table("the catalogue", &["gpu"])?.tables("gpu", "[[gpu]]", &keys)?.iter().map(entry).collect()
}

fn entry(table: &Table<'_>) -> Result<CatalogueGpu, InputError> {
    let mut sources = Vec::new();
    if let Some(own) = table.optional("sources", |entry| entry.section("sources", GPU))? {
        for key in GPU {
            let source = own.read(key, "\"assumed\"", Provenance::from_str)?;
            sources.extend(source.map(|source| (key.to_string(), source)));
        }
    }
    Ok(CatalogueGpu {
        name: table.required("name", "\"h100-sxm\"", name)?,
        spec: spec(table, None)?,
        provenance: table.required("provenance", "\"datasheet: NAME\"", Provenance::from_str)?,
        sources,
    })
}

/// The GPU that a `[[host.gpu]]` describes, and the catalogue's sources where it takes figures from there.
pub(super) fn host_gpu(
    table: &Table<'_>,
    catalogue: &[CatalogueGpu],
) -> Result<(GpuSpec, Option<Provenance>), InputError> {
    let model = table.required("model", "\"v100-sxm2\"", String::from_str)?;
    let known = catalogue.iter().find(|gpu| gpu.name == model);
    if known.is_none() && table.whole("multiprocessors", MULTIPROCESSORS)?.is_none() {
        let near = nearest(&model.to_lowercase().replace(' ', "-"), catalogue.iter().map(|gpu| gpu.name.as_str()));
        let hint = if near.is_empty() {
            "lockstep clusters gpus lists it".into()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        let message = format!(
            "is not in the catalogue ({hint}); use one from there or add multiprocessors = 80 and the other figures"
        );
        return Err(table.error_at("model", message));
    }
    let spec = spec(table, known.map(|gpu| &gpu.spec))?;
    let others = ["architecture", "multiprocessors", "memory_bandwidth", "memory", "launch", "nvlink", "pcie"];
    let figures = PeakPrecision::ALL.map(PeakPrecision::name).into_iter().chain(others);
    let changed: Vec<&str> = figures.filter(|key| table.get(key).is_some()).collect();
    Ok((spec, known.map(|gpu| gpu.all_sources(&changed))))
}

const MULTIPROCESSORS: RangeInclusive<u64> = 1..=100_000;
/// From one kernel to the next, where none is stated (assumed).
pub const DEFAULT_LAUNCH: Time = Time::from_nanos(4_000);

/// The figures of a table, those that it leaves out from `base`.
fn spec(table: &Table<'_>, base: Option<&GpuSpec>) -> Result<GpuSpec, InputError> {
    let mut peaks = [None; 6];
    for precision in PeakPrecision::ALL {
        let given = table.read(precision.name(), "\"15.7TFLOP/s\"", parse_flops)?;
        peaks[precision as usize] = given.or_else(|| base?.peak(precision));
    }
    let Some(peak_flops_s) = peaks[PeakPrecision::Fp32 as usize].take() else {
        return Err(table.missing("peak_flops", "\"15.7TFLOP/s\""));
    };
    let architecture = table.read("architecture", "\"volta\"", Architecture::from_str)?;
    let multiprocessors = table.whole("multiprocessors", MULTIPROCESSORS)?.map(|count| count as u32);
    let bandwidth = table.read("memory_bandwidth", "\"900GB/s\"", Bandwidth::from_str)?;
    let size = table.read("memory", "\"16GiB\"", memory)?;
    let launch = table.read("launch", "\"4us\"", Time::from_str)?;
    let nvlink = table.read("nvlink", "\"2.0 x6\"", Lanes::from_str)?;
    let pcie = table.read("pcie", "\"3.0 x16\"", Lanes::from_str)?;
    let model = table.required("model", "\"v100-sxm2\"", String::from_str)?;
    let driver_name = table.read("driver_name", "\"NVIDIA H100 80GB HBM3\"", String::from_str)?;
    let missing = |key, example| move || table.missing(key, example);
    Ok(GpuSpec {
        model,
        driver_name: driver_name.or_else(|| base?.driver_name.clone()),
        architecture: architecture.or(base.and_then(|base| base.architecture)),
        multiprocessors: multiprocessors
            .or(base.map(|base| base.multiprocessors))
            .ok_or_else(missing("multiprocessors", "80"))?,
        peak_flops_s,
        peaks,
        memory_bandwidth: bandwidth
            .or(base.map(|base| base.memory_bandwidth))
            .ok_or_else(missing("memory_bandwidth", "\"900GB/s\""))?,
        memory: size.or(base.map(|base| base.memory)).ok_or_else(missing("memory", "\"16GiB\""))?,
        launch: launch.or(base.map(|base| base.launch)).unwrap_or(DEFAULT_LAUNCH),
        nvlink: nvlink.or(base.and_then(|base| base.nvlink)),
        pcie: pcie.or(base.and_then(|base| base.pcie)),
    })
}
