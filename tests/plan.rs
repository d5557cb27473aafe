//! Tests `models plan` and `models layouts`: the stages of a pipeline with their schedule, and the layouts of a
//! strategy's tensors.

use std::fs;
use std::path::Path;

use crate::commands::{folder, lockstep, number, rows, stdout};

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

/// The ranks of a mesh fill the hosts in order, and the bytes of each axis are reported separately.
#[test]
fn a_mesh_is_placed_and_its_bytes_are_reported_by_axis() {
    let folder = folder("plan-mesh");
    let plan = "models plan mlp --mesh data=4,device=8 --strategy zero-1 --cluster dgx-a100:4";
    let plan: Vec<&str> = plan.split_whitespace().collect();
    let ranks = rows(&folder, "models-plan-ranks", &[&plan[..], &["--list", "ranks"]].concat());
    assert_eq!(ranks.len(), 32);
    assert_eq!((&ranks[13]["coordinates"], &ranks[13]["host"]), (&"data=1,device=5".into(), &"node1".into()));
    assert_eq!((&ranks[13]["groups"], &ranks[13]["stage"]), (&"data 5, device 1".into(), &serde_json::Value::Null));
    let transitions = rows(&folder, "models-plan-transitions", &plan);
    let row = |collective: &str| {
        let found = transitions.iter().find(|row| row["collective"] == collective).expect("a transition");
        ["groups", "group_ranks", "group_hosts"].map(|column| number(found, column))
    };
    // A host's GPUs share out the sum, which is then computed over hosts.
    assert_eq!([row("reduce-scatter"), row("allreduce")], [[4.0, 8.0, 1.0], [8.0, 4.0, 4.0]]);
    let bytes = |collective: &str, column: &str| {
        number(transitions.iter().find(|row| row["collective"] == collective).expect("a transition"), column)
    };
    let whole = bytes("reduce-scatter", "bytes");
    assert_eq!(bytes("allgather", "bytes"), whole);
    // An eighth, plus the padding for four ranks.
    let part = bytes("allreduce", "bytes");
    assert!((0.0..64.0).contains(&(part - whole / 8.0)), "{part} of {whole}");
    // A ring sends (n − 1)/n of a buffer to reduce-scatter it, and twice that to allreduce it.
    assert_eq!(bytes("reduce-scatter", "sent_bytes"), whole * 7.0 / 8.0);
    assert_eq!(bytes("allreduce", "sent_bytes"), part * 1.5);
    let shown = stdout(&folder, &plan);
    assert!(shown.contains("cluster dgx-a100") && shown.contains("data=1,device=5"), "{shown}");
    let output = lockstep(&folder, &["models", "plan", "mlp", "--mesh", "data=4,tensor=2"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn layouts_of_strategies_list_their_collectives() {
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
            "difference | device: partial, learner: partial | allreduce-to-leaders | device: partial, learner: first | learner 4x2",
            "difference | device: partial, learner: first | allreduce | learner: first | device 2x4",
            "delivered model | device: own, learner: first | broadcast | device: own | learner 4x2"
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

/// The blocks of docs/strategies.md that follow a command in brackets, with the words of the command.
fn documented(text: &str) -> Vec<(Vec<&str>, [&str; 2])> {
    let blocks: Vec<&str> = text.split("\n\n").collect();
    let of = |at: usize| {
        let (_, command) = blocks[at].split_once("(`lockstep models layouts ")?;
        let words = command.trim_end_matches("`)").split_whitespace();
        Some((["models", "layouts"].into_iter().chain(words).collect(), [blocks[at + 1], blocks[at + 2]]))
    };
    (0..blocks.len()).filter_map(of).collect()
}

#[test]
fn documented_layouts_are_current() {
    let folder = folder("documented-layouts");
    let tables = documented(include_str!("../docs/strategies.md"));
    for (words, [table, _]) in &tables {
        let cell = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let mut lines: Vec<String> = Vec::new();
        for row in rows(&folder, "models-layouts", words) {
            let line = ["tensor", "layout", "collective", "axes", "becomes"].map(|key| cell(&row, key)).join(" | ");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let documented: Vec<&str> =
            table.lines().skip(2).map(|line| line.trim_start_matches("| ").trim_end_matches(" |")).collect();
        assert_eq!(documented, lines, "{words:?}");
    }
    assert_eq!(tables.len(), 18);
}

#[test]
fn documented_pictures_are_current() {
    let folder = folder("documented-pictures");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/layouts");
    let (mut shown, text) = (Vec::new(), include_str!("../docs/strategies.md"));
    for (words, [_, picture]) in documented(text) {
        let (_, file) = picture.split_once("](layouts/").unwrap_or_else(|| panic!("a picture of {words:?}: {picture}"));
        let file = file.trim_end_matches(')');
        stdout(&folder, &[&words[..], &["--plot", file]].concat());
        let [drawn, committed] = [folder.join(file), kept.join(file)].map(|path| fs::read(path).unwrap_or_default());
        let command = format!("{} --plot docs/layouts/{file}", words.join(" "));
        assert!(drawn == committed, "docs/layouts/{file} is not current; draw it again: cargo run -- {command}");
        assert!(text.contains(&format!("\nlockstep {command}\n")), "docs/strategies.md does not list {command}");
        assert!(drawn.len() < 32_000, "{file} has {} bytes", drawn.len());
        shown.push(file.to_owned());
    }
    let names = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    shown.sort();
    assert_eq!(names, shown, "docs/strategies.md shows all of docs/layouts");
}

/// Each file of a folder of docs is drawn by a command in a page, which shows it.
fn assert_pictures_are_current(page: &str, of: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, kept) = (folder(&format!("documented-{of}")), root.join("docs").join(of));
    let text = fs::read_to_string(root.join("docs").join(page)).unwrap();
    let mut drawn = Vec::new();
    for command in text.lines().filter_map(|line| line.strip_prefix("lockstep ")) {
        let Some((words, file)) = command.split_once(&format!(" --plot docs/{of}/")) else { continue };
        stdout(&folder, &words.split_whitespace().chain(["--plot", file]).collect::<Vec<_>>());
        let [now, committed] = [folder.join(file), kept.join(file)].map(|path| fs::read(path).unwrap_or_default());
        assert!(now == committed, "docs/{of}/{file} is not current; draw it again: cargo run -- {command}");
        assert!(text.contains(&format!("]({of}/{file})")), "docs/{page} does not show {file}");
        drawn.push(file.to_owned());
    }
    let mut names: Vec<String> =
        fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    drawn.sort();
    assert_eq!(names, drawn);
}

#[test]
fn documented_pictures_of_stages_and_transformers_are_current() {
    assert_pictures_are_current("strategies.md", "stages");
    assert_pictures_are_current("transformers.md", "transformers");
}

#[test]
fn a_refused_picture_leaves_nothing() {
    let folder = folder("refused-picture");
    for words in ["lenet --plot layouts.pdf", "lenet --plot layouts", "lenet --strategy hybrid:g=3 --plot layouts.svg"]
    {
        let words: Vec<&str> = ["models", "layouts"].into_iter().chain(words.split_whitespace()).collect();
        let output = lockstep(&folder, &words);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{words:?}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{words:?}");
    }
}
