//! Tests the flags for simulating equal ranks once: their output, and that they change times only by padding.

use serde_json::Value;

use crate::commands::{folder, lockstep, number, stdout};

/// Rows and notes of a command's JSON.
fn answer(name: &str, command: &str) -> (Vec<Value>, String) {
    let arguments: Vec<&str> = command.split_whitespace().chain(["--format", "json"]).collect();
    let json: Value = serde_json::from_str(&stdout(&folder(name), &arguments)).expect("JSON");
    (json["rows"].as_array().expect("rows").clone(), json["notes"].to_string())
}

/// 2^20 bytes divide among 64 ranks, 10^6 + 4 do not, and neither do the parameters of an MLP; `bare` does not pad
/// them.
fn flags_say_which_ranks_are_simulated(command: &str, column: &str, [bare, padded]: [&str; 2]) {
    let (exact, notes) = answer("fold", &format!("{command}{bare}"));
    let (every, all) = answer("fold-never", &format!("{command}{bare} --no-fold"));
    assert!(notes.contains("all ranks are simulated: "), "{notes}");
    assert!(!all.contains("simulated"), "what was asked for needs no note: {all}");
    let times = |rows: &[Value]| rows.iter().map(|row| number(row, column)).collect::<Vec<_>>();
    assert_eq!(times(&exact), times(&every), "folding changes nothing");
    let (padded, notes) = answer("fold-padded", &format!("{command}{padded}"));
    let said = "16 of 64 ranks are simulated; the others are identical by symmetry (rotation by 16); exchanges are rounded up by 0.";
    assert!(notes.contains(said), "{notes}");
    for (exact, padded) in exact.iter().zip(&padded) {
        let longer = number(padded, column) / number(exact, column);
        assert!((1.0..1.01).contains(&longer), "{exact} {padded}");
    }
}

#[test]
fn a_collective_is_padded_on_request() {
    let command = "sim collective --ranks 64 --bytes 1MiB,1000004B --cluster ethernet-4";
    flags_say_which_ranks_are_simulated(command, "time_us", ["", " --fold-padded"]);
}

/// A program is padded unless refused, and on all ranks when they are simulated one by one.
#[test]
fn programs_are_padded() {
    let command = "sim predict --model mlp --cluster ethernet-4 --ranks 64 --batch-per-rank 8";
    for padded in ["", " --pad", " --fold-padded", " --pad=true"] {
        flags_say_which_ranks_are_simulated(command, "step_time_s", [" --no-pad", padded]);
    }
    let time = |flags: &str| number(&answer("fold-pad", &format!("{command}{flags}")).0[0], "step_time_s");
    assert_eq!(time(""), time(" --no-fold"), "folding changes nothing");
    assert_eq!(time(" --pad=false"), time(" --no-pad"));
    assert_ne!(time(""), time(" --no-pad"));
}

#[test]
fn contradictory_flags_are_refused() {
    let arguments = ["sim", "collective", "--ranks", "4", "--no-fold", "--fold-padded"];
    let output = lockstep(&folder("fold-both"), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("--no-fold") && errors.contains("one of the two"), "{errors}");
}
