//! `[[host.gpu]]` and the catalogue of GPUs (`gpus.toml`): one set of keys, read by one function.
//!
//! A GPU of a cluster takes from the catalogue what its own table leaves out, so that `model = "h100-sxm"` is enough.

use super::gpu::{GpuSpec, Lanes, Precision};
use super::values::{memory, name};
use super::{Provenance, parse_flops};
use crate::document::{Source, Table};
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
/// Keys of the catalogue: the same, and which figures are not the cited source's.
const ENTRY: &[&str] = &[
    "name",
    "model",
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
    "sources",
];

/// A GPU of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueGpu {
    /// What `model` names it by in a cluster file, e.g. `h100-sxm`.
    pub name: String,
    /// Its figures.
    pub spec: GpuSpec,
    /// Where they come from, but for those in `sources`.
    pub provenance: Provenance,
    /// Figures (by key) that come from elsewhere.
    pub sources: Vec<(String, Provenance)>,
}

impl CatalogueGpu {
    /// Where the figure under a key of `[[host.gpu]]` comes from.
    pub fn provenance_of(&self, key: &str) -> &Provenance {
        self.sources.iter().find(|(figure, _)| figure == key).map_or(&self.provenance, |(_, source)| source)
    }

    /// All sources on one line, changed by what a table sets itself.
    fn all_sources(&self, changed: &[&str]) -> Provenance {
        let others = self.sources.iter().filter(|(key, _)| !changed.contains(&key.as_str()));
        let mut text = self.provenance.evidence().to_string();
        others.for_each(|(key, source)| text += &format!("; {key} {source}"));
        match changed {
            [] => self.provenance.with_evidence(text),
            _ => Provenance::Assumed(format!(
                "{} as the cluster file says; else {}: {text}",
                changed.join(", "),
                self.provenance.kind()
            )),
        }
    }
}

/// The GPUs that cluster files may name, oldest first.
///
/// # Errors
/// None, unless the shipped file is broken; a test reads it.
pub fn catalogue() -> Result<Vec<CatalogueGpu>, InputError> {
    let document = Source { file: "gpus.toml", text: TEXT }.parse()?;
    document.table("the catalogue", &["gpu"])?.tables("gpu", "[[gpu]]", ENTRY)?.iter().map(entry).collect()
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
        spec: spec(table, None)?.0,
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
            "is not in the catalogue ({hint}); take one from there or add multiprocessors = 80 and the other figures"
        );
        return Err(table.error_at("model", message));
    }
    let (spec, changed) = spec(table, known.map(|gpu| &gpu.spec))?;
    Ok((spec, known.map(|gpu| gpu.all_sources(&changed))))
}

const MULTIPROCESSORS: RangeInclusive<u64> = 1..=100_000;
/// From one kernel to the next, where nobody says (assumed).
const LAUNCH: Time = Time::from_nanos(4_000);

/// The figures of a table, those that it leaves out from `base`; and the keys of `base` that it changes.
fn spec(table: &Table<'_>, base: Option<&GpuSpec>) -> Result<(GpuSpec, Vec<&'static str>), InputError> {
    let mut changed = Vec::new();
    let mut flops = |key: &'static str| {
        let flops_s = table.read(key, "\"15.7TFLOP/s\"", parse_flops)?;
        changed.extend(flops_s.map(|_| key));
        Ok::<_, InputError>(flops_s)
    };
    let mut peaks = [None; 6];
    for precision in Precision::ALL {
        let given = flops(precision.key())?;
        peaks[precision as usize] = given.or_else(|| base.and_then(|base| base.peak(precision)));
    }
    let Some(peak_flops_s) = peaks[Precision::Fp32 as usize].take() else {
        return Err(table.missing("peak_flops", "\"15.7TFLOP/s\""));
    };
    let multiprocessors = table.whole("multiprocessors", MULTIPROCESSORS)?.map(|count| count as u32);
    let bandwidth = table.read("memory_bandwidth", "\"900GB/s\"", Bandwidth::from_str)?;
    let size = table.read("memory", "\"16GiB\"", memory)?;
    let launch = table.read("launch", "\"4us\"", Time::from_str)?;
    let nvlink = table.read("nvlink", "\"2.0 x6\"", Lanes::from_str)?;
    let pcie = table.read("pcie", "\"3.0 x16\"", Lanes::from_str)?;
    let given = [
        ("multiprocessors", multiprocessors.is_some()),
        ("memory_bandwidth", bandwidth.is_some()),
        ("memory", size.is_some()),
        ("launch", launch.is_some()),
        ("nvlink", nvlink.is_some()),
        ("pcie", pcie.is_some()),
    ];
    changed.extend(given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key));
    let spec = GpuSpec {
        model: table.required("model", "\"v100-sxm2\"", String::from_str)?,
        multiprocessors: multiprocessors
            .or(base.map(|base| base.multiprocessors))
            .ok_or_else(|| table.missing("multiprocessors", "80"))?,
        peak_flops_s,
        peaks,
        memory_bandwidth: bandwidth
            .or(base.map(|base| base.memory_bandwidth))
            .ok_or_else(|| table.missing("memory_bandwidth", "\"900GB/s\""))?,
        memory: size.or(base.map(|base| base.memory)).ok_or_else(|| table.missing("memory", "\"16GiB\""))?,
        launch: launch.or(base.map(|base| base.launch)).unwrap_or(LAUNCH),
        nvlink: nvlink.or(base.and_then(|base| base.nvlink)),
        pcie: pcie.or(base.and_then(|base| base.pcie)),
    };
    Ok((spec, changed))
}
