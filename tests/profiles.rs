//! Tests `exec profile` over the pretend libraries, and predictions from its output. These have no real speed, so none
//! is asserted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use lockstep_models::profile::{
    CopyEntry, DirectEntry, GpuEntry, HardwareEntry, Interval, PROFILE_VERSION, Point, Profile, SumEntry,
    TransportEntry, cpu_chain_key,
};
use lockstep_models::{Bucket, Job, Op, Program};

use crate::commands::{folder, number};

/// Set by `tests/run`: a missing compiler is then a failure.
const REQUIRED: &str = "LOCKSTEP_REQUIRE_EMULATOR";

/// The folder of the pretend libraries. `None`, with a loud message, without a compiler.
fn pretend() -> Option<PathBuf> {
    let starts = cfg!(target_arch = "x86_64") && Command::new("g++").arg("--version").output().is_ok();
    if !starts {
        assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and there is no g++ for x86-64");
        eprintln!("SKIPPED: profiles of GPUs were not checked, for there is no g++ for x86-64");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pretend");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/pretend/build");
    let output = Command::new("bash").arg(script).arg(&folder).output().expect("bash starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder)
}

/// Runs the binary over the pretend libraries.
fn run(libraries: &Path, place: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(arguments)
        .current_dir(place)
        .env("LD_LIBRARY_PATH", libraries)
        .env("LOCKSTEP_CACHE", place.join("cache"))
        .envs(environment.iter().copied())
        .output()
        .expect("the binary runs")
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn program(batch: u32) -> Program {
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
    Job { bucket: Bucket::Whole, ..Job::new(model, 1, batch) }.program().expect("a program")
}

#[test]
fn a_pretend_gpu_is_profiled_and_used_in_predictions() {
    let Some(libraries) = pretend() else { return };
    let place = folder("profiles");
    // The largest batch's samples alone, twice, take 200 MB.
    let environment = [("PRETEND_DEVICES", "2"), ("PRETEND_MEMORY_BYTES", "400000000")];
    let arguments = "exec profile --model lenet --batch-per-rank 8,2,32000 --learners 2 --steps 3 --patience 0.1 -o gpu.json --format json";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = run(&libraries, &place, &arguments, &environment);
    assert!(output.status.success(), "{}", error_of(&output));
    let left_out = "batch of 32000 is left out: the device is out of memory";
    assert!(error_of(&output).contains(left_out), "{}", error_of(&output));
    assert!(error_of(&output).contains("measuring layers of lenet"), "{}", error_of(&output));

    let profile = Profile::load(&place.join("gpu.json")).expect("a profile");
    let [gpu] = &profile.gpus[..] else { panic!("both GPUs are of one model") };
    let hardware = gpu.hardware.as_ref().expect("what the host has");
    assert_eq!((hardware.count, hardware.device.as_str(), gpu.at_once), (2, "cuda", 2));
    assert!(hardware.to_peer.is_some());
    let direct = hardware.direct.as_ref().expect("pretend devices reach each other");
    let sums: Vec<(u32, u64)> = hardware.nccl.iter().map(|entry| (entry.ranks, entry.elements)).collect();
    assert_eq!(sums, [(2, 1 << 10), (2, 1 << 15), (2, 1 << 20), (2, 1 << 24)]);
    assert!(hardware.nccl.iter().all(|entry| entry.seconds.value > 0.0), "{:?}", hardware.nccl);
    assert!(direct.latency.value > 0.0 && direct.copy.value > 0.0 && direct.sum.value > 0.0, "{direct:?}");
    // Every phase of every chain, at each batch that fits, once.
    assert!(gpu.compute.iter().all(|entry| entry.samples != 32000));
    for batch in [2, 8] {
        let program = program(batch);
        let wanted: BTreeSet<(String, String)> = program.roles[0]
            .tasks
            .iter()
            .filter_map(|task| match &task.op {
                Op::Compute { chain, phase, .. } => Some((cpu_chain_key(&program, *chain), phase.name().to_owned())),
                _ => None,
            })
            .collect();
        let own = gpu.compute.iter().filter(|entry| entry.samples == batch);
        let found: Vec<(String, String)> = own.map(|entry| (entry.chain.clone(), entry.phase.clone())).collect();
        assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (wanted.len(), wanted));
    }
    let parameters = program(2).model.parameter_elements();
    let updates: Vec<u64> = gpu.update.iter().map(|point| point.elements).collect();
    assert_eq!(updates, [parameters / 64, parameters / 16, parameters / 4, parameters]);
    assert_eq!(gpu.load.iter().map(|point| point.elements).collect::<Vec<_>>(), [2 * 784, 8 * 784]);
    let learners: Vec<(u32, u32)> = gpu.learners.iter().map(|entry| (entry.samples, entry.learners)).collect();
    assert_eq!(learners, [(2, 1), (2, 2), (8, 1), (8, 2)]);
    assert!(gpu.learners.iter().all(|entry| entry.slowdown >= 1.0));
    // A larger batch takes more memory, and no rank less than its plan's activations.
    assert!(gpu.memory[0].planned_bytes < gpu.memory[1].planned_bytes);
    assert!(gpu.memory[0].taken_bytes < gpu.memory[1].taken_bytes);

    // Measured batches, and one in between; a second rank is on the second GPU.
    let arguments = "sim predict --model lenet --batch-per-rank 2,5,8 --ranks 1,2 --profile gpu.json --format json";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = run(&libraries, &place, &arguments, &[]);
    assert!(output.status.success(), "{}", error_of(&output));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| number(row, "step_time_s") > 0.0));
    let notes = answer["notes"].to_string();
    assert!(notes.contains("2 x Pretend") && !notes.contains("was not measured"), "{notes}");
    let alone = |batch: u64| {
        let row = rows.iter().find(|row| row["ranks"] == 1 && row["batch_per_rank"] == batch);
        number(row.expect("a row"), "step_time_s")
    };
    // A measured step is predicted as measured, whatever the marks between its tasks cost.
    for batch in [2, 8] {
        let one = gpu.learners.iter().find(|entry| (entry.samples, entry.learners) == (batch, 1)).expect("one learner");
        let (predicted, measured) = (alone(batch.into()), one.step.value);
        assert!((predicted / measured - 1.0).abs() < 1e-6, "{predicted} for {measured}");
    }
    // Half way between two measured sizes is half way between their times.
    assert!((alone(5) - (alone(2) + alone(8)) / 2.0).abs() < 1e-6, "{} {} {}", alone(2), alone(5), alone(8));
}

/// A hand-made host of two GPUs, with the given message times.
fn by_hand(direct: Option<DirectEntry>, nccl: Vec<SumEntry>) -> Profile {
    let exact = Interval::exact;
    let copy = |latency, byte| CopyEntry { latency: exact(latency), byte: exact(byte) };
    let hardware = HardwareEntry {
        count: 2,
        device: "cuda".to_owned(),
        multiprocessors: 100,
        memory_bytes: 1 << 30,
        flops_s: 1e13,
        launch: exact(2e-6),
        mark: exact(1e-6),
        to_device: copy(8e-6, 5e-11),
        to_host: copy(8e-6, 5e-11),
        within: copy(4e-6, 1e-12),
        to_peer: Some(copy(6e-6, 1e-11)),
        direct,
        nccl,
    };
    let point = Point { elements: 1000, seconds: exact(1e-5), slowdown: 1.0 };
    let gpu = GpuEntry {
        model: "a GPU".to_owned(),
        at_once: 1,
        compute: Vec::new(),
        update: vec![point.clone()],
        load: vec![point],
        hardware: Some(hardware),
        learners: Vec::new(),
        memory: Vec::new(),
    };
    let figures = [3e-6, 1e-6, 1e-10, 2e-10].map(exact);
    let [latency, overhead, copy, sum] = figures;
    Profile {
        decode: Vec::new(),
        moves: Vec::new(),
        storage: None,
        version: PROFILE_VERSION,
        host: "host".to_owned(),
        cpu: "a CPU".to_owned(),
        cores: 8,
        date: "2026-01-01T00:00:00Z".to_owned(),
        command: "by hand".to_owned(),
        kernels: String::new(),
        side_by_side: 16,
        pulse_s: None,
        flops_per_core_s: 1e11,
        memory_bandwidth: 1e11,
        compute: Vec::new(),
        update: Vec::new(),
        formulas: Vec::new(),
        load: Vec::new(),
        memory: TransportEntry {
            latency,
            wake: None,
            overhead,
            copy,
            cold: None,
            sum,
            slowdown: 1.0,
            repeated: Vec::new(),
        },
        mpi: None,
        gpus: vec![gpu],
        noise: None,
        disturbed: Vec::new(),
    }
}

#[test]
fn direct_messages_are_predicted_where_runs_send_them() {
    let place = folder("profiles-direct");
    let (latency, copy, sum) = (2e-5, 1e-11, 1.5e-11);
    let exact = Interval::exact;
    let direct = DirectEntry { latency: exact(latency), copy: exact(copy), sum: exact(sum) };
    std::fs::write(place.join("direct.json"), by_hand(Some(direct), Vec::new()).to_json()).expect("a file");
    // An older profile does not have them.
    let before = by_hand(None, Vec::new()).to_json();
    let before = before.replace(",\n        \"direct\": null,\n        \"nccl\": []", "");
    assert!(!before.contains("direct") && !before.contains("nccl"), "{before}");
    std::fs::write(place.join("before.json"), before).expect("a file");
    let time = |profile: &str, transport: &str, environment: &[(&str, &str)]| {
        let arguments = format!(
            "sim collective --collective allreduce --algorithm ring --ranks 2 --bytes 64KiB --transport {transport} --profile {profile} \
             --format json"
        );
        let output = run(Path::new(""), &place, &arguments.split(' ').collect::<Vec<_>>(), environment);
        assert!(output.status.success(), "{}", error_of(&output));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        number(&answer["rows"][0], "time_us") * 1e-6
    };
    // Half of it is sent and summed, then sent and copied; the host's threads synchronize for both in 3 us.
    let half = 32768.0;
    let expected = 2.0 * (3e-6 + latency) + half * (sum + copy);
    let straight = time("direct.json", "threads", &[]);
    assert!((straight / expected - 1.0).abs() < 1e-6, "{straight} for {expected}");
    // Up one bus, as a message of host memory, down the other, at the speed of the slowest part; then the roofline's
    // sum.
    let staged = time("before.json", "threads", &[]);
    let least = 2.0 * (3e-6 + 16e-6) + 2.0 * half * 1e-10;
    assert!(staged >= least, "{staged} for at least {least}");
    assert_eq!(time("direct.json", "mpi", &[]), staged);
    assert_eq!(time("direct.json", "threads", &[("LOCKSTEP_NO_PEERS", "1")]), staged);
}

#[test]
fn sums_of_nccl_take_the_measured_time() {
    let place = folder("profiles-nccl");
    let sum = |elements, seconds| SumEntry { ranks: 2, elements, seconds: Interval::exact(seconds) };
    let profile = by_hand(None, vec![sum(1 << 10, 1e-5), sum(1 << 20, 1e-4)]);
    std::fs::write(place.join("gpu.json"), profile.to_json()).expect("a file");
    std::fs::write(place.join("without.json"), by_hand(None, Vec::new()).to_json()).expect("a file");
    let answer = |arguments: &str| -> serde_json::Value {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = run(Path::new(""), &place, &arguments, &[]);
        assert!(output.status.success(), "{}", error_of(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let time = |profile: &str, algorithm: &str, bytes: u64, more: &str| {
        let answer = answer(&format!(
            "sim collective --collective allreduce --algorithm {algorithm} --ranks 2 --bytes {bytes} --profile {profile} --format json{more}"
        ));
        number(&answer["rows"][0], "time_us") * 1e-6
    };
    // As measured, and half way between; folded or not.
    for more in ["", " --no-fold"] {
        assert!((time("gpu.json", "library:nccl", 4 << 10, more) / 1e-5 - 1.0).abs() < 1e-6);
        assert!((time("gpu.json", "library:nccl", 4 << 20, more) / 1e-4 - 1.0).abs() < 1e-6);
        let between = time("gpu.json", "library:nccl", 2 * ((1 << 10) + (1 << 20)), more);
        assert!((between / 5.5e-5 - 1.0).abs() < 1e-6, "{between}");
    }
    // Without a measurement it is priced as a ring, and the ring's price is unchanged.
    let ring = time("without.json", "ring", 4 << 20, "");
    assert_eq!(
        (time("without.json", "library:nccl", 4 << 20, ""), time("gpu.json", "ring", 4 << 20, "")),
        (ring, ring)
    );

    // A step whose only bucket is ready at its end is longer by that.
    let step = |algorithm: &str, ranks: u32| {
        let arguments = format!(
            "sim predict --model lenet --batch-per-rank 8 --bucket whole --algorithm {algorithm} --ranks {ranks} --profile gpu.json \
             --format json"
        );
        number(&answer(&arguments)["rows"][0], "step_time_s")
    };
    let share = (program(8).model.parameter_elements() - (1 << 10)) as f64 / ((1 << 20) - (1 << 10)) as f64;
    let (alone, together) = (step("ring", 1), step("library:nccl", 2));
    assert!((together - alone - (1e-5 + share * 9e-5)).abs() < 1e-9, "{together} beside {alone}");
}

#[test]
fn batches_of_which_none_fits_are_refused() {
    let Some(libraries) = pretend() else { return };
    let place = folder("profiles-full");
    let memory = [("PRETEND_MEMORY_BYTES", "400000000")];
    let arguments =
        "exec profile --model lenet --batch-per-rank 32000 --learners 1 --steps 2 --patience 0.1 -o none.json";
    let output = run(&libraries, &place, &arguments.split(' ').collect::<Vec<_>>(), &memory);
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.lines().last().is_some_and(|line| line.starts_with("--batch-per-rank: 32000: none of them fits")),
        "{error}"
    );
    assert!(!place.join("none.json").exists());
}

/// A profile names a GPU as the driver does, a cluster as the catalogue does.
#[test]
fn a_profile_of_a_gpu_is_used_in_other_clusters() {
    let place = folder("profiles-elsewhere");
    let mut profile = by_hand(None, Vec::new());
    profile.gpus[0].model = "NVIDIA H100 80GB HBM3".to_owned();
    std::fs::write(place.join("gpu.json"), profile.to_json()).expect("a file");
    let answer = |cluster: &str, more: &str| {
        let arguments =
            format!("sim predict --model lenet --batch-per-rank 8 --ranks 1 --cluster {cluster} --format json{more}");
        let output = run(Path::new(""), &place, &arguments.split(' ').collect::<Vec<_>>(), &[]);
        assert!(output.status.success(), "{}", error_of(&output));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (number(&answer["rows"][0], "step_time_s"), answer["notes"].to_string())
    };
    let (step_s, notes) = answer("dgx-h100:1", " --profile gpu.json");
    assert!(notes.contains("of CPUs and of h100-sxm were measured"), "{notes}");
    assert_ne!(step_s, answer("dgx-h100:1", "").0);
    let (step_s, notes) = answer("dgx-a100:1", " --profile gpu.json");
    assert!(notes.contains("add driver_name = "), "{notes}");
    assert_eq!(step_s, answer("dgx-a100:1", "").0);
}
