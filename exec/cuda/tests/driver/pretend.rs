//! Builds the pretend libraries, once for all scenes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set by `tests/run`: a missing compiler is then a failure.
const REQUIRED: &str = "LOCKSTEP_REQUIRE_EMULATOR";

/// Their folder. `None`, with a loud message, where there is no compiler.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        if cfg!(not(target_arch = "x86_64")) {
            eprintln!("SKIPPED: what talks to CUDA's libraries was not checked, for the pretend ones are for x86-64");
            return None;
        }
        if let Err(error) = Command::new("g++").arg("--version").output() {
            assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and g++ does not start: {error}");
            eprintln!("SKIPPED: what talks to CUDA's libraries was not checked, for g++ does not start: {error}");
            eprintln!("SKIPPED: apt-get install g++, or bash tests/run system kernels");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pretend");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/gpu/pretend/build");
        let output = Command::new("bash").arg(script).arg(&folder).output().expect("bash starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the pretend libraries cannot be built:\n{errors}");
        Some(folder)
    });
    folder.as_deref()
}
