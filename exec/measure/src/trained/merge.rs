//! Merges the files of a trained sweep's shards, in the order in which a single command trains all runs.

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_experiment::shard::SweepShard;
use lockstep_report::EpochRow;
use lockstep_topology::InputError;

use super::file::RunsFile;
use super::plan::{Planned, share};

/// Writes the rows of all runs of `plan` to `out`, from the shards' files beside it, and returns them.
///
/// # Errors
/// A shard without a file or without all its runs, a file of another kind or in use; `out` is left as it was.
pub fn merge(out: &Path, plan: &[Planned], shards: u32) -> Result<Vec<EpochRow>, InputError> {
    // An existing file must be of this sweep too.
    RunsFile::open(out, plan, None)?;
    let mut runs: BTreeMap<String, Vec<EpochRow>> = BTreeMap::new();
    for shard in SweepShard::all(shards) {
        let (own, path) = (share(plan, Some(shard)), shard.file(out));
        let file = RunsFile::open(&path, plan, Some(shard))?;
        let found = own.iter().filter(|planned| file.has(planned)).count();
        shard.refuse_part(&path, (found, own.len()), "runs")?;
        file.rows().iter().for_each(|row| runs.entry(row.run.clone()).or_default().push(row.clone()));
    }
    let rows: Vec<EpochRow> = plan.iter().filter_map(|planned| runs.remove(&planned.run)).flatten().collect();
    RunsFile::replace(out, &rows)?;
    Ok(rows)
}
