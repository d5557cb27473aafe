//! Tests the binary as users and scripts use it: every command runs, has help, and prints its published format.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the binary in a folder of its own.
pub(crate) fn lockstep(folder: &PathBuf, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockstep")).args(arguments).current_dir(folder).output().expect("the binary runs")
}

/// A new empty folder; each test has one of its own name.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Says on the process's own standard error, which the test runner does not capture, that a check was left out:
/// `tests/run` lists such lines.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Standard output of a command that must succeed.
pub(crate) fn stdout(folder: &PathBuf, arguments: &[&str]) -> String {
    let output = lockstep(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Columns that only rows of models and of sets of tokens have, or of runs that compute activations again.
const OPTIONAL: [&str; 4] = ["tokens_per_s", "perplexity", "tokens", "recompute"];

/// The rows of a command's JSON, checked against its published schema's columns.
pub(crate) fn rows(folder: &PathBuf, schema: &str, arguments: &[&str]) -> Vec<Value> {
    let text = stdout(folder, &[arguments, &["--format", "json"]].concat());
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["version"], 1);
    let rows = json["rows"].as_array().expect("rows").clone();
    let (_, published) = lockstep::cli::schemas().into_iter().find(|(name, _)| *name == schema).expect("a schema");
    let columns =
        published["$defs"].as_object().expect("row types").values().next().expect("one")["properties"].clone();
    for row in &rows {
        let names: Vec<&String> = row.as_object().expect("a row").keys().collect();
        let has = |column: &&String| row.get(column).is_some() || !OPTIONAL.contains(&column.as_str());
        let known: Vec<&String> = columns.as_object().expect("columns").keys().filter(has).collect();
        assert_eq!(names, known, "{arguments:?}");
    }
    rows
}

pub(crate) fn number(row: &Value, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column} in {row}"))
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = folder("help");
    for command in [
        "",
        "sim predict",
        "sim sweep",
        "sim collective",
        "exec run",
        "exec sweep",
        "exec collective",
        "exec devices",
        "exec links",
        "exec profile",
        "compare",
        "calibrate",
        "profiles show",
        "memory",
        "models list",
        "models show",
        "models plan",
        "models layouts",
        "models check",
        "clusters list",
        "clusters show",
        "clusters check",
        "clusters import",
        "data pack",
        "data check",
        "data show",
        "data stats",
        "data generate",
        "lab up",
        "lab run",
        "lab down",
        "lab list",
        "lab cut",
        "lab slow",
        "lab heal",
        "doctor",
        "schema",
    ] {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let text = stdout(&folder, &arguments);
        assert!(text.contains("Example") && text.contains(&format!("lockstep {command}")), "{command}: {text}");
    }
    assert!(stdout(&folder, &["--version"]).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn models_and_clusters_are_listed_shown_and_checked() {
    let folder = folder("lists");
    let models = rows(&folder, "models-list", &["models", "list"]);
    let lenet = models.iter().find(|row| row["name"] == "lenet").expect("lenet");
    assert_eq!(lenet["parameters"], 1_111_946);
    let layers = rows(&folder, "models-show", &["models", "show", "lenet"]);
    let parameters: u64 = layers.iter().map(|row| row["parameters"].as_u64().expect("a count")).sum();
    assert_eq!(parameters, 1_111_946);
    let shown = stdout(&folder, &["models", "show", "lenet"]);
    assert!(shown.contains("1111946 parameters (4.24MiB)"), "{shown}");
    assert_eq!(rows(&folder, "check", &["models", "check", "lenet", "mlp"]).len(), 2);

    for cluster in rows(&folder, "clusters-list", &["clusters", "list"]) {
        let name = cluster["name"].as_str().expect("a name");
        assert!(stdout(&folder, &["clusters", "show", name]).contains(name));
        assert!(!rows(&folder, "clusters-show", &["clusters", "show", name]).is_empty());
        rows(&folder, "check", &["clusters", "check", name]);
    }
}

#[test]
fn doctor_names_the_cure_for_each_missing_item() {
    let rows = rows(&folder("doctor"), "check", &["doctor"]);
    assert!(["srun", "sbatch", "ip", "tc", "unshare"].iter().all(|of| rows.iter().any(|row| row["check"] == *of)));
    for row in rows {
        assert_eq!(row["status"] == "ok", row["cure"] == "", "{row}");
    }
}

#[test]
fn predictions_of_an_experiment() {
    let folder = folder("predict");
    let flags = "sim predict --model lenet --cluster ethernet-4 --ranks 1,4,64 --batch-per-rank 16 \
                 --algorithm ring,hierarchical:ring --trace t.json";
    let arguments: Vec<&str> = flags.split_whitespace().collect();
    let rows = rows(&folder, "sim-predict", &arguments);
    let shown: Vec<(&str, u64)> =
        rows.iter().map(|r| (r["algorithm"].as_str().unwrap_or(""), r["ranks"].as_u64().unwrap_or(0))).collect();
    assert_eq!(shown, [("-", 1), ("ring", 4), ("hierarchical:ring", 4), ("ring", 64), ("hierarchical:ring", 64)]);
    for row in &rows {
        let images = number(row, "global_batch") / number(row, "step_time_s");
        assert!((number(row, "images_per_s") / images - 1.0).abs() < 1e-9);
        let efficiency = number(row, "images_per_s") / number(row, "ranks") / number(&rows[0], "images_per_s");
        assert!((number(row, "scaling_efficiency") - efficiency).abs() < 1e-9);
    }
    let trace: Value = serde_json::from_slice(&std::fs::read(folder.join("t.json")).expect("a trace")).expect("JSON");
    assert!(trace["traceEvents"].as_array().expect("events").len() > 1000);
    // The same command prints the same bytes.
    let again = || stdout(&folder, &arguments);
    assert_eq!(again(), again());
}

#[test]
fn trials_report_the_spread_of_step_times() {
    let folder = folder("trials");
    let text = "name = \"noisy\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\nranks = [1, 4]\n\
                [noise]\nstep = { family = \"gamma\", cv = 0.2 }\n";
    std::fs::write(folder.join("noisy.toml"), text).expect("a file");
    let flags = ["sim", "predict", "noisy.toml", "--trials", "12"];
    let rows = rows(&folder, "sim-predict", &flags);
    for row in &rows {
        let quantiles = ["p05", "p50", "p95", "p99"].map(|q| number(row, &format!("step_time_{q}_s")));
        assert!(quantiles.is_sorted() && quantiles[0] < quantiles[3], "{row}");
        assert_eq!((&row["trials"], number(row, "step_time_s")), (&Value::from(12), quantiles[1]));
        assert!(number(row, "step_time_se_s") < number(row, "step_time_mean_s") / 5.0, "{row}");
    }
    assert!(number(&rows[0], "straggling_s") == 0.0 && number(&rows[1], "straggling_s") > 0.0);
    let csv = stdout(&folder, &[&flags[..], &["--format", "csv"]].concat());
    assert!(csv.lines().next().expect("a header").contains("step_time_p99_s"), "{csv}");
    assert_eq!(csv, stdout(&folder, &[&flags[..], &["--format", "csv"]].concat()));
}

#[test]
fn out_of_memory_is_reported_with_its_cure() {
    let folder = folder("memory");
    let of = |batch: &str| {
        let flags =
            ["sim", "predict", "--model", "resnet-32", "--cluster", "ethernet-gpu-8", "--batch-per-rank", batch];
        (rows(&folder, "sim-predict", &flags).remove(0), stdout(&folder, &flags))
    };
    let (row, text) = of("50000");
    assert_eq!(row["fits_memory"], false);
    let (_, cure) = text.split_once("out of memory: ").expect("a note");
    assert!(cure.contains("of 16GiB on node0.gpu0"), "{text}");
    let (_, cure) = cure.split_once("; ").expect("a cure");
    let largest: u32 = cure.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert_eq!(of(&largest.to_string()).0["fits_memory"], true);
    assert_eq!(of(&(largest + 1).to_string()).0["fits_memory"], false);
}

#[test]
fn an_interrupt_prints_the_results_so_far() {
    let folder = folder("interrupt");
    let list = |last: u32| (1..=last).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["sim", "predict", "--model", "lenet", "--cluster", "ethernet-4", "--ranks", &list(64)])
        .args(["--batch-per-rank", &list(50), "--explain", "--format", "json", "--trace", "t.json"])
        .current_dir(&folder)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // Progress reports when the first row is done.
    let lines = std::io::BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let is_progress = |line: &String| line.starts_with("predicting: ") || line.ends_with(" so far");
    let mut lines = lines.inspect(|line| assert!(is_progress(line), "{line}"));
    assert!(lines.any(|line| line.contains("left; now lenet") && !line.ends_with("1 rank x 1")));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let json: Value = serde_json::from_slice(&output.stdout).expect("whole JSON");
    let done = json["rows"].as_array().expect("rows").len();
    assert!(done > 0 && done < 64 * 50, "{done} rows");
    let notes = json["notes"].as_array().expect("notes");
    assert_eq!(notes.last().expect("a note"), &format!("interrupted: {done} of 3200 configurations"));
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0, "no file, not even half of one");
}

#[test]
fn an_anchor_is_reproduced_exactly() {
    let folder = folder("anchor");
    for (anchor, ranks) in [("ranks=1,images_per_s=219", "1"), ("ranks=8,batch_per_rank=32,images_per_s=1500", "8")] {
        let flags = ["sim", "predict", "--model", "lenet", "--cluster", "ethernet-4", "--ranks", ranks];
        let row = &rows(&folder, "sim-predict", &[&flags[..], &["--anchor", anchor]].concat())[0];
        let wanted: f64 = anchor.rsplit('=').next().and_then(|figure| figure.parse().ok()).expect("a figure");
        assert!((number(row, "images_per_s") / wanted - 1.0).abs() < 1e-5, "{anchor}: {row}");
    }
}

#[test]
fn a_training_run_and_its_repetition() {
    let folder = folder("run");
    let run = |more: &[&str]| {
        let flags = ["exec", "run", "--model", "mlp", "--data", "mnist", "--ranks", "1,2", "--steps", "12"];
        rows(&folder, "exec-run", &[&flags[..], more].concat())
    };
    let first = run(&["--trace", "t.json"]);
    assert_eq!(first.len(), 2);
    for row in &first {
        assert!(number(row, "accuracy") > 0.2, "{row}"); // far above one in ten after twelve steps
        assert_eq!(row["weights_sha256"].as_str().map(str::len), Some(64));
    }
    let hashes = |rows: &[Value]| rows.iter().map(|row| row["state_sha256"].clone()).collect::<Vec<_>>();
    assert_eq!(hashes(&first), hashes(&run(&[])));
    assert_ne!(hashes(&first), hashes(&run(&["--seed", "2"])));
    let trace: Value = serde_json::from_slice(&std::fs::read(folder.join("t.json")).expect("a trace")).expect("JSON");
    let names: Vec<&str> = trace["traceEvents"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["ph"] == "M")
        .filter_map(|event| event["args"]["name"].as_str())
        .collect();
    assert!(names.contains(&"measured mlp, 2 ranks x 32, ring: rank 1"), "{names:?}");
}

/// Goyal et al. 2017, §5.1: the error is the median of the last epochs, reported with its mean and deviation over
/// seeds; the trained configuration is reported in full.
#[test]
fn a_recipe_with_several_seeds() {
    let folder = folder("recipe");
    let flags = "exec run --model mlp --data mnist --ranks 2 --batch-per-rank 100 --recipe goyal2017 --epochs 3 --seeds 2 \
                 --learning-rate 0.02 --scaling linear:100 --warm-up gradual:1";
    let arguments: Vec<&str> = flags.split_whitespace().collect();
    let rows = rows(&folder, "exec-run", &arguments);
    let errors: Vec<f64> = rows.iter().map(|row| number(row, "test_error_pct")).collect();
    assert_eq!(rows.iter().map(|row| number(row, "seed")).collect::<Vec<_>>(), [1.0, 2.0]);
    assert!(errors.iter().all(|error| (1.0..50.0).contains(error)), "{errors:?}");
    for row in &rows {
        let (mean, deviation) = ((errors[0] + errors[1]) / 2.0, (errors[0] - errors[1]).abs() / 2f64.sqrt());
        assert!(
            (number(row, "test_error_mean_pct") - mean).abs() < 1e-9
                && (number(row, "test_error_std_pct") - deviation).abs() < 1e-9
        );
        assert!((number(row, "learning_rate") - 0.04).abs() < 1e-12, "0.02 · 200 / 100");
    }
    let message = String::from_utf8(lockstep(&folder, &arguments).stderr).expect("text");
    for words in [
        "seed 1, 2, 1 configuration(s)",
        "recipe goyal2017:resnet-50 (Goyal et al. 2017, section 5.1)",
        "warm-up gradual:1, decay steps:0.1@30,60,80, momentum 0.9 (separate, nesterov), weight decay 0.0001",
        "target rate 0.04 at a global batch of 200",
        "initial values: weight he ×1, gaussian:0.01 ×1; bias 0 ×2",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
}

/// A loss that is not finite ends the run, the error names step and layer, and no row is printed.
#[test]
fn a_diverged_run_fails() {
    let flags = "exec run --model mlp --data mnist --ranks 2 --steps 9 --learning-rate 1e30 --trace t.json";
    let folder = folder("diverged");
    let output = lockstep(&folder, &flags.split_whitespace().collect::<Vec<&str>>());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("step 1") && text.contains("`scores`") && text.contains("longer warm-up"), "{text}");
    assert!(output.stdout.is_empty() && !folder.join("t.json").exists());
}

#[test]
fn collectives_have_the_same_columns_predicted_and_measured() {
    let folder = folder("collective");
    for (collective, algorithm) in [("allreduce", "halving-doubling"), ("allgather", "ring"), ("alltoallv", "pairwise")]
    {
        let flags = ["--collective", collective, "--algorithm", algorithm, "--ranks", "3", "--bytes", "1KiB,64KiB"];
        let predicted =
            rows(&folder, "collective", &[&["sim", "collective", "--cluster", "ethernet-4"], &flags[..]].concat());
        let measured =
            rows(&folder, "collective", &[&["exec", "collective", "--repetitions", "5"], &flags[..]].concat());
        for (one, other) in predicted.iter().zip(&measured) {
            assert_eq!((&one["bytes"], &one["collective"]), (&other["bytes"], &other["collective"]));
            // Both sides define the bus bandwidth in the same way.
            let factor = |row: &Value| number(row, "busbw_GBps") / number(row, "algbw_GBps");
            assert!((factor(one) - factor(other)).abs() < 1e-9, "{one} {other}");
            assert_eq!(other["wrong"], 0);
        }
        assert_eq!((predicted.len(), measured.len()), (2, 2));
    }
}

#[test]
fn algorithms_of_a_list_follow_each_other() {
    let folder = folder("algorithms");
    let flags = ["--algorithm", "tree:2,ring", "--ranks", "3", "--bytes", "1KiB,4KiB"];
    let expected = [("tree:2", 1024), ("tree:2", 4096), ("ring", 1024), ("ring", 4096)]
        .map(|(a, n)| (Value::from(a), Value::from(n)));
    for command in
        [&["sim", "collective", "--cluster", "ethernet-4"][..], &["exec", "collective", "--repetitions", "5"]]
    {
        let found = rows(&folder, "collective", &[command, &flags].concat());
        let found: Vec<(Value, Value)> =
            found.iter().map(|row| (row["algorithm"].clone(), row["bytes"].clone())).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn calibration_and_comparison_of_a_small_experiment() {
    let folder = folder("compare");
    let figures =
        rows(&folder, "calibrate", &["calibrate", "--model", "mlp", "--batch-per-rank", "8", "--patience", "0.1"]);
    assert!(figures.len() > 5);
    let text = "name = \"tiny\"\nmodel = \"mlp\"\ndata = \"mnist\"\nranks = [1, 2]\nbatch_per_rank = 8\nsteps = 4\n";
    std::fs::write(folder.join("tiny.toml"), text).expect("a file");
    let rows =
        rows(&folder, "compare", &["compare", "tiny.toml", "--profile", "out/this-machine.json", "--patience", "0.1"]);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let error = (number(row, "predicted_step_time_s") / number(row, "step_time_s") - 1.0) * 100.0;
        assert!((number(row, "error_pct") - error).abs() < 1e-6, "{row}");
    }
    // Now there is a profile of this machine for predictions.
    assert!(stdout(&folder, &["sim", "predict", "tiny.toml"]).contains("mlp"));
}

#[test]
fn csv_has_a_header_and_a_line_per_row() {
    let text = stdout(&folder("csv"), &["models", "list", "--format", "csv"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("name,layers,input,classes,parameters,"), "{text}");
    assert_eq!(lines.len(), 1 + lockstep_readers::zoo().len());
}
