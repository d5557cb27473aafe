//! Runs the SimGrid program: compiles it when first needed, gives it many cases at once, and reads its answers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::case::Case;

/// Set by `tests/run`: a missing SimGrid is then a failure.
const REQUIRED: &str = "LOCKSTEP_REQUIRE_SIMGRID";

/// SimGrid's answer for one case, in seconds.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// When each flow ends, in the order of the case.
    pub(crate) flows: Vec<f64>,
    /// When each rank ends.
    pub(crate) ranks: Vec<f64>,
}

/// Plays all cases; `None`, with a message, where there is no SimGrid.
pub(crate) fn play(name: &str, cases: &[Case<'_>]) -> Option<Vec<Verdict>> {
    let judge = program()?;
    let question = folder().join(format!("{name}.cases"));
    let text: String = cases.iter().map(Case::text).collect();
    std::fs::write(&question, text).expect("the target folder can be written");
    let output = Command::new(judge).arg(&question).output().expect("the judge starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the judge failed on {}:\n{errors}", question.display());
    let verdicts = read(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(verdicts.len(), cases.len(), "a verdict for each case of {}", question.display());
    for ((name, _), case) in verdicts.iter().zip(cases) {
        assert_eq!(*name, case.name, "verdicts come in the order of the cases");
    }
    Some(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The compiled `judge.cpp`; all tests of the process share it.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let required = std::env::var_os(REQUIRED).is_some();
        match compile() {
            Ok(program) => Some(program),
            Err(reason) if required => panic!("{REQUIRED} is set, and SimGrid cannot be asked: {reason}"),
            Err(reason) => {
                eprintln!("SKIPPED: SimGrid was not asked, so nothing here is judged: {reason}");
                eprintln!("SKIPPED: apt-get install g++ libsimgrid-dev, or bash tests/run system simgrid");
                None
            }
        }
    });
    program.as_deref()
}

fn compile() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simgrid/judge.cpp");
    let program = folder().join("simgrid-judge");
    let output = Command::new("g++")
        .args(["-std=c++17", "-O2", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-lsimgrid")
        .output()
        .map_err(|error| format!("g++: {error}"))?;
    if output.status.success() {
        return Ok(program);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // Without the header there is no SimGrid; any other error is a bug in `judge.cpp` and must be seen.
    let missing =
        errors.lines().find(|line| line.contains("simgrid/s4u.hpp: No such file") || line.contains("-lsimgrid"));
    match missing {
        Some(line) => Err(line.to_owned()),
        None => panic!("judge.cpp does not compile:\n{errors}"),
    }
}

/// Cases by name with their answers.
fn read(answers: &str) -> Vec<(String, Verdict)> {
    let mut verdicts: Vec<(String, Verdict)> = Vec::new();
    for line in answers.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let seconds = || words[2].parse::<f64>().expect("seconds");
        match (words[0], verdicts.last_mut()) {
            ("case", _) => verdicts.push((words[1].to_owned(), Verdict::default())),
            ("flow", Some((_, verdict))) => verdict.flows.push(seconds()),
            ("rank", Some((_, verdict))) => verdict.ranks.push(seconds()),
            _ => panic!("the judge says {line:?}"),
        }
    }
    verdicts
}
