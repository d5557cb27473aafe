//! Tests jobs with an injected fault: each ends within its limit, names the culprit rank, and has the right exit code.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::commands::{folder, lockstep};

/// Three ranks with two exchanges per step.
fn run<'a>(fault: &'a str, limit: &'a str) -> Vec<&'a str> {
    let mut all =
        vec!["exec", "run", "--model", "mlp", "--data", "synthetic:600", "--ranks", "3", "--batch-per-rank", "4"];
    all.extend(["--bucket", "layer", "--steps", "200", "--stall-limit", limit, "--fault", fault]);
    all
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a job that must end with this code and these messages.
fn ends(folder: &PathBuf, fault: &str, code: i32, parts: &[&str]) -> String {
    // A panic first prints a backtrace, which takes its time if requested.
    let limit = if fault.starts_with("panic") { "30" } else { "0.5" };
    let output = lockstep(folder, &run(fault, limit));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(code), "{fault}: {text}");
    for part in parts {
        assert!(text.contains(part), "{fault}: nothing of {part:?} in {text}");
    }
    text
}

#[test]
fn a_panic_is_reported_once_and_ends_all_ranks() {
    let text = ends(
        &folder("stall-panic"),
        "panic:1@3",
        1,
        &["rank 1 failed: panic: a fault on purpose (in `", "step 3", "found on "],
    );
    assert_eq!(text.matches("rank 1 failed").count(), 1, "{text}");
}

#[test]
fn an_operation_that_never_returns_is_named_and_the_process_ends() {
    let folder = folder("stall-hang");
    let parts = ["the run has stalled", "not begun by rank 2", "cause: rank 2, in `", "step 5", "rank 0: waits in `"];
    ends(&folder, "hang:2@5", 3, &parts);
    // The record gives the same report afterwards.
    let output = lockstep(&folder, &["exec", "inspect", "flight-0.json"]);
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(summary.contains("3 of 3 ranks on record") && summary.contains("cause: rank 2, in `"), "{summary}");
    assert!(summary.lines().count() < 24, "more than a screen: {summary}");
}

#[test]
fn a_collective_that_one_rank_skips_is_named() {
    ends(&folder("stall-skip"), "skip:0@4", 3, &["collective ", "step 4", "not begun by rank 0", "cause: rank 0"]);
}

#[test]
fn collectives_in_different_orders_end_the_run() {
    let folder = folder("stall-order");
    // In sequence, each rank waits for messages of the exchange that another has not begun.
    ends(&folder, "order:1@2", 3, &["collective ", "step 2", "cause: all wait for each other", "in another order"]);
    // With both at once, messages of one arrive where those of the other are expected, and the lengths differ.
    let both = [&run("order:1@2", "0.5")[..], &["--concurrent-exchanges", "2"]].concat();
    let output = lockstep(&folder, &both);
    assert!(output.status.code() == Some(1) && said(&output).contains("elements as exchange"), "{}", said(&output));
}

#[test]
fn a_single_rank_does_not_hang() {
    let folder = folder("stall-alone");
    let all = ["exec", "run", "--model", "mlp", "--data", "synthetic:600", "--ranks", "1", "--batch-per-rank", "4"];
    let output = lockstep(&folder, &[&all[..], &["--stall-limit", "0.5", "--fault", "hang:0@1"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("cause: rank 0, in `"), "{}", said(&output));
}

/// An interrupt waits for the step in progress; if that never ends, the wait is bounded.
#[test]
fn an_interrupt_ends_a_stalled_run() {
    let folder = folder("stall-interrupt");
    let mut all = run("hang:1@3", "600");
    all.extend(["--checkpoint", "kept", "--checkpoint-every", "2", "--metrics", "m.jsonl"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let job = command.args(all).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Three steps are done, so the interrupt takes effect after the fourth, which does not end.
    while std::fs::read_to_string(folder.join("m.jsonl")).unwrap_or_default().lines().count() < 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-INT", &job.id().to_string()]).status().unwrap().success());
    let output = job.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("has not ended in 5s: the last checkpoint is kept"), "{}", said(&output));
    // Lines of a run begin with the time in UTC: [2026-11-29T12:00:00Z].
    let stamped = |line: &str| line.starts_with("[20") && line.get(20..23) == Some("Z] ");
    assert!(said(&output).lines().filter(|line| stamped(line)).count() >= 2, "{}", said(&output));
    // The grace period is five seconds; a busy machine gets as much again.
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(folder.join("kept/step-0000000002.safetensors").exists());
}

#[test]
fn sigusr1_writes_records_and_training_continues() {
    let folder = folder("stall-signal");
    let mut all = run("panic:9@9", "60");
    let at = all.iter().position(|word| *word == "200").unwrap();
    all[at] = "4000";
    all.extend(["--metrics", "m.jsonl", "--format", "json"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let job = command.args(all).current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let steps = || std::fs::read_to_string(folder.join("m.jsonl")).unwrap_or_default();
    while steps().lines().count() < 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let number = job.id().to_string();
    assert!(Command::new("kill").args(["-USR1", &number]).status().unwrap().success());
    while !folder.join("flight-0.json").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = job.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).contains("flight record: ./flight-0.json"), "{}", said(&output));
    let lines: Vec<serde_json::Value> = steps().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[3999]["step"]), (4000, &4000.into()));
    assert!(lines.iter().all(|line| line["loss"].is_number() && line["images_per_s"].as_f64() > Some(0.0)));
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("flight-0.json")).unwrap()).unwrap();
    let flights = record["flights"].as_array().unwrap();
    assert_eq!(flights.len(), 3);
    for flight in flights {
        let operations = flight["operations"].as_array().unwrap();
        assert!(!operations.is_empty() && operations.len() <= 1000);
        let numbers: Vec<u64> = operations.iter().map(|one| one["number"].as_u64().unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]));
    }
}

#[test]
fn files_that_are_not_records_are_refused() {
    let folder = folder("stall-inspect");
    std::fs::write(folder.join("a.json"), "{\"version\": 1}").unwrap();
    for (file, message) in [("a.json", "is not a flight record"), ("b.json", "cannot be read")] {
        let output = lockstep(&folder, &["exec", "inspect", file]);
        assert!(output.status.code() == Some(2) && said(&output).contains(message), "{}", said(&output));
    }
    let output = lockstep(&folder, &run("fire:1@1", "1"));
    assert!(output.status.code() == Some(2) && said(&output).contains("KIND:RANK@STEP"), "{}", said(&output));
    let output = lockstep(&folder, &run("panic:1@1", "0"));
    assert!(output.status.code() == Some(2) && said(&output).contains("--stall-limit"), "{}", said(&output));
}
