//! Compiles the emulator: every kernel in one C++ file, with a check that its parameters are those of the table.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use lockstep_cuda::{KernelEntry, PRELUDE, SourceUnit};

/// Set by `tests/run`: a missing compiler is then a failure.
const REQUIRED: &str = "LOCKSTEP_REQUIRE_EMULATOR";

/// The kernels of `faults.hpp`, after those of the table.
pub(crate) const FAULTS: [&str; 7] = [
    "fault_reads_behind",
    "fault_writes_behind",
    "fault_writes_before",
    "fault_shares_too_much",
    "fault_races",
    "fault_is_misaligned",
    "fault_leaves_a_barrier",
];

/// The compiled program; all tests of the process share it. `None`, with a loud message, where there is no compiler.
pub(crate) fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if let Err(error) = Command::new("g++").arg("--version").output() {
            assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and g++ does not start: {error}");
            eprintln!("SKIPPED: the CUDA kernels' arithmetic was not checked, for g++ does not start: {error}");
            eprintln!("SKIPPED: apt-get install g++, or bash tests/run system kernels");
            return None;
        }
        Some(compile())
    });
    program.as_deref()
}

/// The program's text: shim, prelude, all units with their types, and the loop that runs them in the order of the
/// table.
fn text() -> String {
    let mut text = format!("#include \"serve.hpp\"\n#line 1 \"prelude.cuh\"\n{PRELUDE}");
    SourceUnit::all().into_iter().for_each(|unit| text.push_str(&unit.text()));
    text.push_str("#include \"faults.hpp\"\n#line 1 \"list.cpp\"\nconstexpr emulator::Play KERNELS[] = {\n");
    let kernels = KernelEntry::all().into_iter().map(|entry| format!("{}::{}", entry.unit.namespace(), entry.function));
    for kernel in kernels.chain(FAULTS.map(str::to_owned)) {
        writeln!(text, "    emulator::Bound<&{kernel}>::play,").expect("text grows");
    }
    text.push_str("};\nint main() { emulator::serve(KERNELS, sizeof KERNELS / sizeof *KERNELS); }\n");
    text
}

fn compile() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("kernels.cpp"), folder.join("kernels"));
    std::fs::write(&source, text()).expect("the target folder can be written");
    let output = Command::new("g++")
        .args(["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"])
        // getcontext may return twice, but no fiber here returns to it.
        .args(["-Wno-clobbered"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels")])
        .args([&source, Path::new("-o"), &program])
        .output()
        .expect("g++ starts");
    assert!(output.status.success(), "g++ refuses the kernels:\n{}", String::from_utf8_lossy(&output.stderr));
    program
}
