//! Tests `compare`: what it refuses before measuring, what it measures of this machine, and its notes and differences.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use lockstep_models::SampleForm;
use lockstep_models::profile::Profile;
use serde_json::Value;

use crate::commands::{folder, lockstep, skipped, stdout};

fn write(folder: &Path, name: &str, more: &str) -> String {
    let file = format!("{name}.toml");
    let text = format!("name = \"{name}\"\ndata = \"mnist\"\nsteps = 3\n{more}");
    std::fs::write(folder.join(&file), text).expect("a file");
    file
}

/// A folder whose profile of this machine has the figures of its host and of no model: these are measured once.
fn measured(name: &str) -> PathBuf {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let folder = folder("measured");
        let output = lockstep(&folder, &["calibrate", "--model", "mlp", "--batch-per-rank", "1", "--patience", "0.1"]);
        assert!(output.status.success(), "{}", errors(&output));
        let profile = Profile::load(&folder.join("out/this-machine.json")).expect("a profile");
        Profile { disturbed: Vec::new(), compute: Vec::new(), ..profile }.to_json()
    });
    let folder = folder(name);
    std::fs::create_dir(folder.join("out")).expect("a folder");
    std::fs::write(folder.join("out/this-machine.json"), host).expect("a file");
    folder
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn settings_of_one_side_are_refused_before_measurement() {
    let folder = folder("unlike");
    let input = "[input]\nsamples = 60000\nimage = \"1KiB\"\nthreads = 1\ndecode = \"1ms\"\n[input.provenance]\n\
                 samples = \"assumed: a\"\nimage = \"assumed: a\"\nthreads = \"assumed: a\"\ndecode = \"assumed: a\"\n";
    let cases = [
        (input, "leave [input] out"),
        ("cluster = \"ethernet-4\"\n", "cluster = \"this-machine\""),
        ("cluster = \"ethernet-4\"\nranks = [1]\ntransport = \"threads\"\n", "has 4 hosts"),
        ("ranks = [256]\naugment = \"flip\"\n", "no core is left"),
        ("[anchor]\nimages_per_s = 100.0\n", "leave it out"),
    ];
    for (number, (more, cure)) in cases.into_iter().enumerate() {
        let file = write(&folder, &format!("unlike-{number}"), &format!("model = \"mlp\"\n{more}"));
        let output = lockstep(&folder, &["compare", &file]);
        let stderr = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{more}: {stderr}");
        assert!(stderr.contains(&format!("{file}:")) && stderr.contains(cure), "{more}: {stderr}");
        assert!(!stderr.contains("measuring") && output.stdout.is_empty(), "{more}: {stderr}");
    }
    assert!(!folder.join("out").exists(), "nothing is written");
}

/// Threads that are stated prepare any samples, with any augmentation; their time is measured, and known the next time.
#[test]
fn samples_that_threads_prepare_are_measured_and_predicted() {
    let folder = measured("prepared");
    let file = write(
        &folder,
        "prepared",
        "model = \"mlp\"\nranks = 2\nbatch_per_rank = 4\naugment = \"crop=2,flip\"\ndecode_threads = 1\n",
    );
    let compared = || {
        let output = lockstep(&folder, &["compare", &file, "--trace", "trace.json", "--patience", "0.1"]);
        assert!(output.status.success(), "{}", errors(&output));
        (errors(&output), std::fs::read_to_string(folder.join("trace.json")).expect("a trace"))
    };
    let (said, trace) = compared();
    assert!(said.contains("measuring preparing samples\n"), "{said}");
    let profile = Profile::load(&folder.join("out/this-machine.json")).expect("a profile");
    let [entry] = &profile.decode[..] else { panic!("{:?}", profile.decode) };
    assert_eq!((entry.form, &entry.augment[..]), (SampleForm::Values, "crop=2,flip"));
    assert_eq!((entry.bytes, entry.pixels, entry.elements), (4 * 784, 784, 784));
    assert!(entry.seconds.value > 0.0 && entry.transform.is_none() && profile.storage.is_none());
    // Both timelines of both ranks have them.
    assert!(trace.matches("\"decode\"").count() >= 2 * 2 * 3, "{trace}");
    known(&folder);
    let (said, _) = compared();
    // A machine at another speed is measured as a whole.
    assert!(said.contains("measured again") || !said.contains("measuring preparing samples"), "{said}");
}

/// Chains of a profile with their samples. Figures that other tests disturbed count as undisturbed from now on, since they
/// would be measured again.
fn known(folder: &Path) -> BTreeSet<(String, u32)> {
    let path = folder.join("out/this-machine.json");
    let profile = Profile { disturbed: Vec::new(), ..Profile::load(&path).expect("a profile") };
    std::fs::write(&path, profile.to_json()).expect("a file");
    profile.compute.into_iter().map(|entry| (entry.chain, entry.samples)).collect()
}

/// Layers split by features are measured, figures of other models are kept, and known figures are not measured again.
#[test]
fn a_comparison_measures_missing_figures_and_keeps_the_rest() {
    let folder = measured("needs");
    let split =
        write(&folder, "split", "model = \"mlp\"\nranks = 2\nbatch_per_rank = 4\nstrategy = \"model-parallel\"\n");
    let output = lockstep(&folder, &["compare", &split, "--explain", "--format", "json", "--patience", "0.1"]);
    let stderr = errors(&output);
    assert!(output.status.success() && stderr.contains("mlp (parts of 2 ranks) at a batch of 4"), "{stderr}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let notes = answer["notes"].to_string();
    assert!(!notes.contains("was not measured"), "{notes}");
    let first = known(&folder);
    let half = "dense 1x28x28>64x1x1 bias + relu 64x1x1>64x1x1".to_owned();
    assert!(first.contains(&(half, 8)), "all samples, half of the features: {first:?}");
    differences_are_those_of_the_table(&answer["rows"][0], &stderr);

    let whole = write(&folder, "whole", "model = \"mlp\"\nranks = [1, 2]\nbatch_per_rank = 4\n");
    let stderr = errors(&lockstep(&folder, &["compare", &whole, "--patience", "0.1"]));
    // A machine whose speed has changed within a minute is measured again, with nothing kept: it says so.
    if stderr.contains("another speed") {
        skipped("this machine's speed changes, so that profiles are not kept");
        return;
    }
    assert!(stderr.contains("measuring layers of mlp at a batch of 4\n"), "{stderr}");
    assert!(!stderr.contains("peak FLOP/s"), "{stderr}");
    let both = known(&folder);
    assert!(both.is_superset(&first) && both.len() > first.len(), "{both:?}");
    for file in [&split, &whole] {
        let stderr = errors(&lockstep(&folder, &["compare", file, "--patience", "0.1"]));
        known(&folder);
        // A profile that is replaced holds only what `file` needs: the other file then measures again and is no failure.
        if stderr.contains("another speed") {
            skipped("this machine's speed changes, so that profiles are not kept");
            return;
        }
        assert!(!stderr.contains("measuring") && stderr.contains("has all"), "{stderr}");
    }
    the_task_with_a_wrong_figure_is_named(&folder, &whole);
}

/// Four hundred times the forward pass of a layer in a profile, more than any disturbance: `--explain` names the task, and the profile's entry.
fn the_task_with_a_wrong_figure_is_named(folder: &PathBuf, file: &str) {
    let text = std::fs::read_to_string(folder.join("out/this-machine.json")).expect("a profile");
    let mut profile: Value = serde_json::from_str(&text).expect("JSON");
    let entries = profile["compute"].as_array_mut().expect("figures of layers");
    let is_it = |entry: &&mut Value| {
        entry["chain"].as_str().is_some_and(|chain| chain.starts_with("dense 1x28x28>128"))
            && entry["phase"] == "forward"
    };
    for entry in entries.iter_mut().filter(is_it) {
        for end in ["value", "low", "high"] {
            let seconds = entry["seconds"][end].as_f64().expect("seconds");
            entry["seconds"][end] = (400.0 * seconds).into();
        }
    }
    std::fs::write(folder.join("wrong.json"), profile.to_string()).expect("a file");
    let arguments = ["compare", file, "--profile", "wrong.json", "--explain", "--format", "json", "--patience", "0.1"];
    let output = lockstep(folder, &arguments);
    let stderr = errors(&output);
    assert!(output.status.success(), "{stderr}");
    for part in
        ["makes at least", "  forward dense 1x28x28>128", &format!("lockstep calibrate {file} --profile new.json")]
    {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

/// `--explain` uses the same statistic as the row: waiting is the exposed communication, which is no longer than the
/// step.
fn differences_are_those_of_the_table(row: &Value, stderr: &str) {
    let number = |column: &str| row[column].as_f64().expect("a number") * 1e3;
    let Some(line) = stderr.lines().find(|line| line.contains("waiting for messages ")) else { return };
    let figures: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    for (figure, wait, step) in [
        (figures[0], "predicted_exposed_comm_s", "predicted_step_time_s"),
        (figures[1], "exposed_comm_s", "step_time_s"),
    ] {
        assert!((figure - number(wait)).abs() <= 6e-4 && figure <= number(step) + 6e-4, "{figure} of {row}: {line}");
    }
}

#[test]
fn notes_that_apply_to_some_rows_name_them() {
    let folder = folder("notes");
    let arguments = [
        "sim",
        "predict",
        "--model",
        "lenet",
        "--cluster",
        "ethernet-gpu-8",
        "--ranks",
        "1,8",
        "--algorithm",
        "ring,direct",
        "--no-pad",
    ];
    let text = stdout(&folder, &arguments);
    let notes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("note: ")).collect();
    let of_some = |note: &&&str| note.contains("all ranks are simulated") || note.contains("ranks are simulated");
    let found: Vec<_> = notes.iter().filter(of_some).collect();
    assert!(!found.is_empty() && found.iter().all(|note| note.starts_with("row")), "{notes:?}");
    // Notes that hold for all configurations name none.
    assert!(notes.iter().any(|note| note.starts_with("costs are a roofline")), "{notes:?}");
}

/// Where timing assigns the batches, five runs of a seed need not end alike.
#[test]
fn learners_served_first_come_are_compared() {
    let folder = measured("first-come");
    let more = "model = \"mlp\"\nranks = 2\nbatch_per_rank = 16\nstrategy = \"sma:tau=4:first-come\"\n";
    let file = write(&folder, "first-come", more);
    let output = lockstep(&folder, &["compare", &file, "--format", "json", "--patience", "0.1"]);
    assert!(output.status.success(), "{}", errors(&output));
}
