//! Tests plans, the file, and reading it.

use std::path::Path;

use lockstep_experiment::Experiment;
use lockstep_experiment::shard::SweepShard;
use lockstep_report::EpochRow;

use super::*;

/// Two arms with two seeds each, two epochs of 40 digits.
const TEXT: &str = "name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist:40+20\"\nbatch_per_rank = 10\nepochs = 2\nseeds = 2\n\
                    [optimizer]\nlearning_rate = 0.1\n[[arm]]\nname = \"small\"\n[[arm]]\nname = \"large\"\naccumulate = 2\n";

fn planned(text: &str) -> Result<Vec<Planned>, String> {
    let experiment = Experiment::parse("e.toml", text).map_err(|error| error.to_string())?;
    plan(&experiment).map_err(|error| error.to_string())
}

/// Trains up to `most` of the runs of `plan` that `path` lacks, and returns the file's content.
fn resume(path: &Path, plan: &[Planned], most: usize) -> String {
    let mut file = RunsFile::open(path, plan, None).unwrap();
    let left: Vec<&Planned> = plan.iter().filter(|planned| !file.has(planned)).collect();
    for planned in left.into_iter().take(most) {
        let rows = train(planned, &mut Data::default(), "test").unwrap();
        // Clears the only figure that may differ between two runs.
        file.add(rows.into_iter().map(|row| EpochRow { step_time_s: None, ..row }).collect()).unwrap();
    }
    drop(file);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_plan_has_a_run_for_each_seed_and_arm() {
    let plan = planned(TEXT).unwrap();
    let all: Vec<(u64, &str, u64)> =
        plan.iter().map(|run| (run.seed, run.arm.as_str(), run.configuration.job.global_batch())).collect();
    assert_eq!(all, [(1, "small", 10), (1, "large", 20), (2, "small", 10), (2, "large", 20)]);
    let mut hashes: Vec<&str> = plan.iter().map(|run| run.run.as_str()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
    // Settings that determine the training make another run; the number of seeds does not.
    let run = |text: &str| planned(text).unwrap()[0].run.clone();
    assert_eq!(run(&TEXT.replace("seeds = 2", "seeds = 5")), plan[0].run);
    for (old, new) in [("0.1\n", "0.2\n"), ("epochs = 2", "epochs = 3"), ("40+20", "40+30"), ("\"small\"", "\"other\"")]
    {
        assert_ne!(run(&TEXT.replacen(old, new, 1)), plan[0].run, "{new}");
    }
}

#[test]
fn invalid_sweeps_are_refused_with_line_and_cure() {
    for (old, new, message) in [
        ("epochs = 2", "steps = 2", "e.toml:5: 2: each epoch is evaluated"),
        ("epochs = 2", "epochs = 2\ngrowth = \"2@1\"", "e.toml:6: 2@1: learners are those of sma"),
        ("epochs = 2", "epochs = 2\nstrategy = \"sma\"\nlearners = \"auto\"", "e.toml:7: auto: depends on"),
        ("accumulate = 2", "acumulate = 2", "an arm has no key acumulate: did you mean accumulate?"),
        ("accumulate = 2", "seed = 2", "an arm has no key seed"),
        ("name = \"large\"\n", "", "an arm: lacks the key name"),
        ("name = \"large\"", "name = \"small\"", "is the name of two arms"),
        ("accumulate = 2", "accumulate = 0", "e.toml:13: accumulate = 0: accumulate must be"),
        ("accumulate = 2", "accumulate = 2\nbatch_per_rank = 1\nglobal_batch = 2", "leave one of the three out"),
    ] {
        let error = planned(&TEXT.replace(old, new)).unwrap_err();
        assert!(error.contains(message), "{error} lacks {message}");
    }
}

/// However a sweep is interrupted, rerunning it gives the same rows.
#[test]
fn an_interrupted_sweep_resumes_to_the_same_rows() {
    let kept = tempfile::tempdir().unwrap();
    let (folder, plan) = (kept.path().to_path_buf(), planned(TEXT).unwrap());
    let whole = resume(&folder.join("whole.csv"), &plan, 4);
    assert_eq!(whole.lines().count(), 1 + 4 * 2);
    let path = folder.join("part.csv");
    let part = resume(&path, &plan, 2);
    assert!(whole.starts_with(&part) && part.len() < whole.len());
    for torn in [3, part.len() / 2, part.len() - 40, part.len(), part.len() + 5, whole.len() - 1] {
        std::fs::write(&path, &whole[..torn]).unwrap();
        assert_eq!(resume(&path, &plan, 4), whole, "torn after {torn} bytes");
    }
    // More seeds are more runs of the same sweep.
    let more = planned(&TEXT.replace("seeds = 2", "seeds = 3")).unwrap();
    let file = RunsFile::open(&path, &more, None).unwrap();
    assert_eq!(more.iter().filter(|planned| file.has(planned)).count(), 4);
    let refused = RunsFile::open(&path, &more, None).unwrap_err().to_string();
    assert!(refused.contains("is being written by another run"), "{refused}");
    drop(file);
    let rows = answer(RunsFile::open(&path, &plan, None).unwrap().rows());
    let found: Vec<(&str, u32, u32)> = rows.iter().map(|row| (row.arm.as_str(), row.runs, row.epochs)).collect();
    assert_eq!(found, [("small", 2, 2), ("large", 2, 2)]);
    assert!(rows.iter().all(|row| row.test_error_mean_pct.is_some() && row.test_error_interval_pct.is_some()));
}

/// For any number of shards, trained in any order and interrupted anywhere, the merged file is that of a single
/// command.
#[test]
fn merged_shards_are_the_whole_sweep() {
    let kept = tempfile::tempdir().unwrap();
    let plan = planned(&TEXT.replace("seeds = 2", "seeds = 3")).unwrap();
    let whole = resume(&kept.path().join("whole.csv"), &plan, 6);
    let all = |line: &str| line.to_owned() + "\n";
    let rows_of = |run: &str| whole.lines().filter(|line| line.starts_with(run)).map(all).collect::<String>();
    let header = all(whole.lines().next().unwrap());
    for of in 1..=8 {
        let out = kept.path().join(format!("rows-{of}.csv"));
        for shard in SweepShard::all(of).collect::<Vec<_>>().into_iter().rev() {
            let own = share(&plan, Some(shard));
            let text: String = std::iter::once(header.clone()).chain(own.iter().map(|run| rows_of(&run.run))).collect();
            // As a killed shard leaves it.
            std::fs::write(shard.file(&out), &text[..text.len() - 9]).unwrap();
            if let Some(last) = own.last() {
                let error = merge(&out, &plan, of).unwrap_err().to_string();
                assert!(error.contains("instead of --merge") && !out.exists(), "{error}");
                let mut file = RunsFile::open(&shard.file(&out), &plan, Some(shard)).unwrap();
                let left: Vec<&str> = own.iter().filter(|run| !file.has(run)).map(|run| run.run.as_str()).collect();
                assert_eq!(left, [&last.run]);
                let rows = train(last, &mut Data::default(), "test").unwrap();
                file.add(rows.into_iter().map(|row| EpochRow { step_time_s: None, ..row }).collect()).unwrap();
            }
        }
        let rows = merge(&out, &plan, of).unwrap();
        assert_eq!((std::fs::read_to_string(&out).unwrap(), rows.len()), (whole.clone(), 12));
    }
}

#[test]
fn missing_duplicate_and_foreign_shards_are_refused_with_the_cure() {
    let kept = tempfile::tempdir().unwrap();
    let (out, plan) = (kept.path().join("rows.csv"), planned(TEXT).unwrap());
    let shards: Vec<SweepShard> = SweepShard::all(2).collect();
    for shard in &shards {
        let mut file = RunsFile::open(&shard.file(&out), &plan, Some(*shard)).unwrap();
        for own in share(&plan, Some(*shard)) {
            file.add(train(own, &mut Data::default(), "test").unwrap()).unwrap();
        }
    }
    let (first, second) = (shards[0].file(&out), shards[1].file(&out));
    let rows = std::fs::read_to_string(&second).unwrap();
    let refused = |words: &str| {
        let error = merge(&out, &plan, 2).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("rows.2-of-2.csv"), "{error}");
        assert!(!out.exists());
    };
    std::fs::remove_file(&second).unwrap();
    refused("is missing: run the same command with --shard 2/2 instead of --merge 2");
    std::fs::write(&second, rows.split_inclusive('\n').take(3).collect::<String>()).unwrap();
    refused("holds 1 of 2 runs: run the same command with --shard 2/2");
    std::fs::copy(&first, &second).unwrap();
    refused("line 2 is of another shard than 2/2");
    std::fs::write(&second, rows.replace(&share(&plan, Some(shards[1]))[0].run, "0123456789ab")).unwrap();
    refused("line 2 is of no run of this sweep");
    std::fs::write(&second, &rows).unwrap();
    std::fs::write(&out, "mine").unwrap();
    assert!(merge(&out, &plan, 2).unwrap_err().to_string().contains("line 1 is of no run"));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}

#[test]
fn foreign_files_are_refused_and_not_changed() {
    let kept = tempfile::tempdir().unwrap();
    let (folder, plan) = (kept.path().to_path_buf(), planned(TEXT).unwrap());
    let path = folder.join("rows.csv");
    let rows = resume(&path, &plan, 1);
    let hash = &plan[0].run;
    for (text, message) in [
        ("a,b\n1,2\n".to_owned(), "line 1 is of no run of this sweep"),
        (rows.replace(hash, "0123456789ab"), "line 2 is of no run"),
        (format!("{rows}0123"), "line 4 is of no run"),
        (rows.replacen(",1,4,", ",1,+4,", 1), "line 2 was changed after it was written"),
        (format!("{rows}{}\n", rows.lines().nth(1).unwrap()), "line 4 is of no run"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let error = RunsFile::open(&path, &plan, None).unwrap_err().to_string();
        assert!(error.contains(message), "{error} lacks {message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let error = RunsFile::open(&folder.join("rows.txt"), &plan, None).unwrap_err().to_string();
    assert!(error.contains("must end in .csv"), "{error}");
}

/// A learning rate at which any net diverges gives one row that names the step; no mean is taken over nothing.
#[test]
fn a_diverged_run_is_a_row() {
    let text = TEXT.replace("learning_rate = 0.1", "learning_rate = 1e30").replace("epochs = 2", "epochs = 3");
    let rows = train(&planned(&text).unwrap()[0], &mut Data::default(), "test").unwrap();
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    let step = row.diverged_step.unwrap();
    assert_eq!((row.epoch, row.steps, row.test_error_pct), (1 + (step / 4) as u32, step, None));
    let arm = &answer(&rows)[0];
    assert_eq!((arm.runs, arm.diverged, arm.test_error_mean_pct), (1, 1, None));
}

/// One learner, then two, then four: each epoch has as many steps as their batches give, α follows, and each seed is
/// reproducible.
#[test]
fn learners_join_between_epochs() {
    let with = |keys: &str| TEXT.replace("accumulate = 2\n", "").replace("epochs = 2", keys);
    let first = |text: &str| train(&planned(text).unwrap()[0], &mut Data::default(), "test").unwrap();
    let text = with("epochs = 4\nstrategy = \"sma\"\ngrowth = [\"2@1\", \"4@2\"]");
    let rows = first(&text);
    let found: Vec<(u32, u64, u64)> = rows.iter().map(|row| (row.epoch, row.steps, row.images)).collect();
    // Of 40 samples, batches of 10 for each of 1, 2, 4 and 4 learners.
    assert_eq!(found, [(1, 4, 40), (2, 6, 80), (3, 7, 120), (4, 8, 160)]);
    assert_eq!((rows[0].growth.as_str(), rows[3].ends_run()), ("2@1 4@2", true));
    assert_eq!(first(&text)[3].weights_sha256, rows[3].weights_sha256);
    // The first epoch is that of a run with one learner throughout.
    let alone = first(&with("epochs = 4\nstrategy = \"sma\""));
    assert_eq!(alone[0].held_out_loss, rows[0].held_out_loss);
    assert_ne!(alone[1].held_out_loss, rows[1].held_out_loss);
}
