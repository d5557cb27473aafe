//! Tests shards: together they are the whole sweep, and incomplete ones are refused.

use lockstep_experiment::shard::SweepShard;
use proptest::prelude::*;

use super::*;

/// Runs a shard of a sweep into its file beside `out`; returns its content at the end, if there is one.
fn run_shard(sweep: &Sweep, out: &std::path::Path, shard: SweepShard, jobs: usize) -> Result<String, Failure> {
    let how = How::default();
    let identity = identity(sweep, &how);
    let collector = Collector::of(sweep.clone(), sweep.plan()?, Some(shard));
    let points = Points::new(collector.sweep(), collector.plan(), &how, &identity)?;
    let path = shard.file(out);
    collector.write_to(RowsFile::open(&path, &identity, collector.order(), |row| {
        let own = points.has_settings_of(&row);
        collector.known(row);
        own
    })?);
    run(&points, &collector, jobs, &Estimate::silent())?;
    Ok(std::fs::read_to_string(path).unwrap_or_default())
}

/// Merges the shards whose files are beside `out`.
fn merged(sweep: &Sweep, out: &std::path::Path, shards: u32) -> Result<String, Failure> {
    let how = How::default();
    let identity = identity(sweep, &how);
    let collector = Collector::new(sweep.clone(), sweep.plan()?);
    let points = Points::new(collector.sweep(), collector.plan(), &how, &identity)?;
    collector.keep_rows();
    merge(&points, &collector, &identity, out, shards)?;
    collector.with(|answer, _| RowsFile::replace(out, answer.kept.as_deref().unwrap()))?;
    Ok(std::fs::read_to_string(out).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any number of shards, run in any order and torn anywhere, are together the whole sweep.
    #[test]
    fn merged_shards_are_the_whole_sweep(
        of in 1u32..50,
        torn in 0.0f64..1.0,
        json in any::<bool>(),
        text in prop::sample::select(vec![
            SMALL,
            "name = \"s\"\nmodel = \"mlp\"\n[sweep]\ncluster = [\"ethernet-4\", \"workstation\"]\nranks = \"1..16\"\n\
             batch_per_rank = [8, 16]\n",
            // On one host of 16 cores most points are impossible.
            "name = \"s\"\nmodel = \"mlp\"\n[sweep]\ncluster = \"workstation\"\nranks = [1, 32, 64, 128]\n",
        ]),
    ) {
        let kept = tempfile::tempdir().unwrap();
        let sweep = sweep(text);
        let name = if json { "rows.jsonl" } else { "rows.csv" };
        let whole = run_into(&sweep, &kept.path().join(format!("whole-{name}")), 2).unwrap();
        let out = kept.path().join(name);
        let shards: Vec<SweepShard> = SweepShard::all(of).collect();
        for shard in shards.iter().rev() {
            let text = run_shard(&sweep, &out, *shard, 2).unwrap();
            if text.is_empty() {
                continue;
            }
            std::fs::write(shard.file(&out), &text[..(text.len() as f64 * torn) as usize]).unwrap();
            prop_assert!(merged(&sweep, &out, of).is_err() && !out.exists());
            prop_assert_eq!(run_shard(&sweep, &out, *shard, 1).unwrap(), text);
        }
        prop_assert_eq!(&merged(&sweep, &out, of).unwrap(), &whole);
        // Again, into the existing file.
        prop_assert_eq!(merged(&sweep, &out, of).unwrap(), whole);
    }
}

#[test]
fn missing_duplicate_and_foreign_shards_are_refused_with_the_cure() {
    let kept = tempfile::tempdir().unwrap();
    let out = kept.path().join("rows.csv");
    let text = "name = \"s\"\nmodel = \"mlp\"\ncluster = \"workstation\"\nranks = [1, 2, 4, 8]\n";
    let (own, other) = (sweep(text), sweep(&text.replace("8]", "16]")));
    let shards: Vec<SweepShard> = SweepShard::all(2).collect();
    for shard in &shards {
        run_shard(&own, &out, *shard, 1).unwrap();
    }
    let (first, second) = (shards[0].file(&out), shards[1].file(&out));
    let rows = std::fs::read_to_string(&second).unwrap();
    let refused = |words: &str| {
        let error = merged(&own, &out, 2).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("rows.2-of-2.csv"), "{error}");
        assert!(!out.exists());
    };
    std::fs::remove_file(&second).unwrap();
    refused("is missing: run the same command with --shard 2/2 instead of --merge 2");
    let line = rows.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&second, &rows[..line]).unwrap();
    refused("holds 1 of 2 points: run the same command with --shard 2/2");
    std::fs::copy(&first, &second).unwrap();
    refused("line 2 is of another point than is due there, as in the file of another shard");
    std::fs::remove_file(&second).unwrap();
    run_shard(&other, &out, shards[1], 1).unwrap();
    refused("line 2 is not of this sweep");
    std::fs::write(&second, format!("{rows}{}\n", rows.lines().last().unwrap())).unwrap();
    refused("line 4 was changed");
    std::fs::write(&second, &rows).unwrap();
    let busy = std::fs::File::open(&second).unwrap();
    busy.lock().unwrap();
    refused("is being written by another run");
    drop(busy);
    // A file that merging would replace must be of this sweep, else it is left unchanged.
    std::fs::write(&out, "mine").unwrap();
    let how = How::default();
    let all: Vec<u32> = (0..4).collect();
    assert!(RowsFile::open(&out, &identity(&own, &how), &all, |_| true).is_err());
    std::fs::remove_file(&out).unwrap();
    assert!(merged(&own, &out, 3).unwrap_err().to_string().contains("rows.1-of-3.csv: is missing"));
    merged(&own, &out, 2).unwrap();
}
