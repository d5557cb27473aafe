//! Tests learners that average their models: equal to Koliousis et al. 2019, Alg. 1, to the bit, and never equal to
//! S-SGD.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::{Evaluations, OnLoad, Run, RunOptions, run};
use lockstep_models::{Bucket, Decay, Job, Optimizer, Program, Target, random_model};
use lockstep_topology::Algorithm;
use proptest::prelude::*;

use crate::commands::{folder, lockstep, number, rows};
use crate::equivalence::buckets;
use crate::reference;
use crate::reference_models::two_by_two;

pub(crate) const STEPS: u32 = 4;

pub(crate) fn optimizer() -> Optimizer {
    Optimizer { learning_rate: 0.05, ..Optimizer::default() }
}

pub(crate) fn job(strategy: &str, learners: u32) -> Job {
    let strategy = strategy.parse().unwrap();
    Job { strategy, bucket: Bucket::Whole, ..Job::new(Arc::new(random_model(3, true)), learners, 3) }
}

/// Data for at least `iterations` iterations.
pub(crate) fn data(program: &Program, iterations: u64) -> Dataset {
    Dataset::load(&format!("synthetic:{}", program.global_batch() * iterations * 2), &program.model).unwrap().0
}

pub(crate) fn train(job: &Job, steps: u32, optimizer: &Optimizer) -> Run {
    let program = job.program().unwrap();
    let options = RunOptions { steps, warm_up: 0, seed: 7, optimizer: optimizer.clone(), ..RunOptions::default() };
    run(&program, &data(&program, 4), &options).unwrap()
}

/// `:key=value` of a strategy, or an empty string.
pub(crate) fn setting(key: &str, value: Option<f64>) -> String {
    value.map_or(String::new(), |value| format!(":{key}={value}"))
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

pub(crate) fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn learners_equal_the_flat_algorithm(
        model in 0u64..200,
        with_batch_norm: bool,
        learners in 1u32..=8,
        batch_per_rank in 2u32..=4,
        tau in 1u32..=3,
        mu in prop_oneof![Just(None), Just(Some(0.0)), (0.1f64..0.95).prop_map(Some)],
        alpha in prop_oneof![Just(None), (0.05f64..1.0).prop_map(Some)],
        bucket in buckets(),
        algorithm in prop::sample::select(vec![
            "ring", "halving-doubling", "binomial-tree", "multi-color:2", "parameter-server:1",
            "parameter-server:1:dedicated", "hierarchical:ring",
        ]),
        first_node in 1u32..=8,
        concurrent_exchanges in 1u32..=3,
        decays: bool,
        assignment in prop::sample::select(vec!["", ":first-come", ":round-robin"]),
        fuse: bool,
        pad: bool,
        seed: u64,
    ) {
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let servers = if learners > 1 { algorithm.servers() } else { 0 };
        let node = first_node.min(learners + servers);
        let rest = learners + servers - node;
        let node_sizes = if rest == 0 { vec![node] } else { vec![node, rest] };
        let one_after_the_other = format!("sma:tau={tau}{}{}", setting("momentum", mu), setting("alpha", alpha));
        let strategy = format!("{one_after_the_other}{assignment}");
        let job = Job {
            strategy: strategy.parse().unwrap(),
            bucket, algorithm, concurrent_exchanges, fuse, pad, node_sizes: Some(node_sizes),
            ..Job::new(Arc::new(random_model(model, with_batch_norm)), learners, batch_per_rank)
        };
        let decay = if decays { Decay::Every { factor: 0.5, epochs: 0.5 } } else { Decay::Constant };
        let optimizer = Optimizer { learning_rate: 0.002, decay, weight_decay: 1e-3, ..optimizer() };
        let program = job.program().unwrap();
        let data = data(&program, 1);
        let stall_limit = Duration::from_secs(10);
        let options =
            RunOptions { steps: STEPS, warm_up: 0, seed, optimizer: optimizer.clone(), stall_limit, ..RunOptions::default() };
        let done = run(&program, &data, &options).unwrap();
        let expected = reference::train_as_claimed(&program, &data, STEPS, seed, &optimizer, &done.claims).unwrap();
        prop_assert!(bits(&done.parameters) == bits(&expected), "{job:?}");
        prop_assert_eq!(done.claims.len() as u32, if assignment.is_empty() { 0 } else { STEPS * learners * tau });
        // Round-robin gives each its own batches, only later.
        if assignment == ":round-robin" {
            prop_assert!(done.claims.iter().zip((0..learners).cycle()).all(|(claim, rank)| claim.rank == rank));
            let own = Job { strategy: one_after_the_other.parse().unwrap(), ..job };
            let own = run(&own.program().unwrap(), &data, &options).unwrap();
            prop_assert_eq!(&own.state_sha256, &done.state_sha256);
        }
        // Replaying the claims gives the same run.
        if !assignment.is_empty() {
            let again = run(&program, &data, &RunOptions { replay: Some(&done.claims), ..options }).unwrap();
            prop_assert_eq!((again.weights_sha256, again.state_sha256), (done.weights_sha256, done.state_sha256));
        }
    }
}

/// Without momentum SMA is EA-SGD (Koliousis et al. 2019, §5.5); with momentum it is not.
#[test]
fn ea_sgd_is_sma_without_momentum() {
    let sha = |strategy: &str| train(&job(strategy, 3), STEPS, &optimizer()).state_sha256;
    assert_eq!(sha("sma:momentum=0"), sha("ea-sgd"));
    assert_eq!(sha("sma:momentum=0:tau=2"), sha("ea-sgd:tau=2"));
    assert_eq!(sha("sma"), sha("sma:momentum=0.9"), "the optimizer's momentum is the average model's");
    assert_ne!(sha("sma"), sha("ea-sgd"));
}

/// Alg. 1 with one learner and α = 1/k = 1 is not SGD: w and z are swapped, w_{n+1} = w_{n−1} − γ·∇ℓ(w_n). So for two
/// steps z is its initial value, and then the result of one SGD step.
#[test]
fn one_learner_steps_from_the_model_before_the_last() {
    let sgd = Optimizer { momentum: 0.0, ..optimizer() };
    let z = |steps| train(&job("ea-sgd", 1), steps, &sgd).parameters;
    let begin = run_of_nothing();
    assert_eq!(bits(&z(1)), bits(&begin), "the first correction is zero");
    let one = train(&job("ssgd", 1), 1, &sgd).parameters;
    assert!(largest_difference(&z(2), &one) < 1e-6, "z is the model that the first step left");
    let two = train(&job("ssgd", 1), 2, &sgd).parameters;
    assert!(largest_difference(&z(3), &two) > 1e-4, "the second step was taken from the model before");
}

/// The initial parameters of training.
pub(crate) fn run_of_nothing() -> Vec<f32> {
    let still = Optimizer { learning_rate: 0.0, momentum: 0.0, ..optimizer() };
    train(&job("ssgd", 1), 1, &still).parameters
}

/// Learners do not equal gradient accumulation: the average of models trained separately is not the model trained on
/// all batches, with any number of learners and at any α.
#[test]
fn learners_do_not_equal_accumulated_gradients() {
    for (learners, strategy) in [(2, "ea-sgd"), (4, "ea-sgd"), (4, "ea-sgd:alpha=1"), (4, "sma:momentum=0.9")] {
        let (apart, together) = (job(strategy, learners), job("ssgd", learners));
        let optimizer = Optimizer { momentum: if strategy.starts_with("sma") { 0.9 } else { 0.0 }, ..optimizer() };
        let (apart, together) = (train(&apart, 8, &optimizer).parameters, train(&together, 8, &optimizer).parameters);
        let (moved, differ) = (largest_difference(&together, &run_of_nothing()), largest_difference(&apart, &together));
        assert!(differ > 0.01 * moved, "{strategy}, {learners} learners: {differ} of {moved}");
    }
}

/// A learner without others takes all batches in order, however they are assigned.
#[test]
fn one_learner_receives_all_batches_in_order() {
    let sgd = Optimizer { momentum: 0.0, ..optimizer() };
    let run = |strategy| train(&job(strategy, 1), 5, &sgd).parameters;
    assert_eq!(bits(&run("ea-sgd:tau=2")), bits(&run("ea-sgd:tau=2:first-come")));
}

/// A training split in two gives the same result, also if split before there is a previous average model.
#[test]
fn a_state_resumes_to_the_same_training() {
    let jobs = ["sma", "ea-sgd:tau=2", "ssgd"].map(|strategy| job(strategy, 3));
    for job in jobs.into_iter().chain([two_by_two("sma:reference-models"), two_by_two("sma")]) {
        let strategy = job.strategy.to_string();
        let program = job.program().unwrap();
        let data = data(&program, 2);
        let steps = |steps, start| {
            let options =
                RunOptions { steps, warm_up: 0, seed: 5, optimizer: optimizer(), start, ..RunOptions::default() };
            run(&program, &data, &options).unwrap()
        };
        let (whole, first) = (steps(7, None), steps(3, None));
        let state = first.state();
        assert_eq!(state.position.epoch, 0);
        let second = steps(4, Some(&state));
        assert_eq!(second.weights_sha256, whole.weights_sha256, "{strategy}");
        assert_eq!(second.state_sha256, whole.state_sha256, "{strategy}");
        assert_eq!(second.state(), whole.state());
    }
}

/// Training resumes with another number of learners from the same average model: new ones start from it (Koliousis et
/// al. 2019, §4.4).
#[test]
fn the_number_of_learners_may_change() {
    let state = train(&job("sma", 2), 3, &optimizer()).state();
    let (average, previous) = state.average.clone().unwrap();
    assert_eq!(state.weights.len(), 2);
    for learners in [1, 2, 5] {
        let job = job("sma", learners);
        let program = job.program().unwrap();
        let still = Optimizer { learning_rate: 0.0, momentum: 0.0, ..optimizer() };
        let options =
            RunOptions { steps: 1, warm_up: 0, optimizer: still, start: Some(&state), ..RunOptions::default() };
        let done = run(&program, &data(&program, 4), &options).unwrap().state();
        // No learner moves: z moves by the corrections of the first two, and a new learner keeps the old z.
        let alpha = 1.0 / learners as f32;
        let old = state.weights.iter().take(learners as usize);
        let moved = |i: usize| average[i] + old.clone().map(|w| alpha * (w[i] - average[i])).sum::<f32>();
        let (now, before) = done.average.unwrap();
        assert!((0..now.len()).all(|i| (now[i] - moved(i)).abs() < 1e-6), "{learners} learners");
        assert_eq!(bits(&before.unwrap()), bits(&average));
        assert!(done.weights.iter().skip(2).all(|w| bits(w) == bits(&average)));
    }
    assert!(previous.is_some());
    let strange = job("ssgd", 2).program().unwrap();
    let options = RunOptions { start: Some(&state), ..RunOptions::default() };
    let refused = run(&strange, &data(&strange, 4), &options).err().unwrap().to_string();
    assert!(refused.contains("another kind of strategy"), "{refused}");
}

/// Koliousis et al. 2019, §4.3: each learner has one learning task for each of tau batches an iteration, however slow it
/// is; a free learner gets the next batch.
#[test]
fn a_slow_learner_gets_as_many_batches_but_later_ones() {
    let job = job("sma:tau=4:first-come", 3);
    let program = job.program().unwrap();
    // Learner 1 continues with its first batch of an iteration when the others have taken all of theirs.
    let loads = [const { AtomicU64::new(0) }; 3];
    let slow = OnLoad(|rank: u32| {
        let own = loads[rank as usize].fetch_add(1, Ordering::SeqCst);
        let behind = |other: usize| loads[other].load(Ordering::SeqCst) < own + 4;
        while rank == 1 && own % 4 == 0 && (behind(0) || behind(2)) {
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    let options = RunOptions { steps: 5, warm_up: 0, optimizer: optimizer(), observer: &slow, ..RunOptions::default() };
    let data = data(&program, 4);
    let done = run(&program, &data, &options).unwrap();
    for iteration in 0..5 {
        let taken = |rank: u32| -> Vec<u32> {
            let own = done.claims.iter().filter(|claim| (claim.iteration, claim.rank) == (iteration, rank));
            own.map(|claim| claim.micro_batch).collect()
        };
        assert_eq!([0, 1, 2].map(|rank| taken(rank).len()), [4; 3], "iteration {iteration}");
        assert_eq!(taken(1)[1..], [9, 10, 11], "iteration {iteration}");
    }
    // The reference does not depend on time.
    let expected =
        reference::train_as_claimed(&program, &data, 5, options.seed, &options.optimizer, &done.claims).unwrap();
    assert_eq!(bits(&done.parameters), bits(&expected));
    // At another speed the same claims give the same run.
    let again = RunOptions { observer: &(), replay: Some(&done.claims), ..options };
    assert_eq!(run(&program, &data, &again).unwrap().weights_sha256, done.weights_sha256);
}

/// Koliousis et al. 2019, §3.2: when the rate drops and the accuracy has not improved since its last drop, learners
/// restart from the average model.
#[test]
fn learners_restart_at_a_rate_step_without_improvement() {
    // Batch norm's statistics would change predictions too.
    for (job, epochs) in [(job("sma", 3), 4), (two_by_two("sma"), 3), (two_by_two("sma:reference-models"), 2)] {
        restarts(&Job { model: Arc::new(random_model(3, false)), ..job }, epochs);
    }
}

/// A job of `epochs` epochs in which learners restart at the end of all but the first.
fn restarts(job: &Job, epochs: u32) {
    let program = job.program().unwrap();
    let data = data(&program, 1);
    let held_out = Dataset::load("synthetic:2000", &program.model).unwrap().1;
    let per_epoch = data.len() as u32 / program.global_batch() as u32;
    let run = |job: &Job, learning_rate, target| {
        // So small a rate changes weights, but no prediction.
        let decay = Decay::Every { factor: 0.5, epochs: 1.0 };
        let optimizer = Optimizer { learning_rate, decay, ..optimizer() };
        let evaluations = Some(Evaluations { held_out: &held_out, last_epochs: 2, recompute_bn: false, target });
        let steps = epochs * per_epoch;
        let options = RunOptions { steps, warm_up: 0, optimizer, evaluations, ..RunOptions::default() };
        run(&job.program().unwrap(), &data, &options).unwrap()
    };
    let still = run(job, 1e-7, Target::default());
    let steps: Vec<u64> = (2..=epochs).map(|epoch| u64::from(epoch * per_epoch)).collect();
    assert_eq!(still.restarts, steps, "at the first rate step there is nothing to compare with");
    assert_eq!(still.evaluations.len(), 2, "looking for restarts puts nothing else on record");
    let (average, previous) = still.state().average.unwrap();
    assert!(previous.is_none(), "the last rate step ends the run: momentum begins again");
    let state = still.state();
    assert!(state.weights.iter().chain(&state.references).all(|weights| bits(weights) == bits(&average)));
    // S-SGD has no average model to restart from.
    assert_eq!(
        run(&Job { strategy: lockstep_models::Strategy::default(), ..job.clone() }, 1e-7, Target::default()).restarts,
        Vec::<u64>::new()
    );
    // The first epoch reaches a target below any accuracy.
    let accuracy = still.evaluations[0].accuracy();
    let target = Target { accuracy: Some(accuracy * 0.5 + 1e-9), epochs: 1 };
    let ended = run(job, 1e-7, target);
    assert!(accuracy > 0.0 && ended.is_reached());
    assert_eq!((ended.losses.len() as u32, ended.restarts.len()), (per_epoch, 0));
    // A median of two epochs needs two (§5.1).
    let median = run(job, 1e-7, Target { epochs: 2, ..target });
    assert_eq!((median.losses.len() as u32, median.is_reached()), (2 * per_epoch, true));
    let never = run(job, 1e-7, Target { accuracy: Some(1.0), epochs: 1 });
    assert_eq!((never.losses.len() as u32, never.is_reached()), (epochs * per_epoch, false));
}

/// The command line: learners share devices, a log of claims is replayed by a run and by a prediction, and invalid
/// combinations are refused.
#[test]
fn commands_accept_learners() {
    let folder = folder("learners");
    let predict = ["sim", "predict", "--model", "mlp", "--cluster", "ethernet-gpu-8", "--batch-per-rank", "4"];
    let with = |more: &[&'static str]| [&predict[..], more].concat();
    let shared = rows(&folder, "sim-predict", &with(&["--strategy", "sma:tau=2", "--ranks", "1,8", "--learners", "2"]));
    let seen = |row: &serde_json::Value| ["ranks", "learners", "global_batch"].map(|column| number(row, column) as u32);
    assert_eq!(shared.iter().map(seen).collect::<Vec<_>>(), [[2, 2, 16], [16, 2, 128]]);
    assert!(shared.iter().all(|row| row["algorithm"] == "hierarchical:ring" && row["strategy"] == "sma:tau=2"));
    let one = rows(&folder, "sim-predict", &with(&["--strategy", "sma:tau=2", "--ranks", "8", "--algorithm", "ring"]));
    assert_eq!((seen(&one[0]), one[0]["algorithm"].as_str()), ([8, 1, 64], Some("ring")));

    let run =
        ["exec", "run", "--model", "mlp", "--data", "synthetic:96", "--ranks", "1", "--learners", "3", "--steps", "3"];
    let run = [&run[..], &["--batch-per-rank", "4", "--strategy", "sma:first-come"]].concat();
    let of = |more: &[&str]| rows(&folder, "exec-run", &[&run[..], more].concat())[0]["weights_sha256"].clone();
    let weights = of(&["--driver-log", "claims.jsonl"]);
    assert_eq!(of(&["--replay", "claims.jsonl"]), weights);
    assert_eq!(std::fs::read_to_string(folder.join("claims.jsonl")).unwrap().lines().count(), 3 * 3);
    let first_come = with(&["--strategy", "sma:first-come", "--ranks", "1", "--learners", "3"]);
    let logged = [&first_come[..], &["--driver-log", "predicted.jsonl"]].concat();
    let predicted = rows(&folder, "sim-predict", &logged);
    let again = rows(&folder, "sim-predict", &[&first_come[..], &["--replay", "predicted.jsonl"]].concat());
    assert_eq!(predicted[0]["step_time_s"], again[0]["step_time_s"]);

    // So small a rate changes no prediction, so learners restart at every rate drop but the first.
    let still = ["--batch-per-rank", "4", "--epochs", "3", "--learning-rate", "1e-9", "--decay", "every:0.5@1"];
    let row = &rows(&folder, "exec-run", &[&run[..10], &still, &["--strategy", "sma"]].concat())[0];
    let steps = row["steps"].as_u64().unwrap();
    assert_eq!(row["restart_steps"], serde_json::json!([2 * steps / 3, steps]));
    assert_eq!(row["restarts"], 2);

    for (arguments, message) in [
        (with(&["--learners", "2"]), "--learners: 2: ssgd has no learners"),
        (with(&["--strategy", "sma:mu=1"]), "is not a setting of it"),
        (
            with(&["--strategy", "sma", "--driver-log", "x.jsonl"]),
            "only learners that are served first come, or in turn",
        ),
        (with(&["--strategy", "sma:first-come", "--ranks", "2,4", "--replay", "predicted.jsonl"]), "one configuration"),
        (
            with(&["--strategy", "sma:first-come", "--ranks", "2", "--replay", "predicted.jsonl"]),
            "none of this program",
        ),
        (with(&["--strategy", "sma:first-come", "--ranks", "2", "--replay", "none.jsonl"]), "cannot be read"),
        (with(&["--strategy", "sma", "--accumulate", "2"]), "tau in --strategy"),
        ([&run[..], &["--target-accuracy", "2"]].concat(), "at most 1"),
    ] {
        let output = lockstep(&folder, &arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), error.contains(message)), (Some(2), true), "{arguments:?}: {error}");
    }
}
