//! `models plan` and `models layouts`: the stages of a pipeline with their schedule, and how a strategy's tensors lie.

use crate::commands::{folder, number, rows, stdout};

#[test]
fn a_plan_divides_a_model_and_shows_its_schedule() {
    let folder = folder("plan");
    let plan = ["models", "plan", "lenet", "--stages", "3", "--cut", "at=conv2,dense1", "--micro-batches", "6"];
    let planned = rows(&folder, "models-plan", &plan);
    let column = |name: &str| planned.iter().map(|row| number(row, name)).collect::<Vec<f64>>();
    assert_eq!(column("parameters").iter().sum::<f64>(), 1_111_946.0);
    assert_eq!(column("in_flight"), [3.0, 2.0, 1.0]);
    // Four bytes of 32×12×12 and of 64×4×4 activations.
    assert_eq!(column("sent_bytes_per_sample"), [18432.0, 4096.0, 0.0]);
    assert!(column("idle_share").iter().all(|share| (0.0..1.0).contains(share)));

    let shown = stdout(&folder, &plan);
    assert!(
        shown.contains("stage 2  ") && shown.contains("schedule 1f1b") && shown.contains("forward pass"),
        "{shown}"
    );
}

#[test]
fn a_single_stage_sends_nothing_and_never_waits() {
    let plan = ["models", "plan", "lenet", "--stages", "1", "--schedule", "interleaved:2"];
    let planned = rows(&folder("plan-alone"), "models-plan", &plan);
    assert_eq!(planned[0]["layers"].as_array().map(Vec::len), Some(2));
    assert_eq!((number(&planned[0], "sent_bytes_per_sample"), number(&planned[0], "idle_share")), (0.0, 0.0));
}

#[test]
fn layouts_of_strategies_name_their_collectives() {
    let folder = folder("layouts");
    let changes = |words: &str| -> Vec<String> {
        let words: Vec<&str> = ["models", "layouts", "lenet"].into_iter().chain(words.split_whitespace()).collect();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or("-").to_owned();
        let change = |row: &serde_json::Value| {
            let keys = ["tensor", "layout", "collective", "becomes", "axes"].map(|key| text(row, key));
            format!("{} {}x{}", keys.join(" | "), number(row, "groups"), number(row, "group_ranks"))
        };
        rows(&folder, "models-layouts", &words).iter().filter(|row| row["collective"].is_string()).map(change).collect()
    };
    assert_eq!(changes(""), ["weight gradient | data: partial | allreduce | replicated | data 1x4"]);
    assert_eq!(
        changes("--strategy sma:reference-models --ranks 8 --learners 2"),
        [
            "difference | device: partial, learner: partial | allreduce | device: partial | learner 4x2",
            "difference | device: partial | allreduce | replicated | device 2x4"
        ]
    );
    assert_eq!(
        changes("--strategy model-parallel"),
        [
            "activation | tensor: split(feature) | allgather | replicated | tensor 1x4",
            "activation gradient | replicated | slice | tensor: split(feature) | tensor 1x4",
            "activation gradient | tensor: partial | reduce-scatter | tensor: split(feature) | tensor 1x4"
        ]
    );
    let table = changes("--strategy first-device-table --ranks 6 --ranks-per-node 3");
    assert_eq!(table.len(), 4);
    assert!(table[3].starts_with("weight gradient | data: partial, device: partial | allreduce"), "{table:?}");
}

#[test]
fn documented_layouts_are_those_of_the_tool() {
    let folder = folder("documented-layouts");
    let text = include_str!("../docs/strategies.md");
    let mut tables = 0;
    for (title, table) in text.split("\n\n").zip(text.split("\n\n").skip(1)) {
        let Some((_, command)) = title.split_once("(`lockstep models layouts ") else { continue };
        let words: Vec<&str> = command.trim_end_matches("`)").split_whitespace().collect();
        let words: Vec<&str> = ["models", "layouts"].into_iter().chain(words).collect();
        let cell = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let mut lines: Vec<String> = Vec::new();
        for row in rows(&folder, "models-layouts", &words) {
            let line = ["tensor", "layout", "collective", "axes", "becomes"].map(|key| cell(&row, key)).join(" | ");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let documented: Vec<&str> =
            table.lines().skip(2).map(|line| line.trim_start_matches("| ").trim_end_matches(" |")).collect();
        assert_eq!(documented, lines, "{command}");
        tables += 1;
    }
    assert_eq!(tables, 9);
}
