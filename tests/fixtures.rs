//! Reads files written by an earlier build (`tests/fixtures/make`): checkpoints, logs, half-done sweeps, reports and
//! flight records must stay readable.

use std::path::{Path, PathBuf};

use crate::commands::{folder, lockstep};

const TRAIN: [&str; 10] =
    ["exec", "run", "--model", "small.toml", "--data", "synthetic:96", "--batch-per-rank", "4", "--seed", "7"];

/// A copy of the fixtures, which commands may change.
fn fixtures(name: &str) -> PathBuf {
    let folder = folder(name);
    copy(Path::new("tests/fixtures"), &folder);
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &target) } else { std::fs::copy(&path, &target).map(|_| ()).expect("copied") }
    }
}

/// A command's standard output and standard error.
fn said(folder: &PathBuf, arguments: &[&str]) -> (String, String) {
    let output = lockstep(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn trained(folder: &PathBuf, more: &[&str]) -> String {
    said(folder, &[&TRAIN[..], more, &["--format", "json"]].concat()).0
}

#[test]
fn a_checkpoint_is_resumed() {
    let folder = fixtures("fixture-checkpoint");
    let (_, stderr) =
        said(&folder, &[&TRAIN[..], &["--ranks", "2", "--steps", "8", "--resume", "checkpoint"]].concat());
    assert!(stderr.contains("after 6 steps"), "{stderr}");
}

/// Which learner took which micro-batch of each iteration, in the order of the log without its times.
fn claims(log: &Path) -> Vec<(u64, u64, u64)> {
    let text = std::fs::read_to_string(log).expect("a log");
    let mut claims: Vec<(u64, u64, u64)> = text
        .lines()
        .map(|line| {
            let claim: serde_json::Value = serde_json::from_str(line).expect("a claim");
            let number = |key: &str| claim[key].as_u64().expect("a number");
            (number("iteration"), number("micro_batch"), number("rank"))
        })
        .collect();
    claims.sort_unstable();
    claims
}

#[test]
fn a_driver_log_is_replayed() {
    let folder = fixtures("fixture-driver");
    let run = |out: &str| {
        let more = ["--ranks", "2", "--steps", "4", "--strategy", "sma:first-come", "--replay", "driver.log"];
        trained(&folder, &[&more[..], &["--driver-log", out]].concat());
        claims(&folder.join(out))
    };
    assert_eq!(run("again.log"), claims(Path::new("tests/fixtures/driver.log")));
}

/// Before learners took equally many batches an iteration, a fast one took those of a slow one.
#[test]
fn a_driver_log_with_unequal_shares_is_refused() {
    let folder = fixtures("fixture-taken-over");
    let more = ["--ranks", "2", "--steps", "4", "--strategy", "sma:first-come", "--replay", "driver-taken-over.log"];
    let output = lockstep(&folder, &[&TRAIN[..], &more[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    let says = error.contains("iteration 0, rank 0") && error.contains("record a new log with --driver-log");
    assert_eq!((output.status.code(), says), (Some(2), true), "{error}");
}

#[test]
fn a_tuner_log_is_replayed() {
    let folder = fixtures("fixture-tuner");
    let more =
        ["--ranks", "1", "--epochs", "2", "--strategy", "sma", "--learners", "auto", "--replay-tuner", "tuner.json"];
    assert!(trained(&folder, &more).contains("weights_sha256"));
}

#[test]
fn partial_sweeps_are_resumed() {
    let folder = fixtures("fixture-sweeps");
    for file in ["rows.csv", "rows.jsonl"] {
        let begun = std::fs::read_to_string(folder.join(file)).expect("the fixture");
        let whole_lines = &begun[..begun.rfind('\n').expect("a whole line") + 1];
        let sweep = ["sim", "sweep", "--model", "small.toml", "--cluster", "ethernet-4", "--ranks", "1..8"];
        // The build that began them had no padding.
        let rest = ["--batch-per-rank", "8", "--algorithm", "ring,direct", "--no-pad", "--out", file];
        said(&folder, &[&sweep[..], &rest].concat());
        let done = std::fs::read_to_string(folder.join(file)).expect("the rows");
        assert!(done.starts_with(whole_lines) && done.len() > begun.len(), "{file}: {done}");
    }
    let begun = std::fs::read_to_string(folder.join("runs.csv")).expect("the fixture");
    said(&folder, &["exec", "sweep", "arms.toml", "--out", "runs.csv"]);
    let done = std::fs::read_to_string(folder.join("runs.csv")).expect("the runs");
    assert!(done.starts_with(&begun) && done.lines().count() == 1 + 2 * (begun.lines().count() - 1), "{done}");
}

#[test]
fn a_report_of_runs_gives_time_to_accuracy() {
    let folder = fixtures("fixture-report");
    let question = ["sim", "predict", "--model", "small.toml", "--cluster", "workstation", "--ranks", "1,2"];
    let (rows, _) = said(
        &folder,
        &[&question[..], &["--batch-per-rank", "4", "--target", "reached.json", "--format", "json"]].concat(),
    );
    assert!(rows.contains("\"time_to_target_s\": 0."), "{rows}");
}

#[test]
fn flight_records_are_explained() {
    let folder = fixtures("fixture-records");
    let records = std::fs::read_dir(folder.join("records")).expect("records");
    let paths: Vec<String> = records.map(|entry| entry.expect("a record").path().display().to_string()).collect();
    assert!(!paths.is_empty());
    let arguments: Vec<&str> = ["exec", "inspect"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let (shown, stderr) = said(&folder, &arguments);
    assert!(format!("{shown}{stderr}").contains("rank 1"), "{shown}{stderr}");
}
