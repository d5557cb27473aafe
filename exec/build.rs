//! Names the CPU kernels by a hash of their sources and optimisation level, so that a profile knows which kernels it
//! has timed.

use std::path::{Path, PathBuf};

fn main() {
    let parts = ["src/device/cpu.rs", "src/device/cpu", "src/simd.rs", "src/simd", "src/workspace.rs"].map(Path::new);
    parts.iter().for_each(|part| println!("cargo:rerun-if-changed={}", part.display()));
    let mut files: Vec<PathBuf> = parts.into_iter().flat_map(sources).collect();
    files.sort();
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        // Other comments are no other kernels.
        let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).flat_map(str::bytes);
        hash = code.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo:rustc-env=LOCKSTEP_KERNELS=kernels-{:08x}-O{level}", (hash ^ hash >> 32) as u32);
}

/// Every file below a folder except tests, or the file itself.
fn sources(part: &Path) -> Vec<PathBuf> {
    if part.is_file() {
        return vec![part.to_owned()];
    }
    let entries = std::fs::read_dir(part).expect("a folder of sources can be read");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let paths = paths.filter(|path| path.file_stem().is_some_and(|stem| stem != "tests"));
    paths.flat_map(|path| sources(&path)).collect()
}
