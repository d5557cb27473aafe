//! Tests local SGD: equal to the flat algorithm (Stich 2019, Alg. 1; Wang et al. 2020, Alg. 1) to the bit, to plain SGD on one rank, and to
//! synchronous SGD where τ is 1.

use std::sync::Arc;
use std::time::Duration;

use lockstep_exec::{RunOptions, run};
use lockstep_models::{Bucket, Decay, Job, Optimizer, random_model};
use proptest::prelude::*;

use crate::commands::{folder, number, rows};
use crate::equivalence::buckets;
use crate::learners::{bits, data, job, largest_difference, train};
use crate::reference;

const STEPS: u32 = 4;

fn sgd() -> Optimizer {
    Optimizer { learning_rate: 0.05, momentum: 0.0, weight_decay: 1e-3, ..Optimizer::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn local_sgd_equals_the_flat_algorithm(
        model in 0u64..200,
        with_batch_norm: bool,
        workers in 1u32..=5,
        batch_per_rank in 2u32..=4,
        tau in 1u32..=3,
        momentum in prop::sample::select(vec!["", ":momentum=0.5", ":momentum=0.9"]),
        bucket in buckets(),
        algorithm in prop::sample::select(vec![
            "ring", "halving-doubling", "binomial-tree", "parameter-server:1", "parameter-server:1:dedicated",
        ]),
        concurrent_exchanges in 1u32..=3,
        fuse: bool,
        pad: bool,
        seed: u64,
    ) {
        let job = Job {
            strategy: format!("local-sgd:tau={tau}{momentum}").parse().unwrap(),
            bucket, concurrent_exchanges, fuse, pad, algorithm: algorithm.parse().unwrap(),
            ..Job::new(Arc::new(random_model(model, with_batch_norm)), workers, batch_per_rank)
        };
        let decay = Decay::Every { factor: 0.5, epochs: 0.5 };
        let optimizer = Optimizer { learning_rate: 0.002, decay, ..sgd() };
        let program = job.program().unwrap();
        let data = data(&program, 1);
        let stall_limit = Duration::from_secs(10);
        let options =
            RunOptions { steps: STEPS, warm_up: 0, seed, optimizer: optimizer.clone(), stall_limit, ..RunOptions::default() };
        let done = run(&program, &data, &options).unwrap();
        let expected = reference::train(&program, &data, STEPS, seed, &optimizer).unwrap();
        prop_assert!(bits(&done.parameters) == bits(&expected), "{job:?}");
    }
}

/// A single rank takes τ steps of plain SGD per iteration, and its mean is its model.
#[test]
fn one_rank_is_plain_sgd() {
    let data = data(&job("ssgd", 1).program().unwrap(), 8);
    let trained = |strategy: &str, steps| {
        let options = RunOptions { steps, warm_up: 0, seed: 7, optimizer: sgd(), ..RunOptions::default() };
        run(&job(strategy, 1).program().unwrap(), &data, &options).unwrap().weights_sha256
    };
    let plain = trained("ssgd", 2 * STEPS);
    assert_eq!(trained("local-sgd", 2 * STEPS), plain);
    assert_eq!(trained("local-sgd:tau=2", STEPS), plain);
}

/// On one rank, with a step between two means: v is the momentum of plain SGD times the learning rate, up to rounding.
#[test]
fn slow_momentum_of_one_rank_is_momentum() {
    let on = |strategy: &str| Job {
        strategy: strategy.parse().unwrap(),
        bucket: Bucket::Whole,
        ..Job::new(Arc::new(random_model(3, false)), 1, 3)
    };
    let momentum = Optimizer { momentum: 0.5, ..sgd() };
    let fast = train(&on("ssgd"), STEPS, &momentum).parameters;
    let slow = train(&on("local-sgd:momentum=0.5"), STEPS, &sgd()).parameters;
    let largest = fast.iter().fold(0.0f32, |most, w| most.max(w.abs()));
    let difference = largest_difference(&fast, &slow);
    assert!(difference <= 2e-6 * largest, "{difference:e} of {largest}");
    let without = train(&on("local-sgd"), STEPS, &sgd()).parameters;
    assert!(largest_difference(&slow, &without) > 1e-4 * largest, "momentum matters");
}

/// With τ = 1 the mean of k steps from one model is the step along the mean gradient, up to rounding; with larger τ it
/// is not.
#[test]
fn one_local_step_is_synchronous_sgd() {
    // Without batch norm: its statistics are over a rank's own samples either way, but it amplifies the rounding of
    // small gradients.
    let on = |strategy: &str, workers| Job {
        strategy: strategy.parse().unwrap(),
        bucket: Bucket::Whole,
        ..Job::new(Arc::new(random_model(3, false)), workers, 3)
    };
    for workers in [2, 3, 4] {
        let ssgd = train(&on("ssgd", workers), STEPS, &sgd()).parameters;
        let local = train(&on("local-sgd", workers), STEPS, &sgd()).parameters;
        let largest = ssgd.iter().fold(0.0f32, |most, w| most.max(w.abs()));
        // A few roundings of 2⁻²⁴ per step, of weights no larger than the largest.
        let difference = largest_difference(&ssgd, &local);
        assert!(difference <= 1e-6 * largest, "{workers} ranks: {difference:e} of {largest}");
    }
    let (one, two) = (train(&on("local-sgd", 2), 2 * STEPS, &sgd()), train(&on("local-sgd:tau=2", 2), STEPS, &sgd()));
    assert!(largest_difference(&one.parameters, &two.parameters) > 1e-6, "means apart are another training");
}

/// Predicted and trained from one program: a mean every τ batches, so that communication per image falls with τ.
#[test]
fn local_sgd_is_predicted_and_trained() {
    let folder = folder("local-sgd");
    let of = |tau: &str| {
        let strategy = format!("local-sgd:tau={tau}");
        let predict = ["sim", "predict", "--model", "lenet", "--cluster", "ethernet-4", "--ranks", "4", "--strategy"];
        let row = &rows(&folder, "sim-predict", &[&predict[..], &[&strategy]].concat())[0];
        (number(row, "global_batch"), number(row, "images_per_s"))
    };
    let ((one, slower), (four, faster)) = (of("1"), of("4"));
    assert_eq!((one, four), (4.0 * 32.0, 4.0 * 4.0 * 32.0));
    assert!(faster > slower, "{faster} images/s with an exchange for four batches, {slower} with one for each");
    let run = ["exec", "run", "--model", "mlp", "--data", "synthetic:96", "--ranks", "2", "--steps", "3"];
    let run = [&run[..], &["--batch-per-rank", "4", "--strategy", "local-sgd:tau=3"]].concat();
    assert_eq!(number(&rows(&folder, "exec-run", &run)[0], "global_batch"), 24.0);
}
