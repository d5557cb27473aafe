//! Tests that a run interrupted after any step and resumed from its checkpoint ends like an undisturbed one, to the
//! bit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::{Log, Observer, Order, Run, RunOptions, Snapshot, State, run};
use lockstep_measure::checkpoint::{Checkpoint, claims_behind, claims_from};
use lockstep_models::{Axis, Claim, Decay, Job, Mesh, Moments, Optimizer, Program, UpdateRule, WarmUp, random_model};
use lockstep_topology::InputError;
use proptest::prelude::*;

use crate::commands::{folder, lockstep};

const STEPS: u32 = 7;

/// Rates that depend on the step and on the length of the whole training, with momentum.
fn optimizer() -> Optimizer {
    let warm_up = WarmUp::Gradual { epochs: 1.0, from: Some(0.001) };
    Optimizer { learning_rate: 0.05, decay: Decay::Cosine, warm_up, weight_decay: 1e-3, ..Optimizer::default() }
}

/// A training with its data.
struct Case {
    program: Program,
    data: Dataset,
    optimizer: Optimizer,
    seed: u64,
}

/// Saves the state after this number of steps and ends the run.
struct StopAfter {
    steps: u64,
    kept: Mutex<Option<(u64, State, Log)>>,
}

impl Observer for StopAfter {
    fn saves(&self) -> bool {
        true
    }

    fn order(&self, steps: u64) -> Order {
        if steps == self.steps { Order::SaveAndStop } else { Order::Continue }
    }

    fn keep(&self, Snapshot { steps, state, log }: Snapshot<'_>) -> Result<(), InputError> {
        *self.kept.lock().unwrap() = Some((steps, state.into_owned(), log));
        Ok(())
    }
}

impl Case {
    fn new(job: &Job, seed: u64) -> Case {
        // Every rule, clipped or not, moments of both formats; learners have SGD alone.
        let (rule, clip_norm, moments) = match job.strategy.trains_apart() {
            true => (UpdateRule::Sgd, None, Moments::F32),
            false => {
                let clip_norm = (seed / 3).is_multiple_of(2).then_some(0.5);
                (UpdateRule::ALL[(seed % 3) as usize], clip_norm, Moments::ALL[(seed / 6 % 2) as usize])
            }
        };
        let optimizer = Optimizer { rule, clip_norm, moments, ..optimizer() };
        let job = Job { rule, moments, clips: clip_norm.is_some(), ..job.clone() };
        let program = job.program().unwrap_or_else(|error| panic!("{}: {error}", job.strategy));
        // Three steps per epoch, with some samples left over.
        let samples = program.global_batch() * 3 + 1;
        let (data, _) = Dataset::load(&format!("synthetic:{}", samples * 2), &job.model).unwrap();
        Case { program, data: data.augmented("scale,crop=1,flip".parse().unwrap()), optimizer, seed }
    }

    fn options(&self, steps: u32) -> RunOptions<'_> {
        let stall_limit = Duration::from_secs(20);
        let optimizer = self.optimizer.clone();
        RunOptions { steps, warm_up: 0, seed: self.seed, optimizer, stall_limit, ..RunOptions::default() }
    }

    fn undisturbed(&self, replay: Option<&[Claim]>) -> Run {
        run(&self.program, &self.data, &RunOptions { replay, ..self.options(STEPS) }).unwrap()
    }

    /// A run that saves its state to a file and ends after `stop` steps, at least one step before the regular end.
    fn interrupted(&self, stop: u64, replay: Option<&[Claim]>) -> (Vec<u8>, Run) {
        let observer = StopAfter { steps: stop, kept: Mutex::default() };
        let options = RunOptions { observer: &observer, replay, ..self.options(STEPS) };
        let run = run(&self.program, &self.data, &options).unwrap();
        assert!(run.stopped && run.losses.len() as u64 == stop);
        let (steps, state, log) = observer.kept.into_inner().unwrap().expect("a snapshot");
        let checkpoint = Checkpoint { identity: Default::default(), setting: Default::default(), steps, state, log };
        (checkpoint.to_bytes(self.program.whole_model()).unwrap(), run)
    }

    /// The rest of a run, from a file.
    fn resumed(&self, bytes: &[u8], replay: Option<&[Claim]>) -> (Checkpoint, Run) {
        let before = Checkpoint::from_bytes("checkpoint", bytes).unwrap();
        let left = STEPS - before.steps as u32;
        let replay = replay.map(|claims| claims_from(claims, before.steps));
        let options = RunOptions { start: Some(&before.state), replay: replay.as_deref(), ..self.options(left) };
        let run = run(&self.program, &self.data, &options).unwrap();
        (before, run)
    }
}

fn assert_same(resumed: &Run, whole: &Run, what: &str) {
    assert_eq!(resumed.state_sha256, whole.state_sha256, "{what}");
    assert_eq!(resumed.weights_sha256, whole.weights_sha256, "{what}");
    let tail = &whole.losses[whole.losses.len() - resumed.losses.len()..];
    assert_eq!(resumed.losses, tail, "{what}");
}

fn strategies() -> Vec<&'static str> {
    let split =
        ["hybrid:a", "hybrid:b", "hybrid:c", "model-parallel", "megatron", "model-parallel:zero-1", "megatron:zero-1"];
    let learns = [
        "sma",
        "sma:tau=2",
        "ea-sgd",
        "ea-sgd:tau=2",
        "sma:reference-models",
        "local-sgd:tau=2",
        "local-sgd:tau=2:momentum=0.5",
    ];
    ["ssgd", "zero-1", "zero-2", "zero-3"].into_iter().chain(split).chain(learns).collect()
}

const METHODS: [&str; 5] =
    ["ring", "halving-doubling", "multi-color:2", "parameter-server:1:dedicated", "hierarchical:ring"];

/// A job of one of the strategies that support these sizes.
fn job(strategy: &str, workers: u32, accumulate: u32, method: &str, seed: u64) -> Job {
    let learns = strategy.starts_with("sma") || strategy.starts_with("ea");
    let shares = strategy.starts_with("zero");
    let splits = !learns && !shares && strategy != "ssgd";
    // Strategies that split layers need dense ones, which LeNet has; the others work with any model.
    let model = if splits { lockstep_readers::load_model("lenet").unwrap() } else { random_model(seed, true) };
    let beside = strategy.ends_with(":zero-1");
    let accumulate = if learns || splits && !beside { 1 } else { accumulate };
    let (workers, method) = if splits { (workers.max(2), "ring") } else { (workers, method) };
    let method = if shares { "ring" } else { method };
    // Reference models exist where several devices have several learners each.
    let two_levels = strategy == "sma:reference-models";
    let (workers, learners, method) = if two_levels { (4, 2, "ring") } else { (workers, 1, method) };
    // Two replicas of parts on two devices, or parts of layers that two ranks share.
    let (shared, split) = ([(Axis::Data, 2), (Axis::Device, 2)], [(Axis::Data, workers), (Axis::Tensor, 2)]);
    let axes = if beside { Some(split) } else { Some(shared).filter(|_| shares && workers == 4) };
    let mesh = axes.map(|axes| Mesh::new(&axes).unwrap());
    let workers = mesh.as_ref().map_or(workers, Mesh::ranks);
    let (strategy, algorithm) = (strategy.parse().unwrap(), method.parse().unwrap());
    Job { strategy, accumulate, algorithm, learners, mesh, ..Job::new(Arc::new(model), workers, 3) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn interrupted_and_resumed_runs_equal_uninterrupted_ones(
        strategy in prop::sample::select(strategies()),
        (workers, accumulate) in (1u32..=4, 1u32..=2),
        method in prop::sample::select(METHODS.to_vec()),
        stop in 1u64..u64::from(STEPS),
        seed in any::<u64>(),
    ) {
        let what = format!("{strategy}, {workers} workers x {accumulate}, {method}, seed {seed}");
        let case = Case::new(&job(strategy, workers, accumulate, method, seed), seed);
        let whole = case.undisturbed(None);
        let (bytes, _) = case.interrupted(stop, None);
        let (_, rest) = case.resumed(&bytes, None);
        assert_same(&rest, &whole, &format!("{what}, stopped after {stop}"));
    }

    /// A state of ranks that share it can be resumed by ranks that do not, and vice versa.
    #[test]
    fn shared_state_resumes_unshared_and_vice_versa(
        (shared, whole) in prop::sample::select(vec![
            ("zero-1", "ssgd"), ("zero-2", "ssgd"), ("zero-3", "ssgd"), ("megatron:zero-1", "megatron"), ("model-parallel:zero-1", "model-parallel"),
        ]),
        workers in 2u32..=3,
        back: bool,
        stop in 1u64..u64::from(STEPS),
        seed in any::<u64>(),
    ) {
        let first = job(shared, workers, 1, "ring", seed);
        let second = Job { strategy: whole.parse().unwrap(), ..first.clone() };
        let (first, second) = if back { (second, first) } else { (first, second) };
        let [first, second] = [first, second].map(|job| Case::new(&job, seed));
        let (_, rest) = second.resumed(&first.interrupted(stop, None).0, None);
        assert_same(&rest, &second.undisturbed(None), &format!("{shared} and {whole}, {workers} workers, seed {seed}, stopped after {stop}"));
    }

    #[test]
    fn first_come_learners_resume_by_replay(workers in 2u32..=4, stop in 1u64..u64::from(STEPS), seed in any::<u64>()) {
        let case = Case::new(&job("sma:first-come", workers, 1, "ring", seed), seed);
        let whole = case.undisturbed(None);
        let (bytes, _) = case.interrupted(stop, Some(&whole.claims));
        let (before, rest) = case.resumed(&bytes, Some(&whole.claims));
        assert_same(&rest, &whole, &format!("{workers} workers, stopped after {stop}"));
        // The logs of both parts make up the whole: which learner got what.
        let all = claims_behind(&before.log.claims, before.steps, &rest.claims);
        let served = |claims: &[Claim]| {
            let mut all: Vec<_> = claims.iter().map(|claim| (claim.iteration, claim.micro_batch, claim.rank)).collect();
            all.sort();
            all
        };
        prop_assert_eq!(served(&all), served(&whole.claims));
        // Resuming does not need the log: with new assignments each batch is still taken once.
        let (_, fresh) = case.resumed(&bytes, None);
        prop_assert_eq!(fresh.claims.len() as u32, (STEPS - stop as u32) * workers);
    }
}

/// With another number of ranks no sample of the epoch is repeated: the rest of it is divided again.
#[test]
fn another_number_of_ranks_repeats_no_sample() {
    let model = Arc::new(lockstep_readers::load_model("mlp").unwrap());
    let (data, _) = Dataset::load("synthetic:220", &model).unwrap();
    let of = |workers, batch| Job::new(Arc::clone(&model), workers, batch).program().unwrap();
    let (before, after) = (of(4, 5), of(3, 7));
    let samples_of = |program: &Program, steps: std::ops::Range<u64>| -> Vec<u32> {
        let pools = &program.pools;
        let sampler = lockstep_data::Sampler::new(data.len(), program.batch_per_rank, 1, pools, 9).unwrap();
        let mut all = Vec::new();
        for (step, rank) in steps.flat_map(|step| (0..program.workers()).map(move |rank| (step, rank))) {
            let mut own = Vec::new();
            sampler.micro_batch(step, rank, 0, &mut own);
            all.extend(own);
        }
        all
    };
    let (steps, per_epoch) = (2, data.len() as u64 / 21);
    let observer = StopAfter { steps, kept: Mutex::default() };
    let options =
        RunOptions { steps: 5, seed: 9, optimizer: optimizer(), observer: &observer, ..RunOptions::default() };
    run(&before, &data, &options).unwrap();
    let (_, state, log) = observer.kept.into_inner().unwrap().unwrap();
    assert_eq!(log, Log::default());
    let first = state.position.steps(21, per_epoch);
    let mut seen = samples_of(&before, 0..steps);
    seen.extend(samples_of(&after, first..per_epoch));
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all, "a sample comes twice");
    // 40 samples are done; steps of 21 resume at 42: two samples wait for the next epoch, as at every epoch's end.
    assert_eq!((first, all as u64), (2, 40 + 21 * (per_epoch - 2)));
    let rest =
        run(&after, &data, &RunOptions { steps: 2, seed: 9, start: Some(&state), ..RunOptions::default() }).unwrap();
    assert_eq!(rest.first, 2);
}

/// The row that a run printed.
fn row(output: &std::process::Output) -> serde_json::Value {
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    json["rows"][0].clone()
}

const RUN: [&str; 12] = [
    "exec",
    "run",
    "--model",
    "mlp",
    "--data",
    "synthetic:300",
    "--ranks",
    "2",
    "--batch-per-rank",
    "5",
    "--format",
    "json",
];

#[test]
fn the_command_saves_and_resumes_states_and_refuses_others() {
    let folder = folder("resume");
    let with = |more: &[&str]| lockstep(&folder, &[&RUN[..], more].concat());
    let whole = row(&with(&["--steps", "40"]));
    let kept = ["--checkpoint", "kept", "--checkpoint-every", "8"];
    let first = with(&[&["--steps", "20"][..], &kept].concat());
    assert_eq!(first.status.code(), Some(0));
    // The length may change; this is reported, since a schedule may depend on it.
    let more = [&["--steps", "40", "--resume", "kept"][..], &kept].concat();
    let second = with(&more);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("after 20 steps; now --steps 40 instead of 20"), "{said}");
    let resumed = row(&second);
    for column in ["state_sha256", "weights_sha256", "accuracy", "train_loss", "steps"] {
        assert_eq!(resumed[column], whole[column], "{column}");
    }
    // 40 is the last checkpoint, and 32 the one before it.
    let newest = folder.join("kept/step-0000000040.safetensors");
    assert!(folder.join("kept/step-0000000032.safetensors").exists() && newest.exists());
    let refused = |more: &[&str], code: i32, message: &str| {
        let output = with(more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(message), "{more:?}: {said}");
    };
    refused(&more, 2, "all 40 steps are done");
    refused(&["--steps", "50", "--seed", "2", "--resume", "kept"], 2, "--seed: 2: the checkpoint kept");
    refused(&["--steps", "50", "--learning-rate", "9", "--resume", "kept"], 2, "--recipe");
    refused(&["--steps", "50", "--model", "lenet", "--resume", "kept"], 2, "--model");
    refused(&["--steps", "50", "--strategy", "sma", "--resume", "kept"], 2, "--strategy: sma");
    refused(&["--steps", "50", "--seeds", "2", "--resume", "kept"], 2, "one seed");
    refused(&["--steps", "50", "--resume", "nowhere"], 2, "--resume: nowhere: cannot be read");
    refused(&["--steps", "5", "--checkpoint", "/proc/none"], 2, "--checkpoint: /proc/none: cannot be created");
    refused(&["--steps", "5", "--checkpoint-every", "5"], 2, "--checkpoint");
    // If it is torn, the one before is used, on another number of ranks, and its rate is reported.
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() - 1]).unwrap();
    let three = RUN.map(|word| if word == "2" { "3" } else { word });
    let third = lockstep(&folder, &[&three[..], &["--steps", "60", "--resume", "kept"]].concat());
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(said.contains("step-0000000040.safetensors: is torn"), "{said}");
    assert!(
        said.contains("after 32 steps") && said.contains("--ranks 3 instead of 2") && said.contains("target rate"),
        "{said}"
    );
    assert_eq!(row(&third)["steps"], 60);
}

/// `ulimit -f` counts blocks of 512 or 1,024 bytes; a checkpoint of this model has more than ten of either.
#[test]
fn a_full_disk_keeps_the_last_good_checkpoint() {
    let folder = folder("resume-full");
    let run = |limit: &str, more: &[&str]| {
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$@\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_lockstep")]).args(RUN).args(more);
        command.current_dir(&folder).output().unwrap()
    };
    let kept = ["--checkpoint", "kept", "--checkpoint-every", "4"];
    assert_eq!(run("unlimited", &[&["--steps", "4"][..], &kept].concat()).status.code(), Some(0));
    let output = run("10", &[&["--steps", "8", "--resume", "kept"][..], &kept].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("cannot be written") && said.contains("last good checkpoint is kept/step-0000000004"),
        "{said}"
    );
    let left: Vec<_> =
        std::fs::read_dir(folder.join("kept")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.len() == 2 && left.contains(&"step-0000000004.safetensors".into()), "{left:?}");
    assert_eq!(run("unlimited", &[&["--steps", "8", "--resume", "kept"][..], &kept].concat()).status.code(), Some(0));
}

#[test]
fn an_interrupted_run_saves_its_state_and_resumes_equally() {
    let folder = folder("resume-interrupt");
    // Long enough to be interrupted in progress, on any machine.
    let length = ["--steps", "3000"];
    let whole = row(&lockstep(&folder, &[&RUN[..], &length].concat()));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(RUN).args(length).args(["--checkpoint", "kept", "--checkpoint-every", "1000000"]).current_dir(&folder);
    let job = command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    // The lock is taken after the interrupt handler is installed.
    while std::fs::read_to_string(folder.join("kept/lock")).unwrap_or_default().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A second run is refused while the first one writes.
    let busy = lockstep(&folder, &[&RUN[..], &["--steps", "1", "--checkpoint", "kept"]].concat());
    assert!(String::from_utf8_lossy(&busy.stderr).contains("writes its checkpoints there"));
    let number = job.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &number]).status().unwrap().success());
    let output = job.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("resume with --resume"), "{said}");
    let rest = row(&lockstep(&folder, &[&RUN[..], &length, &["--resume", "kept"]].concat()));
    assert_eq!((&rest["state_sha256"], &rest["steps"]), (&whole["state_sha256"], &whole["steps"]));
}
