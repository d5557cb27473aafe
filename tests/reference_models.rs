//! Tests reference models between the learners of a device and the average model: Koliousis et al. 2019, §3.3, to the
//! bit, and where it differs from the form of §4.2.

use std::sync::Arc;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_exec::{Evaluations, RunOptions, run};
use lockstep_models::{Job, Optimizer, Target, random_model};
use proptest::prelude::*;

use crate::equivalence::buckets;
use crate::learners::{STEPS, bits, data, job, largest_difference, optimizer, run_of_nothing, setting, train};
use crate::reference;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Koliousis et al. 2019, §3.3: learners follow their device's reference model, references the first device's.
    #[test]
    fn learners_with_reference_models_equal_the_flat_algorithm(
        model in 0u64..200,
        with_batch_norm: bool,
        devices in 1u32..=4,
        each in 1u32..=3,
        tau in 1u32..=2,
        mu in prop_oneof![Just(None), Just(Some(0.0)), (0.1f64..0.95).prop_map(Some)],
        alpha in prop_oneof![Just(None), (0.05f64..1.0).prop_map(Some)],
        bucket in buckets(),
        algorithm in prop::sample::select(vec!["ring", "halving-doubling", "parameter-server:1", "hierarchical:ring"]),
        concurrent_exchanges in 1u32..=3,
        assignment in prop::sample::select(vec!["", ":first-come", ":round-robin"]),
        seed: u64,
    ) {
        let settings = format!("{}{}{assignment}", setting("momentum", mu), setting("alpha", alpha));
        let strategy = format!("sma:reference-models:tau={tau}{settings}");
        let job = Job {
            strategy: strategy.parse().unwrap(),
            learners: each,
            bucket, concurrent_exchanges, algorithm: algorithm.parse().unwrap(),
            node_sizes: Some(vec![each; devices as usize]),
            ..Job::new(Arc::new(random_model(model, with_batch_norm)), devices * each, 2)
        };
        let optimizer = Optimizer { learning_rate: 0.002, weight_decay: 1e-3, ..optimizer() };
        let program = job.program().unwrap();
        prop_assert_eq!(program.averaging.unwrap().reference_alpha.is_some(), devices > 1 && each > 1);
        let data = data(&program, 1);
        let stall_limit = Duration::from_secs(10);
        let options =
            RunOptions { steps: STEPS, warm_up: 0, seed, optimizer: optimizer.clone(), stall_limit, ..RunOptions::default() };
        let done = run(&program, &data, &options).unwrap();
        let expected = reference::train_as_claimed(&program, &data, STEPS, seed, &optimizer, &done.claims).unwrap();
        prop_assert!(bits(&done.parameters) == bits(&expected), "{job:?}");
        // With one level both forms equal Alg. 1.
        if assignment != ":first-come" && (devices == 1 || each == 1) {
            let one_level = strategy.replace(":reference-models", "").parse().unwrap();
            let other = run(&Job { strategy: one_level, ..job }.program().unwrap(), &data, &options).unwrap();
            prop_assert_eq!(other.state_sha256, done.state_sha256);
        }
    }
}

/// Two devices with two learners each.
pub(crate) fn two_by_two(strategy: &str) -> Job {
    Job { learners: 2, node_sizes: Some(vec![2, 2]), ..job(strategy, 4) }
}

/// With several devices of several learners, §3.3's form is a different algorithm from §4.2's, at any α.
#[test]
fn reference_models_are_not_equivalent_to_one_average() {
    for settings in ["", ":alpha=0.25", ":momentum=0:alpha=1"] {
        let z = |form: &str| train(&two_by_two(&format!("sma{form}{settings}")), 6, &optimizer()).parameters;
        let (one, two) = (z(""), z(":reference-models"));
        let (moved, differ) = (largest_difference(&one, &run_of_nothing()), largest_difference(&one, &two));
        assert!(differ > 0.01 * moved, "{settings}: {differ} of {moved}");
    }
}

/// §3.2: the average model is evaluated, during a run and at its end, and no learner.
#[test]
fn the_average_model_is_evaluated() {
    // Batch norm's statistics, which differ between learners, would change predictions too.
    let job = Job { model: Arc::new(random_model(3, false)), ..two_by_two("sma:reference-models") };
    let program = job.program().unwrap();
    let (data, held_out) = Dataset::load("synthetic:400", &program.model).unwrap();
    let evaluations =
        Some(Evaluations { held_out: &held_out, last_epochs: 1, recompute_bn: false, target: Target::default() });
    let steps = data.len() as u32 / program.global_batch() as u32;
    let options =
        RunOptions { steps, warm_up: 0, seed: 7, optimizer: optimizer(), evaluations, ..RunOptions::default() };
    let mut done = run(&program, &data, &options).unwrap();
    let state = done.state();
    let judged = |weights: &[f32]| {
        let alone = Job::new(program.model.clone(), 1, 3).program().unwrap();
        let mut replica = Replica::new(&alone, 1, &Threads::one());
        replica.set_parameters(weights).unwrap();
        replica.evaluate(&held_out).unwrap()
    };
    let of_average = judged(&state.average.as_ref().unwrap().0);
    assert_eq!(done.evaluations[0], of_average);
    assert!(state.weights.iter().all(|learner| judged(learner).mean_loss != of_average.mean_loss));
    assert_eq!(done.evaluate(&held_out).unwrap(), of_average);
}

/// Synchronisation moves weight from one model to another and creates none: if no learner learns and z has no momentum,
/// the sum of all learners, references and z is constant.
#[test]
fn corrections_preserve_the_sum_of_all_models() {
    let program = two_by_two("sma:reference-models:momentum=0").program().unwrap();
    let data = data(&program, 4);
    let still = Optimizer { learning_rate: 0.0, momentum: 0.0, ..optimizer() };
    let go = |steps, optimizer, start| {
        let options = RunOptions { steps, warm_up: 0, seed: 7, optimizer, start, ..RunOptions::default() };
        run(&program, &data, &options).unwrap().state()
    };
    let begin = go(3, optimizer(), None);
    let end = go(2, still, Some(&begin));
    let models = |state: &lockstep_exec::State| -> Vec<Vec<f32>> {
        let z = state.average.iter().map(|(z, _)| z.clone());
        state.weights.iter().chain(&state.references).cloned().chain(z).collect()
    };
    assert_eq!((models(&begin).len(), begin.references.len()), (4 + 1 + 1, 1), "the first device's reference is z");
    let sum = |state, i: usize| models(state).iter().map(|model| f64::from(model[i])).sum::<f64>();
    let elements = program.model.parameter_elements() as usize;
    assert!((0..elements).all(|i| (sum(&begin, i) - sum(&end, i)).abs() < 1e-5));
    assert!(models(&begin).iter().zip(models(&end)).all(|(a, b)| largest_difference(a, &b) > 1e-4), "each has moved");
}
