//! Tests sums among GPUs over pretend libraries (`tests/gpu/pretend`): ranks on several GPUs train alike whatever path
//! gradients take.
//!
//! Each test runs in a process of its own, as the driver's tests do: the libraries read their settings once.

#[path = "../driver/pretend.rs"]
mod pretend;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_cuda::Gpus;
use lockstep_data::Dataset;
use lockstep_exec::device::{Cpus, Devices, Nulls};
use lockstep_exec::{ExecError, Run, RunOptions, run};
use lockstep_models::memory::{BufferAddresses, Reuse};
use lockstep_models::{Bucket, Buffer, Job, Precision, Program, random_model};

/// In a scene's own process.
const SCENE: &str = "LOCKSTEP_LINKS_SCENE";

/// Runs a scene, the test `name`, in a process of its own with `settings` of the pretend libraries, found as a user's
/// are; skips it with a loud message where they cannot be built.
fn scene(name: &str, settings: &[(&str, &str)], play: fn()) {
    if std::env::var_os(SCENE).is_some() {
        return play();
    }
    let Some(folder) = pretend::folder() else { return };
    let itself = std::env::current_exe().expect("a test knows where it is");
    let mut scene = Command::new(itself);
    scene.args([name, "--exact", "--nocapture"]).env(SCENE, "1").env("LD_LIBRARY_PATH", folder);
    scene.env("LOCKSTEP_CACHE", folder.join("cache")).envs(settings.iter().copied());
    let output = scene.output().expect("a test starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{name} {settings:?}: {}\n{said}{errors}",
        output.status
    );
}

/// Trains a small model for three steps, with its gradients in several exchanges by `algorithm`.
fn train(algorithm: &str, ranks: u32, devices: impl Devices + 'static) -> Result<Run, ExecError> {
    train_by("ssgd", algorithm, ranks, devices)
}

fn program_of(strategy: &str, algorithm: &str, ranks: u32) -> Program {
    let model = Arc::new(random_model(5, true));
    let (strategy, algorithm) = (strategy.parse().expect("a strategy"), algorithm.parse().expect("a known algorithm"));
    let job = Job { strategy, algorithm, bucket: Bucket::Layer, ..Job::new(model, ranks, 4) };
    job.program().expect("a program")
}

fn train_by(strategy: &str, algorithm: &str, ranks: u32, devices: impl Devices + 'static) -> Result<Run, ExecError> {
    let program = program_of(strategy, algorithm, ranks);
    let (data, _) = Dataset::load("synthetic:200", &program.model).expect("data");
    run(
        &program,
        &data,
        &RunOptions {
            steps: 3,
            devices: Arc::new(devices),
            stall_limit: Duration::from_secs(4),
            ..RunOptions::default()
        },
    )
}

fn gpus() -> Gpus {
    Gpus::open(Precision::F32).expect("the pretend GPUs")
}

/// The distance of two runs' parameters, relative to the largest of them.
fn distance(one: &Run, other: &Run) -> f32 {
    let largest = one.parameters.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let apart = one.parameters.iter().zip(&other.parameters).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, f32::max) / largest
}

fn count() -> u32 {
    std::env::var("PRETEND_DEVICES").expect("a scene has settings").parse().expect("a number")
}

/// NCCL's sums have their own reduction order, so the last bits may differ.
#[test]
fn nccl_sums_equal_those_of_the_ring() {
    for (devices, seed) in [("2", "1"), ("2", "2"), ("4", "3"), ("4", "4")] {
        let settings = [("PRETEND_DEVICES", devices), ("PRETEND_SEED", seed)];
        scene("nccl_sums_equal_those_of_the_ring", &settings, || {
            let ring = train("ring", count(), gpus()).expect("a run");
            let nccl = train("library:nccl", count(), gpus()).expect("a run");
            assert!(distance(&ring, &nccl) < 1e-6, "{}", distance(&ring, &nccl));
            for (step, (a, b)) in ring.losses.iter().zip(&nccl.losses).enumerate() {
                assert!((a - b).abs() < 1e-6 * a.abs(), "step {step}: {a} and {b}");
            }
            // A run must have trained, or nothing was summed.
            let alone = train("ring", 1, gpus()).expect("a run");
            assert!(distance(&ring, &alone) > 1e-4, "{}", distance(&ring, &alone));
        });
    }
}

/// Copies and sums on the devices use the host's order and give its bits, whatever the algorithm, and whether ranks
/// share a GPU or not.
#[test]
fn direct_messages_give_the_bits_of_the_host() {
    // Other orders of streams are left to a thorough run.
    let all = [("2", "3"), ("4", "4"), ("1", "1"), ("2", "2")];
    let count = if std::env::var_os("LOCKSTEP_THOROUGH").is_some() { all.len() } else { 2 };
    for (devices, seed) in &all[..count] {
        let settings = [("PRETEND_DEVICES", *devices), ("PRETEND_SEED", *seed)];
        scene("direct_messages_give_the_bits_of_the_host", &settings, || {
            for (strategy, algorithm, ranks) in [
                ("ssgd", "ring", 4),
                ("ssgd", "ring", 3),
                ("ssgd", "halving-doubling", 3),
                ("ssgd", "tree:2", 4),
                ("ssgd", "multi-color:2", 4),
                ("ssgd", "direct", 2),
                ("ssgd", "parameter-server:1:dedicated", 2),
                ("sma", "ring", 4),
            ] {
                let case = format!("{strategy} by {algorithm} on {ranks}");
                let before = gpus().direct_messages();
                let staged = train_by(strategy, algorithm, ranks, gpus().by_host()).expect(&case);
                assert_eq!(gpus().direct_messages(), before, "{case}");
                let direct = train_by(strategy, algorithm, ranks, gpus()).expect(&case);
                // A server's sums are in host memory.
                let all = staged.traffic.iter().flatten().map(|sent| sent.messages).sum::<u64>();
                let expected = if algorithm.ends_with("dedicated") { 0 } else { all };
                assert_eq!((gpus().direct_messages() - before, all > 0), (expected, true), "{case}");
                assert_eq!(direct.losses, staged.losses, "{case}");
                assert_eq!(direct.state_sha256, staged.state_sha256, "{case}");
            }
        });
    }
}

/// Buffers have page-locked copies on the host only where messages use them.
#[test]
fn only_buffers_in_messages_have_copies_on_the_host() {
    scene("only_buffers_in_messages_have_copies_on_the_host", &[("PRETEND_DEVICES", "2")], || {
        // SAFETY: the library is loaded, as the GPUs' own, and has this function.
        let most = || unsafe {
            let library = libloading::Library::new("libpretend.so").expect("the pretend library");
            library.get::<unsafe extern "C" fn() -> u64>(b"pretend_most_pinned\0").expect("its function")()
        };
        train_by("ssgd", "ring", 4, gpus()).expect("a run");
        let direct = most();
        train_by("ssgd", "ring", 4, gpus().by_host()).expect("a run");
        let program = program_of("ssgd", "ring", 4);
        let elements = BufferAddresses::of_role(&program, (&program.roles[0], 0), Reuse::default())
            .of(Buffer::Gradients)
            .elements() as u64;
        let gradients = (4 * elements).next_multiple_of(256);
        assert_eq!((direct > 0, most() - direct), (true, 4 * gradients));
    });
}

/// A sum that never ends is aborted and frees its streams; otherwise the run would not end.
#[test]
fn a_stalled_sum_ends_the_run() {
    let settings = [("PRETEND_DEVICES", "2"), ("PRETEND_FAULT", "stall:5")];
    scene("a_stalled_sum_ends_the_run", &settings, || {
        let began = Instant::now();
        let failure = train("library:nccl", 2, gpus()).err().expect("it cannot end well");
        let ExecError::Stall { report, .. } = &failure else { panic!("{failure}") };
        assert!(report.contains("library:nccl"), "{report}");
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    });
}

#[test]
fn unsupported_nccl_jobs_are_refused_with_the_cure() {
    fn refused(ranks: u32, devices: impl Devices + 'static) -> String {
        match train("library:nccl", ranks, devices) {
            Err(ExecError::Input(error)) => error.to_string(),
            other => panic!("not refused: {:?}", other.err()),
        }
    }
    assert!(refused(2, Cpus).contains("--device cuda"));
    assert!(refused(2, Nulls).contains("--device cuda"));
    scene("unsupported_nccl_jobs_are_refused_with_the_cure", &[("PRETEND_DEVICES", "2")], || {
        let refusal = refused(3, gpus());
        assert!(refusal.contains("3 ranks on 2 GPUs") && refusal.contains("ring"), "{refusal}");
    });
}
