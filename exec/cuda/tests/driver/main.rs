//! Tests the driver layer over pretend libraries that behave as the real ones are documented (`tests/gpu/pretend`).
//!
//! Each test is a scene that runs in a process of its own, so that lost devices and injected refusals affect no other
//! test. The pretend device executes streams' work late and in a random order, so accidental orderings show.

mod bench;
mod convolutions;
mod copies;
mod failures;
mod graphs;
mod order;
mod pretend;
mod products;
mod programs;

use std::path::Path;
use std::process::Command;

use lockstep_cuda::LibraryFolders;

/// In a scene's own process, the folder of the libraries.
const SCENE: &str = "LOCKSTEP_DRIVER_SCENE";

/// Runs a scene, the test `name`, in a process of its own with `settings` of the pretend libraries; skips it with a
/// loud message where they cannot be built.
fn scene(name: &str, settings: &[(&str, &str)], play: fn(&Path, LibraryFolders)) {
    if let Some(folder) = std::env::var_os(SCENE) {
        let folder = Path::new(&folder);
        return play(folder, LibraryFolders::default().with(folder));
    }
    let Some(folder) = pretend::folder() else { return };
    let itself = std::env::current_exe().expect("a test knows where it is");
    let mut scene = Command::new(itself);
    scene.args([name, "--exact", "--nocapture"]).env(SCENE, folder).envs(settings.iter().copied());
    let output = scene.output().expect("a test starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{name}: {}\n{said}{errors}", output.status);
}
