//! Tests the kernels' programs and their cache.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep_cuda::SourceUnit;
use lockstep_cuda::driver::{Cache, Context, Modules};

use crate::scene;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    all.sort();
    all
}

/// The second run compiles nothing; a truncated file, and one whose program the driver refuses, are written again.
#[test]
fn programs_are_compiled_once() {
    scene("programs::programs_are_compiled_once", &[], |_, places| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("programs-{}", std::process::id()));
        let cache = Cache::at(&folder);
        let context = Context::open(&places, 0).expect("a pretend device");
        let compiled = |cache: &Cache| Modules::load(&context, cache).expect("all kernels").compiled();
        let units = SourceUnit::all().len();
        assert_eq!(compiled(&cache), units);
        assert_eq!(files(&folder).len(), units);
        assert_eq!(compiled(&cache), 0);
        let some = &files(&folder)[0];
        let whole = fs::read(some).expect("a file");
        fs::write(some, &whole[..whole.len() / 2]).expect("a file");
        assert_eq!((compiled(&cache), compiled(&cache)), (1, 0));
        assert_eq!(fs::read(some).expect("a file"), whole);
        // Intact, but another unit's: its kernels are not found.
        fs::copy(&files(&folder)[1], some).expect("a file");
        assert_eq!((compiled(&cache), compiled(&cache)), (1, 0));
        assert_eq!(fs::read(some).expect("a file"), whole);
        assert_eq!(compiled(&Cache::none()), units);
        fs::remove_dir_all(&folder).expect("the folder");
        fs::write(&folder, "no folder").expect("a file");
        assert_eq!((compiled(&cache), compiled(&cache)), (units, units), "it cannot be written");
        fs::remove_file(&folder).expect("the file");
    });
}
