//! Tests a property of all commands and flags: a flag that is given either changes what the command answers, or is
//! refused, or is listed with the reason why it does neither; and each flag changes an answer of each command that has it.
//!
//! Commands and flags come from the program's own help: a new one without a call and a value here fails.
//! `LOCKSTEP_THOROUGH=1` gives each flag and key in more contexts, also where it has had an effect in another.

mod accepted;
mod documents;
mod keys;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::commands::folder;
use accepted::ACCEPTED;
use tables::{CALLS, EXCEPTIONS, GENERAL, MORE_CALLS, NOT_CALLED, UNMOVED, VALUES};

/// Workers that call the binary.
const WORKERS: usize = 2;

/// What a call answers: whether it succeeds, standard output without times, and files by name.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    code: Option<i32>,
    said: String,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// The help of a command.
fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lockstep")).args(command).arg("--help").output().expect("help");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The commands below `command`, without the one that prints help.
fn commands(command: &[&str]) -> Vec<String> {
    let text = help(command);
    let Some((_, listed)) = text.split_once("\nCommands:\n") else { return vec![command.join(" ")] };
    let lines = listed.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("    "));
    let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.flat_map(|name| commands(&[command, &[name]].concat())).collect()
}

/// The flags of a command, without those of all commands.
fn flags(command: &str) -> BTreeSet<String> {
    let text = help(&command.split(' ').collect::<Vec<_>>());
    let listed = text.split("\nExample").next().unwrap_or_default();
    let of_line = |line: &str| {
        let line = line.trim_start();
        let words = line.split([' ', ',', '=', '[']).take(if line.starts_with("--") { 1 } else { 3 });
        words.filter(|word| word.starts_with("--")).map(str::to_owned).next()
    };
    let begins = |line: &&str| line.trim_start().starts_with('-') && !line.starts_with("          -");
    let all = listed.lines().filter(begins).filter_map(of_line);
    all.filter(|flag| !GENERAL.contains(&flag.as_str())).collect()
}

/// Standard output without what differs from run to run: the columns of measured times.
fn without_times(text: &str) -> String {
    const TIMES: [&str; 8] = ["_s", "_us", "_pct", "efficiency", "per_s", "busbw", "algbw", "share"];
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) else { return text.to_owned() };
    for row in json["rows"].as_array_mut().into_iter().flatten() {
        if let Some(row) = row.as_object_mut() {
            row.retain(|column, _| !TIMES.iter().any(|end| column.ends_with(end)));
        }
    }
    json["rows"].to_string()
}

/// All files in a folder and in those below it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        if path.is_dir() {
            all.extend(files(&path).into_iter().map(|(below, text)| (name.join(below), text)));
        } else {
            all.insert(name, fs::read(&path).unwrap_or_default());
        }
    }
    all
}

/// Calls the binary in a folder of its own, with the inputs of `given`.
fn answer(given: &Path, words: &[String], measures: bool) -> Answer {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let work = given.with_file_name(format!("work-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&work).expect("a folder");
    let words = words.iter().map(|word| word.replace("@/", &format!("{}/", given.display())));
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_lockstep")]).args(words).current_dir(&work).stdin(Stdio::null());
    let output = command.output().expect("timeout");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut files = files(&work);
    // What is measured differs from run to run.
    files.values_mut().filter(|_| measures).for_each(Vec::clear);
    let answer = Answer { code: output.status.code(), said: if measures { without_times(&said) } else { said }, files };
    fs::remove_dir_all(work).expect("its folder");
    answer
}

/// The call without `flag`, and with it and this value.
fn pair(call: &str, flag: &str, value: Option<&str>) -> (Vec<String>, Vec<String>) {
    let mut without: Vec<String> = call.split(' ').map(str::to_owned).collect();
    if let Some(at) = without.iter().position(|word| word == flag) {
        let has_value = without.get(at + 1).is_some_and(|word| !word.starts_with("--"));
        without.drain(at..at + 1 + usize::from(has_value));
    }
    let mut with = without.clone();
    match value {
        None => with.push(flag.to_owned()),
        Some(value) if value.starts_with('=') => with.push(format!("{flag}{value}")),
        Some(value) => with.extend([flag.to_owned(), value.to_owned()]),
    }
    (without, with)
}

/// The reason why a flag may leave the answer as it is, in a call that has it.
fn excepted(call: &str, flag: &str) -> bool {
    EXCEPTIONS.iter().any(|(of, part, flags, _)| {
        call.starts_with(of) && format!("{call} ").contains(part) && flags.split(' ').any(|one| one == flag)
    })
}

/// What a flag did to an answer.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Refused,
    Changed,
    Nothing,
}

fn effect(before: &Answer, after: &Answer) -> Effect {
    match [before.code, after.code].contains(&Some(2)) {
        true => Effect::Refused,
        false if before != after => Effect::Changed,
        false => Effect::Nothing,
    }
}

/// The inputs that calls name.
fn inputs(given: &Path) {
    fs::create_dir_all(given).expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = |from: &str, to: &str| {
        fs::copy(root.join(from), given.join(to)).expect(from);
    };
    copy("topology/machines/src/tests/dgx-a100.xml", "topology.xml");
    copy("experiments/flags/megatron.json", "from.json");
    copy("tests/fixtures/reached.json", "reached.json");
    copy("experiments/papers/errors.csv", "errors.csv");
    let run = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        let ended = command.args(words.split(' ')).current_dir(given).output().expect("the binary runs");
        assert!(ended.status.success(), "{words}: {}", String::from_utf8_lossy(&ended.stderr));
        ended.stdout
    };
    fs::write(given.join("small.toml"), keys::SMALL).expect("a file");
    run("data generate --shape mnist --samples 24 --out idx");
    run("data generate --shape imagenet --samples 4 --classes 2 --out jpeg");
    run("data pack idx --out a.pack");
    fs::write(given.join("text.txt"), "In the beginning was the Word.\n").expect("a file");
    fs::write(given.join("tokenizer.json"), include_str!("../data/new-testament-tokenizer.json")).expect("a file");
    let table = run("sim collective --ranks 8 --bytes 8..64 --cluster dgx-a100 --format nccl-tests");
    fs::write(given.join("nccl.txt"), table).expect("a file");
}

#[test]
fn flags_are_read_or_refused() {
    let folder = folder("unread");
    let given = folder.join("given");
    inputs(&given);
    let thorough = std::env::var_os("LOCKSTEP_THOROUGH").is_some();
    let all = commands(&[]);
    let calls: Vec<&str> = CALLS.iter().chain(MORE_CALLS.iter().filter(|_| thorough)).copied().collect();
    let of = |command: &str| -> Vec<&str> {
        let begins = |call: &&&str| **call == command || call.starts_with(&format!("{command} "));
        calls.iter().filter(begins).copied().collect()
    };
    let mut cases = Vec::new();
    for command in all.iter().filter(|command| !NOT_CALLED.iter().any(|(not, _)| not == command)) {
        assert!(!of(command).is_empty(), "{command}: give it a call in CALLS");
        for flag in flags(command) {
            let values: Vec<_> =
                VALUES.iter().filter(|(of, only, _)| *of == flag && command.starts_with(only)).collect();
            assert!(!values.is_empty(), "{command} {flag}: give it a value in VALUES");
            for call in of(command) {
                cases.extend(values.iter().map(|(_, _, value)| (call, flag.clone(), *value)));
            }
        }
    }
    assert!(cases.len() > 300, "{}", cases.len());
    cases.extend(ACCEPTED.iter().map(|(call, flag, value)| (*call, (*flag).to_owned(), *value)));
    let (next, kept, unread) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let taken: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    let name_of = |call: &str, flag: &str| {
        format!("{} {flag}", all.iter().find(|of| call.starts_with(of.as_str())).unwrap_or(&String::new()))
    };
    let is_moved = |call: &str, flag: &str| {
        taken.lock().unwrap_or_else(PoisonError::into_inner).get(&name_of(call, flag)).is_some_and(|moved| *moved)
    };
    let one = |call: &str, flag: &str, value: Option<&str>| {
        let measures = ["exec run", "exec collective"].iter().any(|command| call.starts_with(command));
        let (without, with) = pair(call, flag, value);
        let known = kept.lock().unwrap_or_else(PoisonError::into_inner).get(&without).cloned();
        let mut before = known.unwrap_or_else(|| answer(&given, &without, measures));
        // A flag that must be given is compared with the call's own value.
        if before.code == Some(2) && call.split(' ').any(|word| word == flag) {
            let words: Vec<String> = call.split(' ').map(str::to_owned).collect();
            before = answer(&given, &words, measures);
        }
        let effect = effect(&before, &answer(&given, &with, measures));
        if before.code != Some(2) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).insert(without, before);
        }
        let name = name_of(call, flag);
        *taken.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() |= effect == Effect::Changed;
        effect
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((call, flag, value)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !thorough && is_moved(call, flag) {
                        continue;
                    }
                    if one(call, flag, *value) == Effect::Nothing && !excepted(call, flag) {
                        let fault = format!("{call}: {flag} {} changes nothing", value.unwrap_or_default());
                        unread.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
                    }
                }
            });
        }
    });
    let mut faults = unread.into_inner().unwrap_or_else(PoisonError::into_inner);
    let taken = taken.into_inner().unwrap_or_else(PoisonError::into_inner);
    let listed =
        |name: &str| UNMOVED.iter().any(|(of, flags, _)| flags.split(' ').any(|one| name == format!("{of} {one}")));
    let reason = |name: &str| {
        let (command, flag) = name.rsplit_once(' ').unwrap_or_default();
        listed(name) || of(command).iter().any(|call| excepted(call, flag))
    };
    let never = taken.iter().filter(|(name, taken)| !**taken && !reason(name));
    faults.extend(never.map(|(name, _)| format!("{name} is taken with an effect in no call")));
    faults.sort();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}
