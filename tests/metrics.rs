//! Tests metrics and progress of runs that resume, or whose number of learners changes: each step once, numbered since
//! training began.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::commands::{folder, lockstep};

/// 16 steps per epoch; the state is saved after every fifth step.
const RUN: &str = "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --metrics m.jsonl --checkpoint kept \
                   --checkpoint-every 5";

fn run(folder: &PathBuf, words: &str) -> Output {
    lockstep(folder, &words.split_whitespace().collect::<Vec<_>>())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The configuration, the step and the loss of each line.
fn lines(folder: &Path, file: &str) -> Vec<(String, u64, f64)> {
    let text = fs::read_to_string(folder.join(file)).expect("metrics");
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        (
            line["configuration"].to_string(),
            line["step"].as_u64().expect("a step"),
            line["loss"].as_f64().expect("a loss"),
        )
    };
    text.lines().map(line).collect()
}

fn steps(lines: &[(String, u64, f64)]) -> Vec<u64> {
    lines.iter().map(|line| line.1).collect()
}

#[test]
fn a_resumed_run_has_each_step_once() {
    let folder = folder("metrics-resumed");
    let undisturbed =
        run(&folder, &format!("{} --steps 20", RUN.replace("m.jsonl", "whole.jsonl").replace("kept", "other")));
    assert!(undisturbed.status.success(), "{}", said(&undisturbed));
    let whole = lines(&folder, "whole.jsonl");
    assert_eq!(steps(&whole), (1..=20).collect::<Vec<u64>>());

    let failed = run(&folder, &format!("{RUN} --steps 20 --fault panic:0@13"));
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert_eq!(steps(&lines(&folder, "m.jsonl")), (1..=13).collect::<Vec<u64>>());
    // Lines of another training in the same file are left alone.
    let other = run(
        &folder,
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --seed 2 --steps 15 --metrics m.jsonl",
    );
    assert!(other.status.success(), "{}", said(&other));
    let resumed = run(&folder, &format!("{RUN} --steps 20 --resume kept"));
    assert!(resumed.status.success(), "{}", said(&resumed));
    let all = lines(&folder, "m.jsonl");
    let (before, rest) = all.split_at(10);
    let (others, behind) = rest.split_at(15);
    assert_eq!(steps(others), (1..=15).collect::<Vec<u64>>());
    // Beyond the numbers, kept and added lines together equal those of an undisturbed run.
    assert_eq!([before, behind].concat(), whole);
}

/// Wherever a run dies, before its first checkpoint or after it, the run that follows leaves each step once: it resumes
/// where there is a checkpoint, and begins again where there is none.
#[test]
fn a_run_that_died_anywhere_leaves_each_step_once() {
    let folder = folder("metrics-died");
    let whole = run(&folder, &format!("{} --steps 12", RUN.replace("m.jsonl", "whole.jsonl").replace("kept", "other")));
    assert!(whole.status.success(), "{}", said(&whole));
    let whole = lines(&folder, "whole.jsonl");
    for (index, death) in (0..12).enumerate() {
        let own = RUN.replace("m.jsonl", &format!("m{index}.jsonl")).replace("kept", &format!("kept{index}"));
        let died = run(&folder, &format!("{own} --steps 12 --fault kill:0@{death}"));
        assert!(!died.status.success(), "{}", said(&died));
        let kept = fs::read_dir(folder.join(format!("kept{index}"))).expect("a folder").count() > 1;
        assert_eq!(kept, death >= 5, "step {death}");
        let resume = if kept { format!(" --resume kept{index}") } else { String::new() };
        let ended = run(&folder, &format!("{own} --steps 12{resume}"));
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(lines(&folder, &format!("m{index}.jsonl")), whole, "killed in step {death}");
    }
    // Other configurations of one command are other rows.
    let both =
        RUN.split(" --checkpoint").next().expect("a command").replace("--batch-per-rank 4", "--batch-per-rank 4,8");
    for _ in 0..2 {
        let ended = run(&folder, &format!("{both} --steps 3"));
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(steps(&lines(&folder, "m.jsonl")), [1, 2, 3, 1, 2, 3]);
    }
}

/// A checkpoint after 10 steps of 4 samples counts as one after 5 steps of 8.
#[test]
fn steps_are_counted_in_the_current_batch_size() {
    let folder = folder("metrics-batch");
    assert_eq!(run(&folder, &format!("{RUN} --steps 20 --fault panic:0@13")).status.code(), Some(1));
    let larger = RUN.replace("--batch-per-rank 4", "--batch-per-rank 8");
    let resumed = run(&folder, &format!("{larger} --steps 8 --resume kept"));
    assert!(resumed.status.success(), "{}", said(&resumed));
    let all = lines(&folder, "m.jsonl");
    assert_eq!(steps(&all), (1..=10).chain(6..=8).collect::<Vec<u64>>());
    assert!(all[..10].iter().all(|line| line.0.contains("x 4")) && all[10..].iter().all(|line| line.0.contains("x 8")));
    // Its own checkpoint is the latest now, though it has fewer steps than the one that it resumed from.
    let resumed = run(&folder, &format!("{larger} --steps 10 --resume kept"));
    assert!(resumed.status.success() && said(&resumed).contains("after 8 steps"), "{}", said(&resumed));
    assert_eq!(steps(&lines(&folder, "m.jsonl")), (1..=10).chain(6..=10).collect::<Vec<u64>>());
}

/// A long step is reported with its number since training began.
#[test]
fn progress_counts_steps_since_training_began() {
    let folder = folder("metrics-progress");
    assert_eq!(run(&folder, &format!("{RUN} --steps 20 --fault panic:0@13")).status.code(), Some(1));
    let resumed = run(&folder, &format!("{RUN} --steps 20 --resume kept --fault hang:0@12 --stall-limit 4"));
    assert_eq!(resumed.status.code(), Some(3), "{}", said(&resumed));
    assert!(said(&resumed).contains("mlp, 1 rank x 4: step 13/20 under way for"), "{}", said(&resumed));
}

#[test]
fn runs_in_segments_count_all_steps() {
    let folder = folder("metrics-segments");
    let sma = "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --strategy sma --metrics";
    let tuned = run(&folder, &format!("{sma} tuned.jsonl --learners auto --steps 50"));
    assert!(tuned.status.success(), "{}", said(&tuned));
    assert_eq!(steps(&lines(&folder, "tuned.jsonl")), (1..=50).collect::<Vec<u64>>());
    let text = "name = \"grown\"\nmodel = \"mlp\"\ndata = \"synthetic:64\"\nbatch_per_rank = 4\nstrategy = \"sma\"\nepochs = 3\n\
                growth = [\"2@2\"]\n";
    fs::write(folder.join("grown.toml"), text).expect("a file");
    let grown = run(&folder, "exec run grown.toml --metrics grown.jsonl");
    assert!(grown.status.success(), "{}", said(&grown));
    let all = lines(&folder, "grown.jsonl");
    assert_eq!(steps(&all), (1..=all.len() as u64).collect::<Vec<u64>>());
    assert!(all.len() > 16 + 8, "{}", all.len());
}

/// Lines of a run carry the time in UTC; a run by epochs says why its accuracy and its error may differ.
#[test]
fn lines_of_runs_have_the_time_and_figures_their_meaning() {
    let folder = folder("metrics-times");
    let train = "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --epochs 2 --format json";
    let output = run(&folder, &format!("{train} --flight a/b --checkpoint kept"));
    let (shown, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), said(&output));
    assert!(output.status.success(), "{said}");
    assert!(shown.contains("accuracy is that after the last step; test_error_pct is the median"), "{shown}");
    assert!(folder.join("a/b").is_dir(), "the folder of flight records is made");
    let output = run(&folder, &format!("{train} --flight kept/absent/no --resume absent"));
    assert_eq!(output.status.code(), Some(2), "the error of an input begins with its place");
    fs::write(folder.join("file"), "").expect("a file");
    let refused = self::said(&run(&folder, &format!("{train} --flight file")));
    assert!(refused.contains("--flight: file: is a file: name a folder"), "{refused}");
}

/// Without ranks along data that take other samples, rank 0's loss is that of the whole step, however its layers are split.
#[test]
fn losses_of_split_layers_are_means_over_samples() {
    let folder = folder("metrics-split");
    let model = "--model gpt2-char:layers=1,hidden=32,heads=4,positions=16 --batch-per-rank 8 --steps 3 --metrics";
    let losses = |file: &str| lines(&folder, file).iter().map(|line| line.2).collect::<Vec<f64>>();
    let trained = |words: &str, file: &str| {
        let output = run(&folder, &format!("exec run {model} {file} {words}"));
        assert!(output.status.success(), "{words}: {}", said(&output));
        losses(file)
    };
    let one = trained("", "one.jsonl");
    let all = ["--tp 2", "--tp 4", "--tp 2 --strategy sequence-parallel", "--pp 2", "--pp 2 --tp 2"];
    for (number, words) in all.into_iter().enumerate() {
        let split = trained(words, &format!("{number}.jsonl"));
        let near = one.iter().zip(&split).all(|(a, b)| (a - b).abs() < 1e-4 * a);
        assert!(near && one.len() == split.len(), "{words}: {split:?}, not {one:?}");
    }
}
