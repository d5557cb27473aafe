//! Tests what `--explain` says of predictions and collectives.

use serde_json::Value;

use crate::commands::{folder, number, rows, stdout};

#[test]
fn an_explained_prediction_adds_up() {
    let folder = folder("explain");
    let flags = "sim predict --model lenet --cluster ethernet-gpu-8 --ranks 1,8 --batch-per-rank 64 --explain";
    let arguments: Vec<&str> = flags.split_whitespace().collect();
    for row in rows(&folder, "sim-predict", &arguments) {
        let answer = &row["explanation"];
        let sum = |list: &str, column: &str| -> f64 {
            answer[list].as_array().expect("a list").iter().map(|item| number(item, column)).sum()
        };
        let step = number(&row, "step_time_s");
        assert!((sum("critical_path", "seconds") / step - 1.0).abs() < 1e-9, "{answer}");
        assert!(sum("exchanges", "exposed_s") <= step);
        assert!((number(answer, "sensitivity_sum") + 1.0).abs() < 0.05, "{answer}");
        let computation = &answer["computation"];
        assert!(number(computation, "seconds") >= 0.999 * number(computation, "alone_s"), "{answer}");
        let memory = &answer["memory"];
        let parts = ["weights", "gradients", "optimizer", "input", "activations", "communication"];
        let parts: f64 = parts.iter().map(|part| number(memory, &format!("{part}_bytes"))).sum();
        assert_eq!((parts, parts), (number(memory, "total_bytes"), number(&row, "memory_bytes")));
        assert!(answer["error_bar"]["relative_pct"].is_null());
    }
    let text = stdout(&folder, &arguments);
    for part in [
        "bound",
        "critical path",
        "computation",
        "exchanges",
        "between steps",
        "memory",
        "bandwidth",
        "sensitivity",
        "error bar",
    ] {
        assert!(text.contains(&format!("\n  {part} ")), "{part} in {text}");
    }
    assert!(
        text.lines().skip_while(|line| !line.starts_with("lenet,")).all(|line| line.chars().count() <= 120),
        "{text}"
    );
    // Tables and CSV do not include it.
    assert!(!stdout(&folder, &[&arguments[..], &["--format", "csv"]].concat()).contains("explanation"));
}

#[test]
fn an_explained_collective_lists_what_its_time_depends_on() {
    let folder = folder("collective-explain");
    let flags =
        "sim collective --algorithm hierarchical:ring --ranks 8 --bytes 1KiB,16MiB --cluster ethernet-gpu-8 --explain";
    let arguments: Vec<&str> = flags.split_whitespace().collect();
    let explained = rows(&folder, "collective", &arguments);
    for row in &explained {
        assert!((number(row, "sensitivity_sum") + 1.0).abs() < 0.05, "{row}");
        let classes = row["in_use"].as_array().expect("classes");
        assert!(classes.iter().any(|class| class["class"] == "ethernet"), "{row}");
    }
    assert_eq!(explained[0]["bound"], "waiting: latency");
    assert!(number(&explained[1], "bound_utilisation") > 0.5, "{}", explained[1]);
    let strongest = |row: &Value| row["reacts_to"][0]["parameter"].as_str().expect("a name").to_owned();
    assert!(strongest(&explained[0]).ends_with("latency") && strongest(&explained[1]).ends_with("bandwidth"));
    let csv = stdout(&folder, &[&arguments[..], &["--format", "csv"]].concat());
    assert!(csv.contains("ethernet bandwidth=-0."), "{csv}");
    let table = stdout(&folder, &arguments);
    assert!(table.contains("\n  in use ") && table.contains("\n  sensitivity "), "{table}");
    let plain = &rows(&folder, "collective", &arguments[..arguments.len() - 1])[0];
    assert!(plain["reacts_to"].is_null() && plain["bound"] == explained[0]["bound"]);
}

#[test]
fn an_explained_step_says_what_nccl_chooses_for_its_exchanges() {
    let folder = folder("nccl-explain");
    let on = ["--cluster", "dgx-h100:2", "--ranks", "16", "--transport", "mpi", "--explain"];
    let of = |algorithm| {
        let flags = ["sim", "predict", "--model", "lenet", "--bucket", "whole", "--algorithm", algorithm];
        rows(&folder, "sim-predict", &[&flags[..], &on].concat()).remove(0)["explanation"].clone()
    };
    let answer = of("library:nccl");
    let exchanges = answer["exchanges"].as_array().expect("a list");
    let [exchange] = exchanges.as_slice() else { panic!("{exchanges:?}") };
    let chosen = exchange["nccl"].as_str().expect("a choice");
    // The same as for a collective of as many bytes alone.
    let bytes = answer["memory"]["gradients_bytes"].to_string();
    let flags = ["sim", "collective", "--algorithm", "library:nccl", "--bytes", &bytes];
    let table = stdout(&folder, &[&flags[..], &on].concat());
    assert!(chosen.starts_with("NCCL 2.") && table.contains(chosen), "{chosen} in {table}");
    assert!(of("rings:2")["exchanges"][0]["nccl"].is_null());
}
