//! Tests GPUs as ranks' devices over pretend libraries (`tests/gpu/pretend`): whatever the program, the strategy and
//! the order in which streams execute, training gives the same results as elsewhere.
//!
//! Each test is a scene in a process of its own. With `LOCKSTEP_GPU=1` the scenes that do not depend on the pretend
//! libraries run on the GPUs of this machine, in this process.

mod agreement;
mod batches;
mod errors;
mod memory;
mod operations;
mod pictures;
#[path = "../driver/pretend.rs"]
mod pretend;
mod programs;
#[path = "../../../../tests/reference/mod.rs"]
#[expect(dead_code, reason = "here devices are compared on programs without layers that ranks share")]
mod reference;
mod stages;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use lockstep_cuda::{Gpus, LibraryFolders, probe};
use lockstep_exec::device::{Cpus, Devices};
use lockstep_models::{Optimizer, Precision};

/// In a scene's own process, the folder of the libraries.
const SCENE: &str = "LOCKSTEP_RANK_SCENE";
/// Set to run scenes on real GPUs.
const REAL: &str = "LOCKSTEP_GPU";

/// Runs a scene, the test `name`, in a process of its own with `settings` of the pretend libraries; skips it with a
/// loud message where they cannot be built. Scenes that depend on the pretend libraries are not run on a GPU.
fn scene(name: &str, settings: &[(&str, &str)], play: fn()) {
    let pretence = settings.iter().any(|(key, _)| matches!(*key, "PRETEND_FAULT" | "PRETEND_MEMORY_BYTES"));
    if std::env::var_os(REAL).is_some() {
        return if pretence { eprintln!("SKIPPED on a GPU: {name} needs {settings:?}") } else { play() };
    }
    if let Some(folder) = std::env::var_os(SCENE) {
        // Later code that opens the GPUs finds the libraries already loaded.
        let _ = probe(&LibraryFolders::usual().with(Path::new(&folder)));
        return play();
    }
    let Some(folder) = pretend::folder() else { return };
    let itself = std::env::current_exe().expect("a test knows where it is");
    let mut scene = Command::new(itself);
    scene.args([name, "--exact", "--nocapture"]).env(SCENE, folder).env("LOCKSTEP_CACHE", folder.join("cache"));
    let output = scene.envs(settings.iter().copied()).output().expect("a test starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{name}: {}\n{said}{errors}", output.status);
}

/// As `scene`, for a test that is about several GPUs: on a machine with fewer than the scene has, it is skipped.
fn scene_of_several(name: &str, settings: &[(&str, &str)], play: fn()) {
    let several = settings.iter().find(|(key, _)| *key == "PRETEND_DEVICES").and_then(|(_, count)| count.parse().ok());
    let several: usize = several.expect("a scene of several GPUs names their number");
    if std::env::var_os(REAL).is_some() {
        let here = probe(&LibraryFolders::usual()).expect("GPUs").gpus.len();
        if here < several {
            return eprintln!("SKIPPED on a GPU: {name} needs {several} GPUs, and there are {here}");
        }
    }
    scene(name, settings, play);
}

/// The GPUs of the process.
fn gpus(precision: Precision) -> Arc<dyn Devices> {
    Arc::new(Gpus::open(precision).expect("GPUs"))
}

/// The cores of this machine.
fn cpus() -> Arc<dyn Devices> {
    Arc::new(Cpus)
}

/// A learning rate at which nothing diverges.
fn gentle() -> Optimizer {
    Optimizer { learning_rate: 0.02, weight_decay: 1e-3, ..Optimizer::default() }
}

/// |got − expected| ≤ bound · |expected|, as vectors.
fn near(bound: f64, got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(expected).map(|(g, e)| f64::from(*g) - f64::from(*e)));
    let scale = norm(&mut expected.iter().map(|e| f64::from(*e)));
    assert!(error <= bound * scale, "{what}: off by {error:e} of {scale:e}, bound {bound:e}");
}

/// The same bits.
fn same(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let differing = got.iter().zip(expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    assert_eq!(differing, 0, "{differing} of {} differ: {what}", got.len());
}
