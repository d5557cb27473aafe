//! Tests training with numbers of two bytes on CPUs: what rounding changes is bounded, in every strategy, and threads change
//! no bit.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, RunOptions, run};
use lockstep_models::{Bucket, Gradients, Job, Model, Precision, random_model};

use crate::equivalence::plain;

const BF16: [(Precision, Gradients); 2] = [(Precision::Bf16, Gradients::F32), (Precision::Bf16, Gradients::Half)];

/// Weights after `steps` steps, from the same start; dead memory is NaN.
fn train(job: &Job, steps: u32, threads_per_rank: usize) -> Vec<f32> {
    let (data, _) = Dataset::load("synthetic:120", &job.model).unwrap();
    let arenas = Arenas { poison: true, ..Arenas::default() };
    let of = RunOptions {
        steps,
        warm_up: 0,
        seed: 7,
        optimizer: plain(),
        threads_per_rank,
        arenas,
        ..RunOptions::default()
    };
    run(&job.program().unwrap(), &data, &of).unwrap_or_else(|error| panic!("{job:?}: {error}")).parameters
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

/// One step moves weights by what it moves them in fp32, but for the rounding of weights, activations and gradients in a
/// handful of layers: 2⁻⁹ of a number each time. That of the gradients themselves comes on top.
#[test]
fn rounding_bounds_what_bf16_changes() {
    for model in [3, 8, 21] {
        let model = Arc::new(random_model(model, true));
        let of = |precision, gradients| Job { precision, gradients, ..Job::new(model.clone(), 2, 4) };
        let exact = train(&of(Precision::F32, Gradients::F32), 1, 1);
        let step = distance(&exact, &lockstep_exec::init::parameters(&model, 7));
        let [narrow, half] = BF16.map(|(precision, gradients)| train(&of(precision, gradients), 1, 1));
        for trained in [&narrow, &half] {
            let error = distance(trained, &exact) / step;
            assert!(error > 1e-5 && error < 0.05, "{error} of a step");
        }
        assert!(distance(&half, &narrow) > 1e-5 * step, "gradients are rounded too");
    }
}

fn model() -> Arc<Model> {
    let text = "name = \"m\"\ninput = [1, 6, 6]\nlayer = [\n{ kind = \"conv2d\", out_channels = 4, kernel = 3 },\n\
                { kind = \"relu\" },\n{ kind = \"dense\", out_features = 16 },\n{ kind = \"relu\" },\n\
                { kind = \"dense\", out_features = 4 },\n{ kind = \"softmax_cross_entropy\" },\n]\n";
    Arc::new(lockstep_readers::parse_model("m.toml", text).unwrap())
}

/// In every strategy, those that exchange activations, models and samples among them. Gradients of samples that cancel in
/// their mean leave a larger share of each rounding than that of one number.
#[test]
fn every_strategy_trains_in_bf16() {
    let model = model();
    for (strategy, learners) in [
        ("zero-2", 1),
        ("zero-3", 1),
        ("first-device-table", 1),
        ("model-parallel", 1),
        ("megatron", 1),
        ("sequence-parallel", 1),
        ("all-to-all", 1),
        ("hybrid:a", 1),
        ("hybrid:b:variable-batch", 1),
        ("hybrid:c", 1),
        ("sma:reference-models", 2),
        ("ea-sgd", 1),
        ("local-sgd:tau=2", 1),
    ] {
        let of = |(precision, gradients)| Job {
            strategy: strategy.parse().unwrap(),
            learners,
            bucket: Bucket::Whole,
            node_sizes: Some(vec![2, 2]),
            precision,
            gradients,
            ..Job::new(model.clone(), 4, 4)
        };
        let exact = train(&of((Precision::F32, Gradients::F32)), 2, 1);
        let step = distance(&exact, &lockstep_exec::init::parameters(&model, 7));
        for numbers in BF16 {
            let trained = train(&of(numbers), 2, 1);
            let error = distance(&trained, &exact) / step;
            assert!(error > 1e-5 && error < 0.2, "{strategy} {numbers:?}: {error} of two steps");
            assert_eq!(train(&of(numbers), 2, 2), trained, "{strategy}: threads change bits");
        }
    }
}

/// Gradients in bf16 send half the bytes, as the Program says.
#[test]
fn gradients_of_two_bytes_send_half() {
    let model = model();
    let sent = |gradients| {
        let job = Job { precision: Precision::Bf16, gradients, bucket: Bucket::Whole, ..Job::new(model.clone(), 3, 4) };
        let program = job.program().unwrap();
        let (data, _) = Dataset::load("synthetic:120", &model).unwrap();
        let options = RunOptions { steps: 2, warm_up: 0, ..RunOptions::default() };
        run(&program, &data, &options).unwrap().traffic.iter().flatten().map(|of| of.bytes).sum::<u64>()
    };
    let (wide, narrow) = (sent(Gradients::F32), sent(Gradients::Half));
    assert!(narrow > 0 && wide == 2 * narrow, "{wide} and {narrow}");
}
