//! Tests measured rows: the error of a run, its spread over seeds, the weights that it begins with.

mod caffe;
mod weights;

use lockstep_models::Timeline;

use super::*;

/// 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14 over 2.
#[test]
fn spread_by_hand() {
    assert_eq!(mean_and_deviation(&[1.0, 2.0, 6.0]), Some((3.0, 7f64.sqrt())));
    assert_eq!(mean_and_deviation(&[1.0]), None);
}

/// The digits' perceptron trained for `epochs` epochs at a constant rate, with `more` settings, and the errors in
/// percent during training.
fn trained(epochs: u32, more: &str) -> (MeasuredRow, Vec<f64>) {
    let text = format!(
        "name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist\"\nbatch_per_rank = 50\nepochs = {epochs}\n{more}\n\
         [optimizer]\nlearning_rate = 0.01\n"
    );
    let experiment = Experiment::parse("e.toml", &text).unwrap();
    let mut seen = Vec::new();
    let note = |_: &Configuration, measured: &mut MeasuredTraining| {
        seen.extend(measured.run.evaluations.iter().map(|one| 100.0 * (1.0 - one.accuracy())));
        Ok(())
    };
    let rows = rows(&experiment, &Operation::default(), &mut Launch::Threads, note).unwrap();
    (rows.into_iter().next().unwrap(), seen)
}

/// The median of the last five, or of all where there are fewer.
fn middle(errors: &[f64]) -> f64 {
    let mut sorted = errors[errors.len().saturating_sub(5)..].to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Goyal et al. 2017, §5.1: "median error of the final 5 epochs". At a constant rate a shorter run is the beginning of a longer
/// one, so that the ends of runs of 3 to 7 epochs are what a run of 7 sees after each of its last five.
#[test]
fn the_error_of_a_run_is_the_median_of_its_last_five_epochs() {
    let row = |epochs, more: &str| trained(epochs, &format!("ranks = 2\n{more}")).0;
    let after: Vec<f64> = (1..=7).map(|epochs| 100.0 * (1.0 - row(epochs, "").accuracy)).collect();
    let error = row(7, "").test_error_pct.unwrap();
    assert_eq!(error, middle(&after), "{after:?}");
    // It differs from the alternatives: the last one, the best, the mean, the median of all.
    let best = after.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sorted = after.clone();
    sorted.sort_by(f64::total_cmp);
    for other in [after[6], best, after[2..].iter().sum::<f64>() / 5.0, sorted[3]] {
        assert_ne!(error, other, "{after:?}");
    }
    assert_eq!(row(3, "").test_error_pct, Some(middle(&after[..3])), "a run of three has three");
    // A run that ends at its target has its own last epochs.
    let best = after[..6].iter().copied().fold(f64::INFINITY, f64::min);
    let ends = after.iter().position(|error| *error == best).unwrap() + 1;
    let reached = row(7, &format!("target_accuracy = {}", 1.0 - best / 100.0 - 1e-9));
    assert_eq!(reached.steps_to_target, Some(ends as u32 * row(1, "").steps));
    assert_eq!(reached.test_error_pct, Some(middle(&after[..ends])));
    assert_eq!(row(7, "target_accuracy = 1.0").test_error_pct, Some(error), "looking for a target changes nothing");
}

/// Where learners join, a run is trained in several parts, each of which records only its own last epochs.
#[test]
fn the_error_of_a_run_that_learners_joined_is_the_median_of_its_last_five_epochs() {
    let (row, seen) = trained(8, "ranks = 1\nstrategy = \"sma\"\ngrowth = [\"2@4\"]");
    assert_eq!(seen.len(), 8, "four epochs with one learner, four with two");
    assert_eq!(row.test_error_pct, Some(middle(&seen)));
    let mut sorted = seen.clone();
    sorted.sort_by(f64::total_cmp);
    assert_ne!(middle(&seen), (sorted[3] + sorted[4]) / 2.0, "not the median of all: {seen:?}");
}

/// Step times exclude the first `warmup_steps` steps, at most all but one; by default a quarter of them, five at most.
#[test]
fn step_times_exclude_the_warm_up() {
    for (steps, more, out) in [
        (12, "", 3),
        (40, "", 5),
        (12, "warmup_steps = 1", 1),
        (12, "warmup_steps = 7", 7),
        (12, "warmup_steps = 100", 11),
    ] {
        let text = format!("name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist\"\nsteps = {steps}\n{more}\n");
        let experiment = Experiment::parse("e.toml", &text).unwrap();
        let (mut all, mut counted) = (Vec::new(), Vec::new());
        let note = |_: &Configuration, measured: &mut MeasuredTraining| {
            counted = measured.run.timeline.step_times_s();
            // The first step begins before its ranks are ready and is never counted.
            all = Timeline::of(measured.run.timeline.spans.clone(), 1).step_times_s();
            Ok(())
        };
        let rows = rows(&experiment, &Operation::default(), &mut Launch::Threads, note).unwrap();
        assert_eq!((all.len(), counted.as_slice()), (steps - 1, &all[out - 1..]), "{more}");
        assert_eq!(rows[0].step_time_s, median(counted), "{more}");
    }
}
