//! Tests `exec devices` on any machine, with a GPU or without.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::commands::{folder, lockstep, rows};

/// On any machine: the CPU is listed, each of NVIDIA's libraries is found or reported with the places searched, and
/// GPUs are not offered for training without them.
#[test]
fn devices_are_listed_or_the_reason_is_given() {
    let folder = folder("devices");
    let rows = rows(&folder, "check", &["exec", "devices", "--cuda-libraries", "."]);
    let text = |row: &Value, column: &str| row[column].as_str().expect("text").to_owned();
    assert_eq!((text(&rows[0], "check").as_str(), text(&rows[0], "status").as_str()), ("cpu", "ok"));
    for library in ["driver", "NVRTC", "cuBLAS", "cuBLASLt", "cuDNN", "NCCL"] {
        let of = |row: &&Value| text(row, "check") == format!("cuda {library}");
        let row = rows.iter().find(of).unwrap_or_else(|| panic!("no row of {library}"));
        if text(row, "status") == "missing" {
            assert!(text(row, "found").starts_with("no lib") && !text(row, "cure").is_empty(), "{row}");
        }
    }
    let last = rows.last().expect("rows");
    assert_eq!((text(last, "check").as_str(), text(last, "status").as_str()), ("--device cuda", "missing"));

    let output = lockstep(&folder, &["exec", "devices", "--cuda-libraries", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.starts_with("--cuda-libraries: nowhere: is not a folder"), "{error}");
}

/// A library of each of NVIDIA's names in an environment `.venv` of the folder; loading one creates `loaded`. Returns
/// whether there is a C compiler.
fn planted(folder: &Path) -> bool {
    let package = folder.join(".venv/lib/python3.12/site-packages/nvidia/planted/lib");
    fs::create_dir_all(&package).expect("a folder");
    let loaded = folder.join("loaded").display().to_string();
    let source = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void plant(void) {{ fopen({loaded:?}, \"w\"); }}\n"
    );
    fs::write(folder.join("planted.c"), source).expect("a source");
    let first = package.join("libcuda.so.1");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&first).arg(folder.join("planted.c")).status();
    if !built.is_ok_and(|status| status.success()) {
        return false;
    }
    for name in ["libnvrtc.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"] {
        fs::copy(&first, package.join(name)).expect("a copy");
    }
    true
}

/// Libraries and programs that lie in the present folder are run only if a flag names their folder.
#[test]
fn code_in_the_present_folder_is_not_run() {
    let folder = folder("planted");
    if !planted(&folder) {
        return eprintln!("SKIPPED: no C compiler builds the library to plant");
    }
    let script = format!("#!/bin/sh\n: > {:?}\n", folder.join("loaded"));
    for program in ["mpirun", "ompi_info", "ip", "tc", "unshare"] {
        fs::write(folder.join(program), &script).expect("a script");
        let made = Command::new("chmod").arg("+x").arg(folder.join(program)).status();
        assert!(made.is_ok_and(|status| status.success()), "{program}");
    }
    let commands: [&[&str]; 6] = [
        &["doctor"],
        &["exec", "devices"],
        &["exec", "run", "--model", "mlp", "--steps", "1", "--device", "cuda"],
        &["exec", "profile", "--model", "mlp"],
        &["lab", "up", "sockeye"],
        &["lab", "down"],
    ];
    for environment in [None, Some(".venv"), Some("./.venv")] {
        for arguments in commands {
            let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
            command.args(arguments).current_dir(&folder).env("PATH", ":.:./").env_remove("VIRTUAL_ENV");
            command.envs(environment.map(|of| ("VIRTUAL_ENV", of))).output().expect("the binary runs");
            assert!(!folder.join("loaded").exists(), "{arguments:?} ran what lies in the present folder");
        }
    }
    lockstep(&folder, &["exec", "devices", "--cuda-libraries", ".venv"]);
    assert!(folder.join("loaded").exists(), "the library in the environment that a flag names is loaded");
}
