//! Tests runs whose wall clock jumps: limits, checkpoints and the result do not depend on it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::commands::{folder, skipped};

/// Replaces the system's wall clock: each read differs more from the last, a day back and two ahead in turn, forty
/// years ago. Every other clock is unchanged.
const JUMPS: &str = "#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static _Atomic long looks;
int clock_gettime(clockid_t clock, struct timespec *at) {
    long result = syscall(SYS_clock_gettime, clock, at);
    if (clock == CLOCK_REALTIME) {
        long look = looks++;
        at->tv_sec += (look % 2 ? 2 : -1) * 86400 * look - 40 * 31557600L;
    }
    return (int)result;
}
";

/// A preload library with that clock; `None` without a C compiler.
fn library(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("jumps.c"), folder.join("jumps.so"));
    std::fs::write(&source, JUMPS).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    built.is_ok_and(|status| status.success()).then_some(library)
}

fn run(folder: &Path, clock: Option<&Path>, more: &[&str]) -> Output {
    let all = ["exec", "run", "--model", "mlp", "--data", "synthetic:600", "--ranks", "2", "--batch-per-rank", "4"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(all).args(["--format", "json"]).args(more).current_dir(folder);
    if let Some(library) = clock {
        command.env("LD_PRELOAD", library);
    }
    command.output().unwrap()
}

#[test]
fn steps_of_the_wall_clock_change_nothing() {
    let folder = folder("clock-steps");
    let Some(clock) = library(&folder) else {
        skipped("no C compiler here (cc), with which the clock that jumps is made");
        return;
    };
    let state = |output: &Output| -> String {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        text.lines().find(|line| line.contains("state_sha256")).unwrap_or_else(|| panic!("{errors}")).to_owned()
    };
    let steps = ["--steps", "400", "--stall-limit", "5"];
    let kept = ["--checkpoint", "kept", "--checkpoint-every", "1s"];
    let undisturbed = run(&folder, None, &steps);
    // Neither the stall limit nor the interval of checkpoints follows the jumps.
    let jumping = run(&folder, Some(&clock), &[&steps[..], &kept].concat());
    assert!(jumping.status.success(), "{}", String::from_utf8_lossy(&jumping.stderr));
    assert_eq!(state(&jumping), state(&undisturbed));
    let resumed = run(&folder, Some(&clock), &["--steps", "500", "--resume", "kept"]);
    assert_eq!(state(&resumed), state(&run(&folder, None, &["--steps", "500"])));
    // A run that really stalls is detected; the reported date is the wall clock's.
    let stuck = run(&folder, Some(&clock), &["--steps", "400", "--stall-limit", "0.5", "--fault", "hang:1@3"]);
    let said = String::from_utf8_lossy(&stuck.stderr).into_owned();
    assert_eq!(stuck.status.code(), Some(3), "{said}");
    let year = lockstep_measure::host::HostInfo::find().date[..4].parse::<u32>().unwrap();
    assert!(said.contains("found on ") && !said.contains(&format!(", {year}-")), "{said}");
    assert!((year - 42..year - 38).any(|year| said.contains(&format!(", {year}-"))), "{said}");
}
