//! Names the commit that a release is built from, for `lockstep --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=LOCKSTEP_VERSION={}", version());
}

/// `0.1.0 (a35bdad8, 2026-11-26)`; without commit in debug builds, which would be rebuilt with each, and outside of a
/// git checkout.
fn version() -> String {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    if std::env::var("PROFILE").as_deref() != Ok("release") || !Path::new(".git").exists() {
        return version;
    }
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let shown = Command::new("git").args(["log", "-1", "--format=%h, %cs"]).output();
    let commit =
        shown.ok().filter(|shown| shown.status.success()).and_then(|shown| String::from_utf8(shown.stdout).ok());
    commit.map_or(version.clone(), |commit| format!("{version} ({})", commit.trim()))
}
