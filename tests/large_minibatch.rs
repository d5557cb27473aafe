//! Tests the remarks of Goyal et al. 2017, §3, each against ignoring it, and the requirements of §5.1 on BN and errors.
//!
//! Factors are powers of two, so that equal results are equal to the bit and others differ by a known amount.

use std::sync::Arc;

use lockstep_data::{Dataset, Sampler};
use lockstep_exec::device::cpu::{Mode, Threads};
use lockstep_exec::replica::Replica;
use lockstep_exec::{Evaluations, ExecError, RunOptions, run};
use lockstep_models::{Job, Layer, Model, MomentumForm, Op, Optimizer, Phase, Program, SgdStep, Target, random_model};

fn program(model: &str, workers: u32, batch_per_rank: u32) -> Program {
    Job::new(Arc::new(lockstep_readers::load_model(model).unwrap()), workers, batch_per_rank).program().unwrap()
}

/// A small model with batch norm.
fn normalised() -> Arc<Model> {
    let mut models = (0..).map(|seed| random_model(seed, true));
    Arc::new(models.find(|model| model.statistics_elements() > 4).unwrap())
}

fn digits(program: &Program) -> (Dataset, Dataset) {
    Dataset::load("mnist", &program.model).unwrap()
}

/// Weights after steps of one replica on the same samples each time, with the loss scaled by `scale`.
fn trained(scale: f32, step: SgdStep, steps: u32) -> Vec<f32> {
    let program = program("mlp", 1, 16);
    let (data, _) = digits(&program);
    let mut replica = Replica::new(&program, 1, &Threads::one());
    for _ in 0..steps {
        replica.load(&data, &(0..16).collect::<Vec<u32>>(), 0).unwrap();
        for task in &program.roles[0].tasks {
            match task.op {
                Op::Compute { chain, phase: Phase::Forward, .. } => {
                    replica.forward(chain, Mode::Train).unwrap();
                }
                Op::Compute { chain, phase, .. } => drop(replica.backward(chain, phase, scale, false).unwrap()),
                _ => {}
            }
        }
        replica.update(0..program.model.parameter_elements() as usize, &step).unwrap();
    }
    replica.parameters().unwrap()
}

/// Remark 1: scaling the loss equals scaling the rate only without weight decay; with it, the decay differs.
#[test]
fn scaling_the_loss_is_not_scaling_the_rate() {
    let rate = |rate, weight_decay| SgdStep { weight_decay, ..SgdStep::plain(rate, 0.5) };
    let (mean, scaled) = (1.0 / 16.0, 4.0 / 16.0);
    assert_eq!(trained(scaled, rate(0.125, 0.0), 3), trained(mean, rate(0.5, 0.0), 3));
    // One step: both subtract the same gradient, the scaled rate η·λ·w four times.
    let start = trained(mean, rate(0.0, 0.0), 1);
    let (loss, rate) = (trained(scaled, rate(0.125, 0.0625), 1), trained(mean, rate(0.5, 0.0625), 1));
    let by_hand = |w: &f32| 3.0 * 0.125 * 0.0625 * w;
    let mut off = start.iter().zip(&loss).zip(&rate).map(|((w, loss), rate)| (loss - rate) - by_hand(w));
    assert!(off.all(|off| off.abs() < 1e-6));
    assert_ne!(loss, rate);
}

/// Eq. 3 against Eq. 4: k steps of n samples at rate η end near one step of kn samples at k·η, as long as gradients
/// change little meanwhile. At half the rate both move half as far, and end less than half as far apart (a quarter, if
/// no ReLU is at its kink).
#[test]
fn k_small_steps_end_near_one_large_one() {
    let train = |workers: u32, steps: u32, rate: f64| {
        let program = program("mlp", workers, 16);
        let optimizer = Optimizer { learning_rate: rate, momentum: 0.0, ..Optimizer::default() };
        // The same 64 samples: four steps of one worker, or one step of four.
        run(&program, &digits(&program).0, &RunOptions { steps, optimizer, ..RunOptions::default() })
            .unwrap()
            .parameters
    };
    let start = train(1, 1, 0.0);
    let length = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    };
    let both = |rate: f64| {
        let (small, large) = (train(1, 4, rate), train(4, 1, 4.0 * rate));
        (length(&small, &start), length(&small, &large))
    };
    let ((far, apart), (half_far, half_apart)) = (both(0.002), both(0.001));
    assert!(apart > 0.0 && apart < 0.2 * far, "{apart} apart after {far}");
    assert!((far / half_far - 2.0).abs() < 0.2, "{far} and {half_far}");
    assert!((2.5..4.5).contains(&(apart / half_apart)), "{apart} and {half_apart}");
}

/// §5.1: weight decay applies to every weight, but to batch norm's γ and β only if requested.
#[test]
fn batch_norm_parameters_do_not_decay() {
    let model = normalised();
    let program = Job::new(Arc::clone(&model), 1, 4).program().unwrap();
    let decayed = |decay_batch_norm| {
        let mut replica = Replica::new(&program, 3, &Threads::one());
        let elements = model.parameter_elements() as usize;
        replica.set_parameters(&vec![1.0; elements]).unwrap();
        replica.set_gradients(&vec![0.0; elements]).unwrap();
        // w − η·λ·w with η = ½ and λ = ¼.
        let step = SgdStep { weight_decay: 0.25, decay_batch_norm, ..SgdStep::plain(0.5, 0.0) };
        replica.update(0..elements, &step).unwrap();
        replica.parameters().unwrap()
    };
    let (spared, all) = (decayed(false), decayed(true));
    assert!(all.iter().all(|w| *w == 0.875));
    for (node, parameter) in model.layers().iter().flat_map(|node| node.parameters.iter().map(move |p| (node, p))) {
        let wanted = if matches!(node.layer, Layer::BatchNorm(_)) { 1.0 } else { 0.875 };
        let range = parameter.range.start as usize..parameter.range.end as usize;
        assert!(spared[range].iter().all(|w| *w == wanted), "{}", parameter.name);
    }
}

/// Remark 2: with a changing rate, Eq. 10 needs its correction to equal Eq. 9.
#[test]
fn momentum_needs_its_correction_when_the_rate_changes() {
    let program = program("mlp", 2, 16);
    let (data, _) = digits(&program);
    let train = |form, decay: &str| {
        let decay = decay.parse().unwrap();
        let optimizer = Optimizer { learning_rate: 0.0625, momentum: 0.5, form, decay, ..Optimizer::default() };
        run(&program, &data, &RunOptions { steps: 6, optimizer, ..RunOptions::default() }).unwrap().parameters
    };
    // 125 steps an epoch: the rate doubles every other step, as a warm-up does.
    let rising = "every:2@0.016";
    let wanted = train(MomentumForm::Separate, rising);
    assert_eq!(train(MomentumForm::Corrected, rising), wanted);
    assert_ne!(train(MomentumForm::Absorbed, rising), wanted);
    // At a constant rate all three are one method.
    let constant = train(MomentumForm::Separate, "constant");
    assert_eq!(train(MomentumForm::Absorbed, "constant"), constant);
    assert_eq!(train(MomentumForm::Corrected, "constant"), constant);
}

/// Gradients of each of `workers` micro-batches of 16, summed, with the loss scaled by `scale`.
fn summed(workers: u32, scale: f32) -> Vec<f32> {
    let program = program("mlp", 1, 16);
    let (data, _) = digits(&program);
    let sampler = Sampler::new(data.len(), 16, 1, &[workers], 1).unwrap();
    let mut replica = Replica::new(&program, 1, &Threads::one());
    let mut indices = Vec::new();
    for rank in 0..workers {
        let place = sampler.micro_batch(0, rank, 0, &mut indices);
        replica.load(&data, &indices, place).unwrap();
        for task in &program.roles[0].tasks {
            match task.op {
                Op::Compute { chain, phase: Phase::Forward, .. } => {
                    replica.forward(chain, Mode::Train).unwrap();
                }
                Op::Compute { chain, phase, .. } => drop(replica.backward(chain, phase, scale, rank > 0).unwrap()),
                _ => {}
            }
        }
    }
    replica.gradients().unwrap()
}

/// Remark 3: allreduce sums, so the loss is divided by kn; divided by n the gradient is k times too large. "Cancelling k"
/// (rate η and 1/n instead of k·η and 1/(kn)) gives the right step without decay and a k-th of the decay with it.
#[test]
fn the_loss_is_normalised_by_the_whole_batch() {
    let (k, n) = (4, 16.0);
    let program = program("mlp", k, 16);
    let (data, _) = digits(&program);
    let train = |rate: f64, weight_decay: f64, momentum: f64| {
        let optimizer = Optimizer { learning_rate: rate, weight_decay, momentum, ..Optimizer::default() };
        run(&program, &data, &RunOptions { steps: 1, optimizer, ..RunOptions::default() }).unwrap().parameters
    };
    let start = train(0.0, 0.0, 0.0);
    let step = |gradient: &[f32], rate: f32, decay: f32| -> Vec<f32> {
        start.iter().zip(gradient).map(|(w, g)| w - rate * (g + decay * w)).collect()
    };
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
    let (right, wrong) = (summed(k, 1.0 / (k as f32 * n)), summed(k, 1.0 / n));
    assert!(wrong.iter().zip(&right).all(|(wrong, right)| *wrong == 4.0 * right), "k times too large");
    // The executor computes Eq. 4 over kn samples.
    assert!(near(&train(0.5, 0.0, 0.0), &step(&right, 0.5, 0.0)));
    assert!(!near(&train(0.5, 0.0, 0.0), &step(&wrong, 0.5, 0.0)));
    // Cancel k: η = 0.125 with 1/n for k·η = 0.5 with 1/(kn).
    assert!(near(&step(&wrong, 0.125, 0.0), &train(0.5, 0.0, 0.0)));
    let (decayed, cancelled) = (train(0.5, 0.0625, 0.0), step(&wrong, 0.125, 0.0625));
    assert!(!near(&cancelled, &decayed), "the decay of a k-th");
    let missing: Vec<f32> = start.iter().zip(&cancelled).map(|(w, c)| c - 0.375 * 0.0625 * w).collect();
    assert!(near(&missing, &decayed), "what is missing is 3/4 of k·η·λ·w");
}

/// Remark 4: one shuffle divided among the workers takes each sample once; a shuffle per worker takes some twice.
#[test]
fn one_shuffle_per_epoch_is_divided_among_workers() {
    let once = |seeds: [u64; 4]| {
        let mut seen = vec![0; 64];
        for rank in 0..4 {
            let sampler = Sampler::new(64, 4, 1, &[4], seeds[rank as usize]).unwrap();
            for batch in 0..sampler.batches_per_epoch() {
                let mut samples = Vec::new();
                sampler.micro_batch(batch, rank, 0, &mut samples);
                samples.iter().for_each(|sample| seen[*sample as usize] += 1);
            }
        }
        seen.iter().all(|times| *times == 1)
    };
    assert!(once([1; 4]));
    assert!(!once([1, 2, 3, 4]), "shuffles of their own");
}

/// Batch norm's statistics are each worker's own, over its n samples, and evaluations do not affect training.
#[test]
fn evaluation_during_training_changes_nothing() {
    let program = Job::new(normalised(), 2, 4).program().unwrap();
    let (data, held_out) = Dataset::load("synthetic:60", &program.model).unwrap();
    let per_epoch = data.len() as u32 / 8;
    let train = |last_epochs, recompute_bn| {
        let evaluations =
            Some(Evaluations { held_out: &held_out, last_epochs, recompute_bn, target: Target::default() });
        let mut run =
            run(&program, &data, &RunOptions { steps: 3 * per_epoch, evaluations, ..RunOptions::default() }).unwrap();
        let last = run.evaluate(&held_out).unwrap();
        (run.state_sha256, run.evaluations, last)
    };
    let (state, none, last) = train(0, false);
    assert!(none.is_empty());
    let (same, two, again) = train(2, false);
    assert_eq!((same, two.len(), again), (state.clone(), 2, last));
    assert_eq!(two[1], last, "the last epoch's is the run's");
    let (same, five, recomputed) = train(5, true);
    assert_eq!((same, five.len()), (state, 3), "three epochs, all judged");
    assert_eq!(five[2], recomputed);
    assert_ne!(recomputed.mean_loss, last.mean_loss, "other statistics");
}

/// Recomputed statistics are those of the epoch's micro-batches, whatever the running ones were.
#[test]
fn recomputed_statistics_ignore_earlier_ones() {
    let program = Job::new(normalised(), 1, 4).program().unwrap();
    let (data, held_out) = Dataset::load("synthetic:40", &program.model).unwrap();
    let replica = || Replica::new(&program, 3, &Threads::one());
    let (mut one, mut other) = (replica(), replica());
    let noise: Vec<f32> = (0..other.statistics().unwrap().len()).map(|i| 1.0 + (i % 7) as f32).collect();
    other.set_statistics(&noise).unwrap();
    one.recompute_statistics(&data).unwrap();
    other.recompute_statistics(&data).unwrap();
    assert_eq!(one.statistics(), other.statistics());
    assert_eq!(one.evaluate(&held_out).unwrap(), other.evaluate(&held_out).unwrap());
}

/// A loss that is not finite ends the run at once with its place.
#[test]
fn a_diverged_run_names_step_and_layer() {
    let program = program("mlp", 2, 16);
    let (data, _) = digits(&program);
    let optimizer = Optimizer { learning_rate: 1e30, ..Optimizer::default() };
    let error = run(&program, &data, &RunOptions { steps: 9, optimizer, ..RunOptions::default() }).err().unwrap();
    let ExecError::Diverged { step, ref layers, .. } = error else { panic!("{error}") };
    // The first step's gradients times 10³⁰ give weights whose products overflow fp32 in the second layer.
    assert_eq!((step, layers.as_deref()), (1, Some("scores")), "{error}");
    assert!(error.to_string().contains("lower learning rate"), "{error}");
}
