//! Tests a property of all keys of all files: another value changes what commands answer, or is refused, or is listed with
//! the reason why it does neither; a key that no table has is refused at its line.
//!
//! Keys come from the program's own errors, which list those that a table has: a new key without a value here fails.

mod samples;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use lockstep_experiment::setting::ReadBy;
use lockstep_experiment::settings;

use super::{Answer, WORKERS, answer};
use crate::commands::folder;
pub(super) use samples::SMALL;
use samples::{SAMPLES, Sample};
use values::{DESCRIBES, EXCEPTIONS, UNMOVED, VALUES};

/// A key that no table has, and that is near none.
const UNKNOWN: &str = "qqzzqq";

/// Tables whose keys a file chooses: the kind of file, the table.
const FREE: [(&str, &str); 2] = [("model", "size"), ("model", "block")];

/// Keys of a fabric that are not those of its wires.
const WIRELESS: [&str; 14] = [
    "attach",
    "wire",
    "down",
    "up",
    "parallel",
    "ports",
    "oversubscription",
    "spines",
    "shape",
    "dimensions",
    "hosts_per_router",
    "routing",
    "seed",
    "sums",
];

/// A table of a sample: the name of its header (empty: the file's beginning), and its lines.
struct Table<'a> {
    name: &'a str,
    lines: std::ops::Range<usize>,
}

/// The tables of a text, whose headers and keys have a line each.
fn tables(text: &str) -> Vec<Table<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let headers = (0..lines.len()).filter(|at| lines[*at].starts_with('['));
    let starts: Vec<usize> = headers.collect();
    let first = Table { name: "", lines: 0..starts.first().copied().unwrap_or(lines.len()) };
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    let rest = starts
        .iter()
        .zip(ends)
        .map(|(start, end)| Table { name: lines[*start].trim_matches(['[', ']']), lines: start + 1..end });
    [first].into_iter().chain(rest).collect()
}

/// The text with `line` instead of the lines at `at`.
fn with_line(text: &str, at: std::ops::Range<usize>, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.splice(at, [line]);
    lines.join("\n") + "\n"
}

/// The line of `key` in a table, and its value.
fn stated<'a>(text: &'a str, table: &Table<'_>, key: &str) -> Option<(usize, &'a str)> {
    let of_line = |(at, line): (usize, &'a str)| {
        let (name, value) = line.split_once(" = ")?;
        (table.lines.contains(&at) && name == key).then_some((at, value))
    };
    text.lines().enumerate().find_map(of_line)
}

/// Another value of the same kind: a number twice as large, or the other one of two.
fn other(value: &str) -> Option<String> {
    let bare = value.trim_matches('"');
    match bare {
        "true" => return Some("false".to_owned()),
        "false" => return Some("true".to_owned()),
        _ => {}
    }
    let digits = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
    let (number, unit) = bare.split_at(digits);
    let twice = match number.parse::<u64>() {
        Ok(whole) => (2 * whole).to_string(),
        Err(_) => format!("{:?}", 2.0 * number.parse::<f64>().ok()?),
    };
    Some(value.replacen(bare, &format!("{twice}{unit}"), 1))
}

/// The values that a key gets in a table of a kind of file.
fn values(kind: &str, table: &str, key: &str, stated: Option<&str>) -> Vec<String> {
    let name = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
    let name = format!("{kind}.{name}");
    let fits = |of: &str| of.split(' ').any(|of| name == of || name.ends_with(&format!(".{of}")));
    // Of several names that end alike, the longest one says most.
    let longest = VALUES.iter().map(|(of, _)| *of).filter(|of| fits(of)).max_by_key(|of| of.matches('.').count());
    let of_name = VALUES.iter().filter(|(of, _)| Some(*of) == longest);
    let listed: Vec<String> = of_name.map(|(_, value)| (*value).to_owned()).collect();
    if listed.is_empty() { stated.and_then(other).into_iter().collect() } else { listed }
}

fn is_listed(list: &[(&str, &str, &str)], sample: &Sample, table: &str, key: &str) -> bool {
    let name = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
    let of_key = |of: &str| {
        of.split(' ').any(|one| {
            one == name
                || name.ends_with(&format!(".{one}"))
                || (one.ends_with(".*") && name.starts_with(one.trim_end_matches('*')))
        })
    };
    list.iter()
        .any(|(of, keys, _)| (of.is_empty() || sample.name.starts_with(of) || sample.kind == *of) && of_key(keys))
}

/// An answer without columns that repeat settings: a repetition is no effect.
fn without_settings(text: &str) -> String {
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) else { return text.to_owned() };
    let rows = if json.is_array() { &mut json } else { &mut json["rows"] };
    for row in rows.as_array_mut().into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
        row.retain(|column, _| column != "training" && !settings().any(|setting| setting.key == column));
    }
    json.to_string()
}

/// Whether a side that a setting is for is among the calls of a sample.
fn is_called(sample: &Sample, table: &str, key: &str) -> bool {
    let key =
        if table == "optimizer" { key } else { table.split('.').next().filter(|of| !of.is_empty()).unwrap_or(key) };
    let calls = |side: &str| sample.calls.iter().any(|call| call.starts_with(side));
    let setting = settings().find(|setting| setting.key == key).filter(|_| sample.kind == "experiment");
    setting.is_none_or(|setting| match setting.reads {
        ReadBy::Both => true,
        ReadBy::Prediction => calls("sim"),
        ReadBy::Run => calls("exec"),
    })
}

/// The answer of a call with this text as the file of the sample.
fn asked(given: &Path, sample: &Sample, call: &str, text: &str) -> Answer {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let file = format!("{}{}", NUMBER.fetch_add(1, Ordering::Relaxed), sample.file);
    fs::write(given.join(&file), text).expect("a file");
    let words: Vec<String> = call.replace("@FILE", &format!("@/{file}")).split(' ').map(str::to_owned).collect();
    let mut answer = answer(given, &words, call.starts_with("exec"));
    answer.said = without_settings(&answer.said.replace(&file, sample.file));
    fs::remove_file(given.join(file)).expect("its file");
    answer
}

/// The keys that a table has, as the error for one that it lacks lists them.
fn keys(given: &Path, sample: &Sample, table: &Table<'_>) -> Result<Vec<String>, String> {
    let text = with_line(sample.text, table.lines.start..table.lines.start, &format!("{UNKNOWN} = 1"));
    let file = format!("unknown-{}", sample.file);
    fs::write(given.join(&file), text).expect("a file");
    let words = sample.calls[0].replace("@FILE", &file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let output = command.args(words.split(' ')).current_dir(given).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let place = format!("{file}:{}: {UNKNOWN}", table.lines.start + 1);
    let list = last.split_once("choose from ").map(|(_, list)| list.split(", ").map(str::to_owned).collect());
    let right = output.status.code() == Some(2) && last.starts_with(&place);
    list.filter(|_| right).ok_or_else(|| format!("{} [{}]: an unknown key: {said}", sample.name, table.name))
}

/// What one change of a file showed.
enum Found {
    Refused,
    Changed,
    Nothing,
}

fn tried(given: &Path, sample: &Sample, before: &[Answer], text: &str) -> Found {
    let mut refusals = 0;
    for (call, before) in sample.calls.iter().zip(before) {
        match asked(given, sample, call, text) {
            after if after.code == Some(2) => refusals += 1,
            after if after != *before => return Found::Changed,
            _ => {}
        }
    }
    if refusals > 0 { Found::Refused } else { Found::Nothing }
}

/// A key in a table of a sample, with another value.
struct Case<'a> {
    sample: &'a Sample,
    table: String,
    key: String,
    value: String,
    text: String,
}

/// All cases, and what is missing for others.
fn cases(given: &Path) -> (Vec<Case<'static>>, Vec<String>) {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for sample in SAMPLES {
        let tables = tables(sample.text);
        let is_free = |table: &&Table<'_>| FREE.contains(&(sample.kind, table.name));
        for table in tables
            .iter()
            .filter(|table| !is_free(table))
            .filter(|table| sample.only.is_empty() || table.name == sample.only)
        {
            let keys = match keys(given, sample, table) {
                Ok(keys) => keys,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let below = |key: &str| {
                let name = if table.name.is_empty() { key.to_owned() } else { format!("{}.{key}", table.name) };
                tables.iter().any(|table| table.name == name)
            };
            for key in keys.into_iter().filter(|key| !below(key)) {
                let now = stated(sample.text, table, &key);
                let values = values(sample.kind, table.name, &key, now.map(|(_, value)| value));
                if is_listed(DESCRIBES, sample, table.name, &key) || !is_called(sample, table.name, &key) {
                    continue;
                }
                if values.is_empty() {
                    let fault = format!("{} [{}] {key}: give it a value in VALUES", sample.name, table.name);
                    faults.push(fault);
                }
                for value in values.into_iter().filter(|value| now.is_none_or(|(_, now)| now != value)) {
                    let at = now.map_or(table.lines.start..table.lines.start, |(at, _)| at..at + 1);
                    let text = with_line(sample.text, at, &format!("{key} = {value}"));
                    all.push(Case { sample, table: table.name.to_owned(), key: key.clone(), value, text });
                }
            }
        }
    }
    (all, faults)
}

/// The name of a key, which is the same in all tables of a kind.
fn alike(sample: &Sample, table: &str, key: &str) -> String {
    let of_wire = || !WIRELESS.contains(&key);
    let table = match table {
        _ if table.starts_with("noise.") => "a distribution",
        _ if table.ends_with("layer") => "layer",
        "link" | "host.link" => "a wire",
        "fabric" if of_wire() => "a wire",
        other => other,
    };
    format!("{} [{table}] {key}", sample.kind)
}

#[test]
fn keys_are_read_or_refused() {
    let folder = folder("unread-keys");
    let given = folder.join("given");
    fs::create_dir_all(&given).expect("a folder");
    fs::write(given.join("small.toml"), SMALL).expect("a file");
    let (cases, mut faults) = cases(&given);
    assert!(cases.len() > 200, "{}", cases.len());
    let mut before: BTreeMap<&str, Vec<Answer>> = BTreeMap::new();
    for sample in SAMPLES {
        let answers: Vec<_> = sample.calls.iter().map(|call| asked(&given, sample, call, sample.text)).collect();
        if answers.iter().any(|answer| answer.code != Some(0)) {
            faults.push(format!("{}: a call of the file as it is fails", sample.name));
        }
        before.insert(sample.name, answers);
    }
    let (next, found, moved) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    // A key that has had an effect is not tried in other samples.
    let thorough = std::env::var_os("LOCKSTEP_THOROUGH").is_some();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = alike(case.sample, &case.table, &case.key);
                    let known = |known: &BTreeSet<String>| !(case.sample.strict && thorough) && known.contains(&name);
                    if known(&moved.lock().unwrap_or_else(PoisonError::into_inner)) {
                        continue;
                    }
                    let one = tried(&given, case.sample, &before[case.sample.name], &case.text);
                    if matches!(one, Found::Changed) {
                        moved.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
                    }
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((case, one));
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut read: BTreeMap<String, bool> = BTreeMap::new();
    for (case, one) in &found {
        let Case { sample, table, key, value, .. } = case;
        *read.entry(alike(sample, table, key)).or_default() |= matches!(one, Found::Changed);
        if matches!(one, Found::Nothing) && sample.strict && !is_listed(EXCEPTIONS, sample, table, key) {
            faults.push(format!("{} [{table}] {key} = {value} changes nothing", sample.name));
        }
    }
    let never = read
        .iter()
        .filter(|(key, read)| !**read && !UNMOVED.iter().any(|(of, _)| of == key))
        .map(|(key, _)| format!("{key} is read nowhere"));
    faults.extend(never);
    faults.sort();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}
