//! Malformed calls of every command, drawn from a seed: each ends in time with a known exit code, names a place on one
//! line, changes no input and leaves no draft behind.
//!
//! `LOCKSTEP_COMMANDS=10000 LOCKSTEP_SEED=7` draws more calls, or others; a failing call is printed so that a shell takes it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::commands::folder;

/// Calls of the test command.
const SAMPLE: u64 = 300;
/// Address space of a call, in KiB.
const MEMORY: &str = "8388608";
/// Seconds that a call may take.
const SECONDS: &str = "30";
/// Bytes on standard error, at most: an error is a line, and progress a line every two seconds.
const MOST_SAID: usize = 16 << 10;

/// Valid calls, from which the others are made; `@` is the folder of inputs. `lab` changes the machine's
/// network, and `calibrate` and `exec profile` measure for minutes: they get flags alone.
const CALLS: &[&str] = &[
    "sim predict @/experiment.toml --cluster ethernet-4",
    "sim predict --model lenet --cluster @/cluster.toml --ranks 2 --batch-per-rank 4",
    "sim predict --model @/model.toml --cluster workstation",
    "sim predict --model @/net.prototxt --cluster workstation",
    "sim predict --model @/net.onnx --cluster workstation",
    "sim sweep --model lenet --cluster workstation --ranks 1,2 --out rows.csv",
    "sim sweep @/experiment.toml --cluster workstation --max-points 4",
    "sim collective --ranks 4 --bytes 1KiB --cluster ethernet-4",
    "sim collective --ranks 4 --beside @/rows.csv --cluster ethernet-4",
    "sim curves",
    "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2",
    "exec run @/experiment.toml --steps 1 --ranks 1 --batch-per-rank 1 --data synthetic:64 --model mlp",
    "exec sweep @/experiment.toml --out runs.csv --most 1",
    "exec collective --ranks 2 --bytes 1KiB --repetitions 2",
    "exec devices",
    "exec inspect @/",
    "exec links --cluster @/cluster.toml",
    // A whole experiment would calibrate this machine for minutes.
    "compare @/model.toml",
    "papers krizhevsky2014",
    "profiles show @/profile.json",
    "memory --model llama-3-8b:layers=2 --gpus 4xa100-40",
    "models list",
    "models show @/model.toml",
    "models show @/net.prototxt",
    "models check @/model.toml",
    "models layouts lenet --ranks 4",
    "models plan lenet --stages 2",
    "clusters list",
    "clusters show @/cluster.toml",
    "clusters check @/cluster.toml",
    "clusters import @/topology.xml",
    "data check @/data.pack",
    "data show @/data.pack",
    "data generate made.pack --samples 4",
    "data pack @/ made.pack",
    "schema predict",
    "completions bash",
    "man pages",
    "lab run",
    "calibrate",
    "exec profile",
];
/// Calls that get no more than a flag that cannot be taken.
const FLAGS_ALONE: [&str; 3] = ["lab run", "calibrate", "exec profile"];

/// Values that few flags take.
const VALUES: &[&str] = &[
    "",
    " ",
    "0",
    "-1",
    "1",
    "2",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "1e308",
    "nan",
    "inf",
    "-0.0",
    "1..1000000000",
    "1,1",
    ",",
    "=",
    ":",
    "a=b",
    "a=1,a=2",
    "\u{1b}[31mred",
    "a\nb",
    "größe",
    "😀",
    "../..",
    "/",
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "missing/file.csv",
    "@/",
    "@/pipe",
    "@/model.toml",
    "@/rows.csv",
    "--",
    "-",
    "true",
    "none",
    "auto",
    "lenet",
    "ring",
    "4B",
    "1KiB",
    "99999999TiB",
    "data=2",
    "out.csv",
];

/// Numbers drawn by splitmix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most.max(1) as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// The name of an input, folders with the ends of names of shipped files, and bytes of our own.
type Input = (&'static str, &'static [(&'static str, &'static str)], &'static [u8]);

/// The inputs of calls.
const INPUTS: [Input; 9] = [
    ("experiment.toml", &[("experiments", ".toml"), ("tests/fixtures", ".toml")], b""),
    ("model.toml", &[("models/zoo", ".toml"), ("experiments/claims/models", ".toml")], b""),
    ("cluster.toml", &[("topology/clusters", ".toml"), ("experiments/collectives/machines", ".toml")], b""),
    ("net.prototxt", &[("models/readers/src/caffe/tests", ".prototxt")], b""),
    ("topology.xml", &[("topology/machines/src/tests", ".xml")], b""),
    ("net.onnx", &[("models/readers/src/onnx/tests", ".onnx")], b"\x08\x07:\x10\n\x04Relu"),
    (
        "rows.csv",
        &[("tests/fixtures", ".csv"), ("experiments/claims/results", ".csv")],
        b"sweep,point,cluster\nabc,0,x\n",
    ),
    ("profile.json", &[("tests/fixtures", ".json"), ("tests/fixtures", ".jsonl")], b"{\"version\": 1}"),
    ("data.pack", &[("tests/fixtures/checkpoint", ".safetensors")], b"lockstep pack\0\x01\0\0\0"),
];

/// Whole inputs by name, from which damaged ones are made: all files that are shipped.
fn inputs() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = |(folder, end): &(&str, &str)| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.is_file() && path.to_string_lossy().ends_with(end)).collect();
        paths.sort();
        paths.into_iter().map(|path| fs::read(path).expect("a shipped file")).collect::<Vec<_>>()
    };
    let all = INPUTS.map(|(name, folders, own)| {
        let own = (!own.is_empty()).then(|| own.to_vec());
        (name, folders.iter().flat_map(shipped).chain(own).collect::<Vec<_>>())
    });
    all.iter().for_each(|(name, all)| assert!(!all.is_empty(), "{name}"));
    all.into()
}

/// Some bytes changed, cut out, doubled or added.
fn damaged(bytes: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..draw.below(4) {
        let (at, length) = (draw.below(bytes.len()), draw.below(24));
        let end = (at + length).min(bytes.len());
        match draw.below(4) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
            2 => bytes.splice(at..at, draw.one(VALUES).bytes()).for_each(drop),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = draw.below(256) as u8),
        }
    }
    bytes
}

/// The flags that the help of a command names.
fn flags(command: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_lockstep")).args(command).arg("--help").output().expect("help");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let begins = |line: &str| line.trim_start().starts_with('-') && !line.starts_with("        -");
    let lines = text.lines().filter(|line| begins(line));
    let words = lines.flat_map(|line| line.split([' ', ',', '='])).filter(|word| word.starts_with("--"));
    words.map(str::to_owned).collect()
}

/// The words of a call up to its first flag or input: its command.
fn command(call: &str) -> Vec<&str> {
    let words: Vec<&str> = call.split(' ').collect();
    let most = if ["sim", "exec", "models", "clusters", "data", "profiles", "lab"].contains(&words[0]) { 2 } else { 1 };
    words[..most].to_vec()
}

/// A malformed call.
fn malformed(call: &str, flags: &[String], place: &str, draw: &mut Draw) -> Vec<String> {
    let mut words: Vec<String> = call.split(' ').map(str::to_owned).collect();
    if FLAGS_ALONE.contains(&call) {
        words.push(format!("--{}", draw.one(&["nonsense", "\u{1b}[31m", "größe", "a\nb"])));
        return words;
    }
    for _ in 0..1 + draw.below(3) {
        let at = command(call).len() + draw.below(words.len() - command(call).len() + 1);
        match draw.below(6) {
            0 if at < words.len() => drop(words.remove(at)),
            1 if at < words.len() => words[at] = (*draw.one(VALUES)).to_owned(),
            2 => words.insert(at, (*draw.one(VALUES)).to_owned()),
            _ if !flags.is_empty() => {
                words.push(draw.one(flags).clone());
                if draw.below(4) > 0 {
                    words.push((*draw.one(VALUES)).to_owned());
                }
            }
            _ => {}
        }
    }
    words.iter().map(|word| word.replace("@/", place)).collect()
}

/// Runs the binary in `folder`, within limits of memory and time.
fn run(folder: &Path, words: &[String]) -> Output {
    let limited = format!("ulimit -v {MEMORY}; exec timeout -k 5 {SECONDS} \"$0\" \"$@\"");
    let mut shell = Command::new("bash");
    shell.args(["-c", &limited, env!("CARGO_BIN_EXE_lockstep")]).args(words).current_dir(folder);
    shell.stdin(Stdio::null()).output().expect("bash runs")
}

/// Content by path of all plain files.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap_or_default())).collect()
}

/// Flags whose value is written.
const OUTPUTS: [&str; 14] = [
    "--driver-log",
    "--html",
    "--metrics",
    "--out",
    "--output",
    "--plot",
    "--save-weights",
    "--trace",
    "--tuner-log",
    "--write-errors",
    "--profile",
    "--flight",
    "--checkpoint",
    "-o",
];

/// Whether all files that differ are named, or lie in a folder that is named, by an output flag, and by nothing else: then
/// the call does not read them.
fn names_output(words: &[String], before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
    let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
    before.keys().chain(after.keys()).filter(differs).all(|path| {
        let names = |word: &str| Path::new(word) == path || path.parent() == Some(Path::new(word));
        let value = |word: &String| word.split_once('=').map_or(word.clone(), |(_, value)| value.to_owned());
        let named: Vec<usize> = (0..words.len()).filter(|at| names(&value(&words[*at]))).collect();
        let is_output = |at: usize| {
            let flag = words[at]
                .split_once('=')
                .map(|(flag, _)| flag)
                .or_else(|| words.get(at.checked_sub(1)?).map(String::as_str));
            flag.is_some_and(|flag| OUTPUTS.contains(&flag)) || words[0] == "man"
        };
        matches!(named.as_slice(), [at] if is_output(*at))
    })
}

/// What is wrong with how a call ended.
fn fault(words: &[String], output: &Output, changed: bool, drafts: &[PathBuf]) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let control = |c: char| c.is_control() && c != '\n';
    // Long work is no fault, and on a slow machine more of it is long; a command that says nothing meanwhile is one.
    let late = matches!(output.status.code(), Some(124 | 137)) || output.status.signal() == Some(9);
    // Opening a pipe waits for the other end, as in any program.
    let quiet = words.iter().any(|word| ["-q", "--quiet"].contains(&word.as_str()) || word.ends_with("given/pipe"));
    match output.status.code() {
        _ if late => (said.is_empty() && !quiet).then(|| format!("said nothing for {SECONDS} s")),
        None => Some(format!("ended by signal {:?}", output.status.signal())),
        Some(code) if code > 2 => Some(format!("exit code {code}")),
        _ if said.contains("panicked") => Some("panicked".to_owned()),
        Some(2) if !said.trim_end().lines().last().is_some_and(|line| line.contains(": ")) => {
            Some("names no place".to_owned())
        }
        _ if said.chars().any(control) => Some("control characters on standard error".to_owned()),
        // Asked for, each phase of the work has a line.
        _ if said.len() > MOST_SAID && !words.iter().any(|word| word == "--verbose") => {
            Some(format!("{} bytes on standard error", said.len()))
        }
        _ if changed => Some("an input was changed".to_owned()),
        _ if !drafts.is_empty() => Some(format!("left {drafts:?}")),
        _ => None,
    }
}

/// The call as a shell takes it.
fn pasted(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("$'{}'", word.escape_default().to_string().replace("\\u{", "\\x{")));
    format!("lockstep {}", quoted.collect::<Vec<_>>().join(" "))
}

fn number(name: &str, without: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(without)
}

#[test]
fn malformed_calls_end_with_an_error_of_one_line() {
    let (count, seed) = (number("LOCKSTEP_COMMANDS", SAMPLE), number("LOCKSTEP_SEED", 1));
    println!("{count} calls from seed {seed}");
    let folder = folder("commands_fuzz");
    let (given, work) = (folder.join("given"), folder.join("work"));
    fs::create_dir_all(&given).expect("a folder");
    assert!(Command::new("mkfifo").arg(given.join("pipe")).status().expect("mkfifo").success());
    let known: Vec<Vec<String>> = CALLS.iter().map(|call| flags(&command(call))).collect();
    let (inputs, mut failed) = (inputs(), Vec::new());
    for number in 0..count {
        let mut draw = Draw(seed.wrapping_mul(1 << 32).wrapping_add(number));
        for (name, whole) in &inputs {
            let whole = draw.one(whole);
            fs::write(given.join(name), damaged(whole, &mut draw)).expect("an input");
        }
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).expect("a folder");
        let which = draw.below(CALLS.len());
        let words = malformed(CALLS[which], &known[which], &format!("{}/", given.display()), &mut draw);
        // No system call takes a word with a zero byte.
        let words: Vec<String> = words.into_iter().map(|word| word.replace('\0', "")).collect();
        let before = content(&given);
        let output = run(&work, &words);
        let is_draft = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with('.') || name.ends_with(".part") || name.ends_with(".tmp")
        };
        let drafts: Vec<PathBuf> = content(&work).into_keys().filter(is_draft).collect();
        let changed = before != content(&given) && !names_output(&words, &before, &content(&given));
        if let Some(fault) = fault(&words, &output, changed, &drafts) {
            let said = String::from_utf8_lossy(&output.stderr).chars().take(300).collect::<String>();
            println!("call {number}, {fault}: {}\n  {}", pasted(&words), said.escape_debug());
            failed.push(number);
        }
    }
    assert!(failed.is_empty(), "{} of {count} calls from seed {seed}: {failed:?}", failed.len());
}
