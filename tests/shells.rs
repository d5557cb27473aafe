//! Tests what shells and manuals get: completions and pages for every command.

use std::fs;

use crate::commands::{folder, lockstep, stdout};

/// Commands below the top, as their manual pages name them.
const SOME: [&str; 5] = ["lockstep", "lockstep-sim", "lockstep-sim-predict", "lockstep-exec-run", "lockstep-data-pack"];

#[test]
fn every_shell_completes_commands_and_flags() {
    let folder = folder("completions");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&folder, &["completions", shell]);
        for word in ["lockstep", "predict", "batch-per-rank", "transform-at"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let refused = lockstep(&folder, &["completions", "tcsh"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && errors.contains("fish"), "{errors}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = folder("manual");
    stdout(&folder, &["man", "--out", "deep/man1"]);
    for name in SOME {
        let page = fs::read_to_string(folder.join(format!("deep/man1/{name}.1"))).expect("a page");
        assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{name}");
    }
    assert!(fs::read_dir(folder.join("deep/man1")).expect("a folder").count() > 20);
    let refused = lockstep(&folder, &["man", "--out", "/proc/none"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && errors.contains("--out"), "{errors}");
}
