//! Compiles every kernel by NVRTC for each architecture that CUDA 13 supports, on a machine without a GPU.

use std::path::Path;

use lockstep_cuda::table::ReluForward;
use lockstep_cuda::{Bf16, KernelLaunch, LibraryFolders, Nvrtc, SourceUnit};

/// Set by `tests/run`: a missing compiler is then a failure.
const REQUIRED: &str = "LOCKSTEP_REQUIRE_NVRTC";
/// A folder that holds the library, where it is not in `.venv`.
const FOLDER: &str = "LOCKSTEP_NVRTC";

/// The compiler; `None`, with a loud message, where there is none.
fn nvrtc() -> Option<Nvrtc> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut places = LibraryFolders::usual().with_python(&workspace.join(".venv"));
    if let Some(folder) = std::env::var_os(FOLDER) {
        places = places.with(Path::new(&folder));
    }
    match Nvrtc::load(&places) {
        Ok(nvrtc) => Some(nvrtc),
        Err(missing) => {
            assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set: {missing}");
            eprintln!("SKIPPED: the CUDA kernels were not compiled: {missing}");
            eprintln!("SKIPPED: bash tests/run python kernels, or {FOLDER} with the folder that holds the library");
            None
        }
    }
}

/// Every unit compiles, and contains its kernels.
fn compiled_for(architecture: i32) {
    let Some(nvrtc) = nvrtc() else { return };
    eprintln!("{}", nvrtc.describe().expect("it has a version"));
    let known = nvrtc.architectures().expect("it has architectures");
    assert!(known.contains(&architecture), "sm_{architecture} is none of {known:?}");
    for unit in SourceUnit::all() {
        let program = nvrtc.compile(unit, architecture).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(program[..4], *b"\x7fELF", "{unit} for sm_{architecture}");
        for entry in unit.entries() {
            let name = format!(".text.{}\0", entry.function);
            let has = program.windows(name.len()).any(|part| part == name.as_bytes());
            assert!(has, "no {} in {unit} for sm_{architecture}", entry.function);
        }
    }
}

/// As [`compiled_for`], in a thorough run.
fn thoroughly_compiled_for(architecture: i32) {
    if std::env::var_os("LOCKSTEP_THOROUGH").is_some() {
        compiled_for(architecture);
    }
}

// One test each, so that they share the cores. CUDA 13 has dropped older architectures. The oldest lacks most of what a
// kernel may use; the others are compiled in a thorough run.

#[test]
fn every_kernel_is_compiled_for_turing() {
    compiled_for(75);
}

#[test]
fn every_kernel_is_compiled_for_ampere() {
    thoroughly_compiled_for(80);
}

#[test]
fn every_kernel_is_compiled_for_hopper() {
    thoroughly_compiled_for(90);
}

#[test]
fn every_kernel_is_compiled_for_blackwell() {
    thoroughly_compiled_for(100);
}

/// A compile error says where and why; so do an architecture that CUDA 13 has dropped and a wrong table.
#[test]
fn compile_errors_state_the_reason() {
    let Some(nvrtc) = nvrtc() else { return };
    let refusal = |text: &str, architecture| {
        let answer = nvrtc.compile_text("broken.cu", text, architecture);
        answer.expect_err("it cannot be compiled").to_string()
    };
    let error = refusal("extern \"C\" __global__ void broken() {\n    undefined();\n}\n", 90);
    assert!(error.starts_with("NVRTC: broken.cu for sm_90: broken.cu(2): error: "), "{error}");
    let error = refusal("extern \"C\" __global__ void old() {}\n", 60);
    assert!(error.starts_with("NVRTC: broken.cu for sm_60: ") && error.contains("gpu-architecture"), "{error}");
    let right = ReluForward::<Bf16>::ENTRY.unit.program();
    let check = |first: &str| format!("decltype(&relu_forward_bf16), void (*)({first},");
    let wrong = right.replace(&check("const u16*"), &check("const float*"));
    assert_ne!(right, wrong);
    let error = refusal(&wrong, 90);
    assert!(error.contains("static assertion failed") && error.contains("relu_forward_bf16"), "{error}");
}
