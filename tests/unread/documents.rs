//! Tests a property of other files: Caffe's nets and solvers, profiles, reports and tables that a command reads again,
//! papers and their figures. Another value or an unknown field changes what the command answers, is refused or noted, or is listed here with
//! the reason why it does neither.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::WORKERS;
use crate::commands::folder;

/// A field that no message has.
const UNKNOWN: &str = "qqzzqq";

/// A file with the calls that read it; `@FILE` is its name.
struct Document {
    name: &'static str,
    text: String,
    calls: &'static [&'static str],
    /// Fields that may leave answers as they are, and why.
    listed: &'static [(&'static str, &'static str)],
}

const NET: &str = include_str!("files/net.prototxt");
const SOLVER: &str = include_str!("files/solver.prototxt");
const PAPER: &str = include_str!("files/paper.toml");
const FIGURES: &str = include_str!("files/paper.figures.toml");
/// The page has all texts but the names of figures.
const PAPERS: &[&str] =
    &["papers paper.toml --html /dev/stdout --format json", "papers paper.toml --figures --format json"];

fn documents() -> Vec<Document> {
    vec![
        Document {
            name: "net.prototxt",
            text: NET.to_owned(),
            calls: &[
                "models show @FILE:input=1x28x28 --format json",
                "exec run --model @FILE:input=1x28x28 --data synthetic:16 --ranks 1 --batch-per-rank 4 \
                 --steps 1 --format json",
            ],
            listed: &[
                ("name", "the net's and the layers' names"),
                ("top bottom", "the name of a blob: others are refused or loops"),
                ("source batch_size backend", "data is named by --data"),
                ("scale", "pixels are normalised by the data's own mean and deviation, which the documentation says"),
            ],
        },
        Document {
            name: "solver.prototxt",
            text: SOLVER.to_owned(),
            calls: &[
                "sim predict --solver @FILE --model lenet --cluster workstation --ranks 1 --batch-per-rank 4 --format json",
                "exec run --solver @FILE --model mlp --data synthetic:16 --ranks 1 --batch-per-rank 4 --format json",
            ],
            listed: &[
                ("net", "the model is given by --model"),
                (
                    "display snapshot snapshot_prefix solver_mode test_iter test_interval",
                    "a note says what replaces them, whatever their values are",
                ),
            ],
        },
        Document {
            name: "runs.json",
            text: include_str!("../fixtures/reached.json").to_owned(),
            calls: &["sim predict --model small.toml --cluster workstation --ranks 1,2 --batch-per-rank 4 \
                 --target @FILE --format json"],
            listed: &[
                (
                    "ranks batch_per_rank accumulate algorithm bucket transport device threads_per_rank training \
                     learning_rate seed",
                    "how the same samples were trained: samples to the target are known by global batch, strategy and learners",
                ),
                (
                    "step_time_s step_time_p10_s step_time_p90_s images_per_s scaling_efficiency exposed_comm_s train_loss \
                     held_out_loss accuracy error_pct error_mean_pct error_std_pct restarts restart_steps direct_messages \
                     weights_sha256 state_sha256 steps",
                    "what was measured besides the samples to the target",
                ),
                ("notes", "texts for people"),
            ],
        },
        Document {
            name: "profile.json",
            text: profile(),
            calls: &[
                "sim predict --model lenet --ranks 2 --batch-per-rank 16 --profile @FILE --format json",
                "profiles show @FILE --format json",
            ],
            listed: &[
                ("kernels", "a name for people, compared where a run has the same host"),
                (
                    "pulse_s flops_per_core_s memory_bandwidth",
                    "the pace that exec --pace-of and calibrate compare with",
                ),
            ],
        },
        Document { name: "paper.toml", text: PAPER.to_owned(), calls: PAPERS, listed: &[] },
        Document {
            name: "paper.figures.toml",
            text: FIGURES.to_owned(),
            calls: PAPERS,
            listed: &[("workers", "the values of the axis replace it")],
        },
        Document {
            name: "errors.csv",
            text: ["paper,error_pct,holds,row"]
                .into_iter()
                .chain(
                    include_str!("../../experiments/papers/errors.csv")
                        .lines()
                        .filter(|l| l.starts_with("krizhevsky2014,")),
                )
                .map(|line| format!("{line}\n"))
                .collect(),
            calls: &["papers krizhevsky2014 --check @FILE --format json"],
            listed: &[],
        },
    ]
}

/// The profile of a host without its trace of noise, which is long.
fn profile() -> String {
    let mut profile: Value = serde_json::from_str(include_str!("../goldens/profile.json")).expect("JSON");
    profile["noise"] = Value::Null;
    profile.to_string()
}

/// A changed text, and what was changed.
struct Change {
    field: String,
    what: String,
    text: String,
}

/// The fields `name: value` of a text in Caffe's format, with another value each, and an unknown field before each.
fn of_messages(text: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    let code = |at: usize| !text[..at].rsplit('\n').next().is_some_and(|line| line.contains('#'));
    for (at, _) in text.match_indices(": ").filter(|(at, _)| code(*at)) {
        let begin = text[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let rest = &text[at + 2..];
        let length = match rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"').map_or(rest.len(), |end| end + 2),
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let (field, value) = (&text[begin..at], &rest[..length]);
        let other = match value {
            "true" => "false".to_owned(),
            "false" => "true".to_owned(),
            _ if value.starts_with('"') => format!("\"{UNKNOWN}\""),
            _ => value.parse::<f64>().map_or_else(|_| UNKNOWN.to_owned(), |number| format!("{}", 2.0 * number + 1.0)),
        };
        let line = text[..at].lines().count();
        let replaced = format!("{}: {other}{}", &text[..at], &rest[length..]);
        changes.push(Change {
            field: field.to_owned(),
            what: format!("line {line}: {field}: {other}"),
            text: replaced,
        });
        let unknown = format!("{}{UNKNOWN}: 1 {}", &text[..begin], &text[begin..]);
        changes.push(Change {
            field: UNKNOWN.to_owned(),
            what: format!("line {line}: {UNKNOWN} before {field}"),
            text: unknown,
        });
    }
    changes
}

/// The keys of a text in TOML, with another value each (of a list its first one), and an unknown key before each.
fn of_toml(text: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    for (at, _) in text.match_indices(" = ") {
        let begin = text[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let (field, line) = (&text[begin..at], text[..at].lines().count());
        let start = at + 3 + (text[at + 3..].len() - text[at + 3..].trim_start_matches('[').len());
        let value = match text[start..].strip_prefix('"') {
            Some(quoted) => &text[start..start + quoted.find('"').map_or(0, |end| end + 2)],
            None => text[start..].split([',', ' ', ']', '\n']).next().unwrap_or_default(),
        };
        let other = match value {
            "true" => "false".to_owned(),
            "false" => "true".to_owned(),
            _ => value
                .parse::<f64>()
                .map_or_else(|_| format!("\"{UNKNOWN}\""), |number| (2.0 * number + 1.0).to_string()),
        };
        let mut change = |field: &str, what: String, text: String| {
            let (field, what) = (field.to_owned(), format!("line {line}: {what}"));
            changes.push(Change { field, what, text });
        };
        // A table's keys are changed one by one.
        if !value.is_empty() && !value.starts_with('{') {
            let replaced = format!("{}{other}{}", &text[..start], &text[start + value.len()..]);
            change(field, format!("{field} = {other}"), replaced);
        }
        let end = if text[..begin].ends_with('\n') { "\n" } else { ", " };
        let unknown = format!("{}{UNKNOWN} = 1{end}{}", &text[..begin], &text[begin..]);
        change(UNKNOWN, format!("{UNKNOWN} before {field}"), unknown);
    }
    changes
}

/// The fields of a JSON text: another value, a value of another type, and an unknown field in each object.
fn of_json(text: &str) -> Vec<Change> {
    let whole: Value = serde_json::from_str(text).expect("JSON");
    let mut changes = Vec::new();
    let mut paths = vec![String::new()];
    while let Some(path) = paths.pop() {
        let here = whole.pointer(&path).expect("a part");
        let field = path.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap_or_default().to_owned();
        let mut change = |what: String, field: &str, new: Value| {
            let mut other = whole.clone();
            *other.pointer_mut(&path).expect("the part") = new;
            changes.push(Change { field: field.to_owned(), what, text: other.to_string() });
        };
        match here {
            Value::Object(fields) => {
                let mut more = fields.clone();
                more.insert(UNKNOWN.to_owned(), Value::from(1));
                change(format!("{path}/{UNKNOWN}"), UNKNOWN, Value::Object(more));
                paths.extend(fields.keys().map(|key| format!("{path}/{key}")));
            }
            // The first item is an example of all.
            Value::Array(items) => paths.extend(items.first().map(|_| format!("{path}/0"))),
            Value::Number(number) => {
                let twice = 2.0 * number.as_f64().unwrap_or(0.0) + 1.0;
                let twice = if number.is_f64() { Value::from(twice) } else { Value::from(twice as u64) };
                change(format!("{path} = {twice}"), &field, twice);
                change(format!("{path} is a text"), &field, Value::from(UNKNOWN));
            }
            Value::String(_) => change(format!("{path} = {UNKNOWN}"), &field, Value::from(UNKNOWN)),
            Value::Bool(yes) => change(format!("{path} = {}", !yes), &field, Value::from(!yes)),
            Value::Null => {}
        }
    }
    changes
}

/// The cells of a table, with another value each; a column more; a line twice.
fn of_table(text: &str) -> Vec<Change> {
    let lines: Vec<&str> = text.lines().collect();
    let header: Vec<&str> = lines[0].split(',').collect();
    let with = |at: usize, line: String| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines[at] = line;
        lines.join("\n") + "\n"
    };
    let change = |field: &str, what: String, text: String| Change { field: field.to_owned(), what, text };
    let mut changes = vec![
        change(UNKNOWN, "a column more".to_owned(), with(0, format!("{},{UNKNOWN}", lines[0]))),
        change(UNKNOWN, "a line twice".to_owned(), with(1, format!("{0}\n{0}", lines[1]))),
    ];
    for (at, line) in lines.iter().enumerate().skip(1) {
        for (column, cell) in line.splitn(header.len(), ',').enumerate() {
            let others: &[String] = match cell.parse::<f64>() {
                Ok(number) => {
                    &[format!("{}", 2.0 * number.abs() + 9.0), UNKNOWN.to_owned(), "nan".to_owned(), String::new()]
                }
                Err(_) => &[UNKNOWN.to_owned()],
            };
            for other in others {
                let mut cells: Vec<&str> = line.splitn(header.len(), ',').collect();
                cells[column] = other;
                changes.push(change(
                    header[column],
                    format!("line {}: {} = {other}", at + 1, header[column]),
                    with(at, cells.join(",")),
                ));
            }
        }
    }
    changes
}

/// Whether a call succeeds, and all that it prints but times that are measured.
type Said = (Option<i32>, String);

/// What the document's calls on `text` say, up to the first that does not say what it does in `before`.
fn asked(folder: &Path, document: &Document, text: &str, before: &[Said]) -> Vec<Said> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let work = folder.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
    fs::create_dir_all(&work).expect("a folder");
    fs::write(work.join("net.prototxt"), NET).expect("a file");
    fs::write(work.join("small.toml"), super::keys::SMALL).expect("a file");
    fs::write(work.join("paper.toml"), PAPER).expect("a file");
    fs::write(work.join("paper.figures.toml"), FIGURES).expect("a file");
    fs::write(work.join(document.name), text).expect("a file");
    let one = |call: &&str| {
        let words = call.replace("@FILE", document.name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        let output =
            command.args(words.split(' ')).current_dir(&work).stdin(Stdio::null()).output().expect("the binary");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = if call.starts_with("exec") { super::without_times(&said) } else { said };
        (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
    };
    let mut answers = Vec::new();
    for (number, call) in document.calls.iter().enumerate() {
        answers.push(one(call));
        if before.get(number).is_some_and(|before| *before != answers[number]) {
            break;
        }
    }
    fs::remove_dir_all(work).expect("its folder");
    answers
}

#[test]
fn fields_of_other_files_are_read_or_refused() {
    let folder = folder("unread-documents");
    let mut faults = Vec::new();
    for document in documents() {
        let before = asked(&folder, &document, &document.text, &[]);
        assert!(before.iter().all(|(code, _)| *code == Some(0)), "{}: {before:?}", document.name);
        let changes = match document.name.rsplit('.').next() {
            Some("json") => of_json(&document.text),
            Some("csv") => of_table(&document.text),
            Some("toml") => of_toml(&document.text),
            _ => of_messages(&document.text),
        };
        let is_listed =
            |field: &str| document.listed.iter().any(|(names, _)| names.split(' ').any(|name| name == field));
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some(change) = changes.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if is_listed(&change.field) {
                            continue;
                        }
                        let after = asked(&folder, &document, &change.text, &before);
                        let crashed = after.iter().any(|(code, _)| !matches!(code, Some(0..=2)));
                        if after == before || crashed {
                            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                            found.push(format!("{}: {}", document.name, change.what));
                        }
                    }
                });
            }
        });
        faults.extend(found.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    faults.sort();
    assert!(faults.is_empty(), "{} change nothing:\n{}", faults.len(), faults.join("\n"));
}
