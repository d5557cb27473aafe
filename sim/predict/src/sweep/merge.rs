//! Merges the files of a sweep's shards into the result of the whole sweep.

use std::path::Path;

use lockstep_experiment::shard::SweepShard;
use lockstep_report::SweepRow;
use lockstep_report::failure::Failure;

use super::collector::{Collector, points_of};
use super::file::RowsFile;
use super::points::Points;

/// Gives `collector`, that of the whole sweep, the rows of all `shards` shards, whose files are beside `out`.
///
/// # Errors
/// A shard without a file or with less than all its rows, a file of something else or in use.
pub fn merge(
    points: &Points<'_>,
    collector: &Collector,
    identity: &str,
    out: &Path,
    shards: u32,
) -> Result<(), Failure> {
    let plan = collector.plan();
    let mut rows: Vec<Option<SweepRow>> = vec![None; plan.points.len()];
    for shard in SweepShard::all(shards) {
        let (own, path) = (points_of(shard, plan), shard.file(out));
        let mut found = 0;
        RowsFile::open(&path, identity, &own, |row| {
            let own = points.has_settings_of(&row);
            found += 1;
            let point = row.point as usize;
            rows[point] = Some(row);
            own
        })?;
        shard.refuse_part(&path, (found, own.len()), "points")?;
    }
    for (point, row) in (0..).zip(rows) {
        collector.put(point, row, |point, ranks| points.label(point, ranks));
    }
    collector.end()
}
