//! Tests the checks that other programs on the machine can disturb: what each outcome ends with, and what the run lists.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a Python program beside the scripts of the validation matrix.
fn python(text: &str, arguments: &[&str]) -> Output {
    let matrix = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/matrix");
    let mut command = Command::new("python3");
    command.args(["-c", text]).args(arguments).current_dir(&matrix).env("PYTHONDONTWRITEBYTECODE", "1");
    command.output().expect("python3")
}

/// A prediction that is off fails if others left one attempt alone, and was not checked if they disturbed all.
#[test]
fn a_disturbed_check_is_not_a_passed_one() {
    let text = "import sys\nsys.path.insert(0, '.')\nimport busy\nfile, factor, *others = sys.argv[1:]\nshares = iter(map(float, others))\n\
                busy.Watch.others = lambda self: next(shares)\nrow = '{\"rows\": [{\"predicted_step_time_s\": %s, \"step_time_s\": 1}]}' % factor\n\
                sys.argv = ['within.py', file, 'echo', row]\nimport within\nwithin.main()\n";
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gate.json");
    let file = file.to_str().expect("a path");
    for (factor, others, code, skipped) in [
        ("1.9", ["0.9", "0.9", "0.9"], 0, false),
        ("2.1", ["0.9", "0.0", "0.9"], 1, false),
        ("2.1", ["0.9", "0.9", "0.9"], 77, true),
    ] {
        let output = python(text, &[file, factor, others[0], others[1], others[2]]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{factor} {others:?}: {said}");
        assert_eq!(said.contains("SKIPPED: not checked"), skipped, "{said}");
    }
}

/// CPU time of the check's own commands is not that of others.
#[test]
fn own_time_is_not_that_of_others() {
    let text = "import subprocess, sys\nsys.path.insert(0, '.')\nimport busy\nwatch = busy.Watch()\n\
                subprocess.run([sys.executable, '-c', 'sum(range(20_000_000))'])\nown = busy._own_s() - watch.own_s\n\
                share = watch.others()\nassert own > 0.1 and 0.0 <= share <= 1.0, (own, share)\n";
    let output = python(text, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Code 77 of a check does not end a run; the run's last lines name what was left out.
#[test]
fn a_run_lists_what_it_left_out() {
    let run = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run")).expect("tests/run");
    let from = run.find("checked() {").expect("the function");
    let function = &run[from..from + run[from..].find("\n}\n").expect("its end") + 3];
    let end = &run[run.find("# Outputs of stages").expect("the runner")..];
    let script = format!(
        "set -euo pipefail\n{function}stage_a() {{ checked sh -c 'echo SKIPPED: busy; exit 77'; }}\nstage_b() {{ echo fine; }}\n\
         chosen=(a b)\n{end}"
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.ends_with("but for what was skipped:\na: SKIPPED: busy\n"), "{said}");
    let failing = script.replace("exit 77", "exit 1");
    let output = Command::new("bash").args(["-c", &failing]).output().expect("bash");
    assert_eq!(output.status.code(), Some(1));
}
