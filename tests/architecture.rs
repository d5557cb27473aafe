//! Checks the rules of the workspace: allowed dependencies between crates, and the form of every source file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The most lines of a source file, tests included.
const MOST_LINES: usize = 400;
/// The most lines of a function outside of tests.
const MOST_FUNCTION_LINES: usize = 70;
/// Functions that are longer.
const LONGER: [&str; 2] = ["models/readers/src/onnx/fold.rs: fold", "models/readers/src/onnx/operators.rs: operator"];
/// The most lines of the binary: it only calls the library.
const MOST_MAIN_LINES: usize = 30;

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// For each package of the workspace, those of the workspace that it depends on, and those that only its tests do.
fn dependencies() -> BTreeMap<String, [BTreeSet<String>; 2]> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let short = |value: &Value| value["name"].as_str().expect("a name").trim_start_matches("lockstep-").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(short).collect();
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().expect("dependencies");
        [false, true].map(|tests| {
            let kind = all.iter().filter(|dependency| (dependency["kind"] == "dev") == tests);
            let is_ours =
                |dependency: &&Value| dependency["name"].as_str().is_some_and(|name| name.starts_with("lockstep-"));
            kind.filter(is_ours).map(short).filter(|name| ours.contains(name)).collect()
        })
    };
    packages.iter().map(|package| (short(package), of(package))).collect()
}

#[test]
fn crates_depend_in_one_direction() {
    // Each crate, what it depends on, and what only its tests do.
    let expected = [
        ("topology", "", ""),
        ("machines", "topology", ""),
        ("models", "topology", ""),
        ("readers", "topology models", ""),
        ("report", "topology models", "readers"),
        ("stack", "topology models", "readers"),
        ("flags", "topology models stack", "readers"),
        ("experiment", "topology models readers report flags", ""),
        ("sim", "topology models", "readers"),
        ("predict", "topology models report experiment sim", ""),
        ("papers", "topology models readers report experiment sim predict", ""),
        ("data", "topology models", "readers"),
        ("exec", "topology models data", "readers"),
        ("cuda", "topology models data exec", "readers"),
        ("measure", "topology models report experiment data exec cuda", "readers"),
        ("lab", "topology report", ""),
        (
            "lockstep",
            "topology machines models readers report stack flags experiment sim predict papers exec data cuda measure lab",
            "",
        ),
        ("benches", "topology models readers sim exec data", ""),
    ];
    let set = |names: &str| names.split_whitespace().map(str::to_owned).collect();
    let expected: BTreeMap<String, [BTreeSet<String>; 2]> =
        expected.into_iter().map(|(name, on, tests)| (name.to_owned(), [set(on), set(tests)])).collect();
    assert_eq!(dependencies(), expected);
}

/// All Rust files of the workspace.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["src", "tests", "benches", "topology", "models", "sim", "exec"].iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 100, "the sources are where this test looks for them");
    found
}

#[test]
fn files_are_short_and_start_with_a_sentence() {
    let mut faults = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let lines = text.lines().count();
        if lines > MOST_LINES {
            faults.push(format!("{name}: {lines} lines, split it (at most {MOST_LINES})"));
        }
        if !text.starts_with("//! ") {
            faults.push(format!("{name}: does not open with a //! sentence that says what it holds"));
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if matches!(stem.as_str(), "utils" | "util" | "common" | "helpers" | "misc") {
            faults.push(format!("{name}: name it by what it holds"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The name and length of each function in formatted source; one ends at the first brace that is indented like it.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let qualifier =
        |word: &str| ["const", "async", "unsafe", "extern", "\"C\""].contains(&word) || word.starts_with("pub");
    let length = |(at, line): (usize, &&'_ str)| {
        let (before, after) = line.split_once("fn ")?;
        let name_length = after.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
        let ends = |other: &&str| {
            let rest = other.strip_prefix(&line[..line.len() - line.trim_start().len()]);
            rest.is_some_and(|rest| rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let is_whole = line.ends_with(['}', ';']) || !before.split_whitespace().all(qualifier);
        let end = if is_whole { at } else { at + lines[at..].iter().position(ends)? };
        Some((at, before.len() + 3, name_length, end + 1 - at))
    };
    let found = lines.iter().enumerate().filter_map(length);
    found.map(|(at, start, name, length)| (&lines[at][start..start + name], length)).collect()
}

#[test]
fn functions_are_short() {
    let is_test =
        |path: &PathBuf| path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
    let mut faults = Vec::new();
    for path in sources().into_iter().filter(|path| !is_test(&path.strip_prefix(root()).unwrap_or(path).to_owned())) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let place = path.strip_prefix(root()).unwrap_or(&path).display();
        let long = functions(code).into_iter().filter(|(_, lines)| *lines > MOST_FUNCTION_LINES);
        let long = long.map(|(name, lines)| (format!("{place}: {name}"), lines));
        faults.extend(long.filter(|(name, _)| !LONGER.contains(&name.as_str())));
    }
    assert!(faults.is_empty(), "split these, which have more than {MOST_FUNCTION_LINES} lines: {faults:?}");
    // Long enough to be found, and short beside a declaration.
    let text =
        format!("trait A {{\n    fn one();\n    pub(super) fn two() {{\n{}    }}\n}}\n", "        go();\n".repeat(70));
    assert_eq!(functions(&text), [("one", 1), ("two", 72)]);
}

/// Waits and their limits must not follow a clock that users can set.
#[test]
fn the_wall_clock_is_read_in_one_place() {
    let reads = |path: &PathBuf| std::fs::read_to_string(path).expect("a readable file").contains("SystemTime::now");
    let places: Vec<PathBuf> = sources().into_iter().filter(|path| !path.starts_with(root().join("tests"))).collect();
    let places: Vec<PathBuf> = places.into_iter().filter(reads).collect();
    assert_eq!(places, [root().join("exec/measure/src/host.rs")], "Instant measures; the date is for people");
}

#[test]
fn the_binary_only_calls_the_library() {
    let text = std::fs::read_to_string(root().join("src/main.rs")).expect("a readable file");
    assert!(text.lines().count() <= MOST_MAIN_LINES);
}

/// Whether a function of this name is a test.
fn is_test(sources: &str, name: &str) -> bool {
    sources.match_indices(&format!("fn {name}(")).any(|(at, _)| {
        let before = sources[..at].rsplit('\n').skip(1);
        before.take_while(|line| line.trim_start().starts_with("#[")).any(|line| line.trim() == "#[test]")
    })
}

/// The table of the papers' mechanisms names existing files, and in its last column existing tests.
#[test]
fn the_table_of_mechanisms_names_existing_files_and_tests() {
    let text = std::fs::read_to_string(root().join("docs/mechanisms.md")).expect("a readable file");
    let all: String = sources().iter().map(|path| std::fs::read_to_string(path).expect("a readable file")).collect();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let (mut faults, mut rows) = (Vec::new(), 0);
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 4, "{line}");
        rows += 1;
        let is_place = |name: &String| name.contains('/');
        let places = quoted(cells[2]).into_iter().chain(quoted(cells[3]).into_iter().filter(is_place));
        faults.extend(places.filter(|place| !root().join(place).exists()).map(|place| format!("no file {place}")));
        let tests = quoted(cells[3]).into_iter().filter(|name| !is_place(name));
        faults.extend(tests.filter(|name| !is_test(&all, name)).map(|name| format!("no test {name}")));
    }
    assert!(rows > 80, "the tables are where this test looks for them");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Kinds of layers are matched in their own files and in the lists of models and devices, and hardly anywhere else.
#[test]
fn kinds_of_layers_are_matched_only_in_listed_files() {
    let lists = [
        "models/src/layer",
        "models/src/model/arbitrary.rs",
        "exec/src/device/cpu",
        "exec/cuda/src/layers/",
        "models/readers/src/onnx",
        "models/readers/src/decoder",
        "models/stack/src/decoder.rs",
    ];
    let names_variant = |line: &&str| {
        let after = |at: usize| line[at + "Layer::".len()..].starts_with(|letter: char| letter.is_ascii_uppercase());
        !line.trim_start().starts_with("//") && line.match_indices("Layer::").any(|(at, _)| after(at))
    };
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let is_test = name.contains("tests") || name.contains("benches");
        if !is_test && !lists.iter().any(|list| name.starts_with(list)) {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            let count = text.lines().filter(names_variant).count();
            found.extend((count > 0).then_some((name, count)));
        }
    }
    let rooms = ["sim/", "topology/", "exec/src/worker/", "exec/src/transport/", "exec/src/replica"];
    let strict: Vec<_> = found.keys().filter(|name| rooms.iter().any(|room| name.starts_with(room))).collect();
    assert!(strict.is_empty(), "no layer is matched in {strict:?}");
    assert!(found.values().sum::<usize>() <= 20, "{found:#?}");
}

/// Only the command line uses flags: other crates name a setting by its key, which `ErrorPlace` shows as its flag.
#[test]
fn only_the_command_line_mentions_flags() {
    // Exceptions: arguments of NVIDIA's compiler, mpirun, sbatch and Megatron-LM; the help of the settings' flags, and the page that
    // lists them.
    let others = [
        "exec/cuda/src/nvrtc.rs",
        "exec/lab/src/run.rs",
        "exec/measure/src/job_hosts.rs",
        "models/flags/src/print.rs",
        "models/flags/src/sources/megatron.rs",
        "models/experiment/src/rows.rs",
        "models/experiment/src/page.rs",
    ];
    let mut faults = Vec::new();
    for path in sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let is_library = ["topology/", "models/", "sim/", "exec/"].iter().any(|folder| name.starts_with(folder));
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        // Sentences on building lockstep or installing a library name other programs' flags; a style sheet has
        // variables.
        let named = |line: &str| {
            let line = ["--release", "--features", "--upgrade", "--showtopo", "var(--"]
                .iter()
                .fold(line.to_owned(), |line, of| line.replace(of, ""));
            line.match_indices("--").any(|(at, _)| {
                let begins = line[..at].ends_with(['"', ' ', '(', '`', '\'']);
                begins && line[at + 2..].starts_with(|letter: char| letter.is_ascii_lowercase())
            })
        };
        if is_library && !name.contains("tests") && !others.contains(&&*name) {
            faults.extend(code.filter(|line| named(line)).map(|line| format!("{name}: {}", line.trim())));
        }
    }
    assert!(faults.is_empty(), "flags in sentences, for which ErrorPlace::Flag(key) is there: {faults:#?}");
}
