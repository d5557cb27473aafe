//! Tests input files that are pipes: those that a shell connects are read, those with a name in a folder are refused
//! instead of waiting for a writer that may never come.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::commands::folder;

const EXPERIMENT: &str = "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\n";

/// A named pipe without a writer.
fn pipe(at: &Path) {
    assert!(Command::new("mkfifo").arg(at).status().expect("mkfifo").success());
}

/// Runs a line of bash, in which `lockstep` is the binary, and ends it if it waits.
fn bash(folder: &Path, line: &str) -> Output {
    let function = format!("lockstep() {{ timeout 60 {} \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_lockstep"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &function]).current_dir(folder).stdin(Stdio::null()).output().expect("bash runs")
}

#[test]
fn pipes_with_names_are_refused_as_input() {
    let folder = folder("pipes-named");
    for name in ["e.toml", "m.onnx", "m.prototxt", "n.xml", "t.txt", "r.csv", "l.json", "d.packed"] {
        pipe(&folder.join(name));
    }
    std::os::unix::fs::symlink("e.toml", folder.join("link.toml")).expect("a link");
    for line in [
        "sim predict e.toml",
        "sim predict link.toml",
        "sim predict --model e.toml --cluster ethernet-4",
        "sim predict --model mlp --cluster e.toml",
        "sim predict --model mlp --cluster ethernet-4 --profile e.toml",
        "sim predict --model mlp --cluster ethernet-4 --target e.toml",
        "sim predict --model resnet-32 --cluster ethernet-4 --strategy sma:first-come --replay l.json",
        "sim sweep e.toml",
        "sim collective --ranks 8 --beside t.txt --cluster dgx-a100",
        "models check m.onnx",
        "models check m.prototxt",
        "exec run e.toml",
        "exec run --model mlp --recipe e.toml",
        "exec run --model mlp --strategy sma --learners auto --replay-tuner l.json",
        "exec run --model mlp --data d.packed",
        "exec inspect l.json",
        "clusters check e.toml",
        "clusters import n.xml",
        "data check d.packed",
        "papers e.toml",
    ] {
        let output = bash(&folder, &format!("lockstep {line}"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(
            ["pipe", "regular file", "or file", "folder", "no file"].iter().any(|words| errors.contains(words)),
            "{line}: {errors}"
        );
    }
}

#[test]
fn pipes_that_the_shell_connects_are_read() {
    let folder = folder("pipes-connected");
    std::fs::write(folder.join("e.toml"), EXPERIMENT).expect("a file");
    pipe(&folder.join("named"));
    let plain = bash(&folder, "lockstep sim predict e.toml --format csv");
    assert!(plain.status.success() && !plain.stdout.is_empty(), "{}", String::from_utf8_lossy(&plain.stderr));
    for line in [
        "lockstep sim predict <(cat e.toml) --format csv",
        "cat e.toml | lockstep sim predict /dev/stdin --format csv",
        "lockstep sim predict /dev/stdin --format csv <e.toml",
        "cat e.toml >named & lockstep sim predict /dev/stdin --format csv <named",
    ] {
        let output = bash(&folder, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, plain.stdout, "{line}");
    }
}

/// A command that waits for its input, and so reports nothing itself, says for how long it has run, unless it is quiet.
#[test]
fn a_silent_command_says_for_how_long_it_has_run() {
    let folder = folder("pipes-silent");
    std::fs::write(folder.join("e.toml"), EXPERIMENT).expect("a file");
    let errors = |line: &str| {
        let output = bash(&folder, line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {errors}");
        errors
    };
    let said = errors("(sleep 6; cat e.toml) | lockstep sim predict /dev/stdin");
    assert!(said.lines().any(|line| line.starts_with("sim predict: ") && line.ends_with(" s so far")), "{said}");
    assert!(!errors("(sleep 4; cat e.toml) | lockstep -q sim predict /dev/stdin").contains("so far"));
}
