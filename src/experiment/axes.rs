//! `Axes`: the lists that `[sweep]` gives in place of the experiment's single values, as they are written.

use lockstep_models::{Bucket, Strategy};
use lockstep_topology::{Algorithm, Bytes, InputError};

use super::read::each;
use super::reader::Entry;
use super::{Batch, Experiment, parse_chunk};
use crate::sweep::{RankCount, SCALES, Scale, counts};

/// Lists by key; a key without one keeps what the experiment says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axes {
    /// Models, as `model` takes them.
    pub models: Option<Vec<String>>,
    /// Clusters, as `cluster` takes them, and with `1..32` in place of a number of hosts.
    pub clusters: Option<Vec<String>>,
    /// Numbers of ranks.
    pub ranks: Option<Vec<RankCount>>,
    /// How training is spread over ranks.
    pub strategies: Option<Vec<Strategy>>,
    /// Learners on each device.
    pub learners: Option<Vec<u32>>,
    /// Samples per step.
    pub batch: Option<Batch>,
    /// Micro-batches per step and rank.
    pub accumulate: Option<Vec<u32>>,
    /// Methods of the allreduce.
    pub algorithms: Option<Vec<Algorithm>>,
    /// How gradients are cut into exchanges.
    pub buckets: Option<Vec<Bucket>>,
    /// Bytes per lane; `None`: the algorithm's own choice.
    pub chunks: Option<Vec<Option<Bytes>>>,
    /// Exchanges in flight at once.
    pub concurrent_exchanges: Option<Vec<u32>>,
    /// Figures of the clusters, each with the factors that it is multiplied by.
    pub scales: Vec<Scale>,
}

/// The keys of `[sweep]`.
const KEYS: [&str; 13] = [
    "model",
    "cluster",
    "ranks",
    "strategy",
    "learners",
    "batch_per_rank",
    "global_batch",
    "accumulate",
    "algorithm",
    "bucket",
    "chunk",
    "concurrent_exchanges",
    "scale",
];

/// A chunk, or `auto`.
pub(crate) fn chunk_or_auto(text: &str) -> Result<Option<Bytes>, String> {
    if text == "auto" { Ok(None) } else { parse_chunk(text).map(Some) }
}

/// Reads `[sweep]` into the experiment's axes; errors about its keys then name its lines.
pub(super) fn read(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let section = entry.section("[sweep]", &KEYS)?;
    if let (Some(_), Some(global)) = (section.get("batch_per_rank"), section.get("global_batch")) {
        return Err(global.error("batch_per_rank is there too: give one of the two"));
    }
    let axes = &mut experiment.sweep;
    for entry in section.entries() {
        match entry.key() {
            "model" => axes.models = Some(each(&entry, |item| item.text().map(str::to_owned))?),
            "cluster" => axes.clusters = Some(each(&entry, |item| item.text().map(str::to_owned))?),
            "ranks" => axes.ranks = Some(ranks(&entry)?),
            "strategy" => axes.strategies = Some(each(&entry, |item| item.read(str::parse))?),
            "learners" => axes.learners = Some(each(&entry, learners)?),
            "batch_per_rank" => axes.batch = Some(Batch::PerRank(each(&entry, |item| item.count())?)),
            "global_batch" => axes.batch = Some(Batch::Global(each(&entry, |item| item.whole(1..1 << 48))?)),
            "accumulate" => axes.accumulate = Some(each(&entry, |item| item.count())?),
            "algorithm" => axes.algorithms = Some(each(&entry, |item| item.read(str::parse))?),
            "bucket" => axes.buckets = Some(each(&entry, |item| item.read(str::parse))?),
            "chunk" => axes.chunks = Some(each(&entry, |item| item.read(chunk_or_auto))?),
            "concurrent_exchanges" => axes.concurrent_exchanges = Some(each(&entry, |item| item.count())?),
            _ => axes.scales = scales(&entry)?,
        }
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    // What only errors about both keys ask for.
    if axes.batch.is_some() {
        let other = if section.get("global_batch").is_some() { "batch_per_rank" } else { "global_batch" };
        experiment.places.remove(other);
    }
    Ok(())
}

/// Numbers, `"1..1024"` or `"all"`.
fn ranks(entry: &Entry<'_>) -> Result<Vec<RankCount>, InputError> {
    let mut all: Vec<RankCount> = Vec::new();
    for item in entry.items()? {
        let these = if item.text().is_ok() { item.read(counts)? } else { vec![RankCount::Of(item.count()?)] };
        for count in these {
            if all.contains(&count) {
                return Err(item.error(format!("{count} ranks stand twice in ranks: leave one out")));
            }
            all.push(count);
        }
    }
    Ok(all)
}

/// A number of learners; none is found by tuning.
fn learners(entry: &Entry<'_>) -> Result<u32, InputError> {
    match entry.text() {
        Ok(_) => Err(entry.error("a sweep needs to know each configuration: write numbers")),
        Err(_) => Ok(entry.whole(1..1025)? as u32),
    }
}

/// `[sweep.scale]`: for each name its factors.
fn scales(entry: &Entry<'_>) -> Result<Vec<Scale>, InputError> {
    let section = entry.section("[sweep.scale]", &SCALES)?;
    let mut all: Vec<Scale> = Vec::new();
    // In the order of the list of names, whatever the file's.
    for name in SCALES {
        let Some(entry) = section.get(name) else { continue };
        let factors = each(&entry, |item| item.number(0.0))?;
        all.push(Scale::new(name, factors).map_err(|wrong| entry.error(wrong))?);
        if let Some(both) = Scale::overlap(&all) {
            return Err(entry.error(both));
        }
    }
    Ok(all)
}
