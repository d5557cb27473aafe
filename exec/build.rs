//! Gives the CPU kernels a name: a hash of their sources and how they are optimised, so that a profile knows which ones it has timed.

use std::path::{Path, PathBuf};

fn main() {
    let folder = Path::new("src/device/cpu");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = sources(folder);
    files.sort();
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        let text = std::fs::read(&file).expect("a source file can be read");
        hash = text.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo:rustc-env=LOCKSTEP_KERNELS=kernels-{:08x}-O{level}", (hash ^ hash >> 32) as u32);
}

/// Every file below a folder, but for tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of sources can be read");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths
        .filter(|path| path.file_stem().is_some_and(|stem| stem != "tests"))
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .collect()
}
