//! Makes rows of measured runs: trains each configuration of an experiment with each of its seeds.

#[cfg(test)]
mod tests;

use std::path::Path;

use lockstep_data::Dataset;
use lockstep_exec::replica::Evaluation;
use lockstep_experiment::trained::TrainedRun;
use lockstep_experiment::{Configuration, Experiment, Length};
use lockstep_models::{Periodic, median, quantile};
use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_report::{MeasuredRow, scaling_efficiencies};
use lockstep_topology::{Cluster, ErrorPlace, InputError};

use crate::launch::Launch;
use crate::operation::Operation;
use crate::run_failure::run_failure;
use crate::training::{MeasuredTraining, Training};

/// Places the configurations' ranks as on the experiment's cluster, so that a hierarchical method runs the same program
/// as in the simulator; on this machine all ranks share a node.
///
/// # Errors
/// An unknown cluster, more ranks than places.
pub fn lay_out(experiment: &Experiment, configurations: &mut [Configuration]) -> Result<(), InputError> {
    if experiment.on_this_machine() {
        return Ok(());
    }
    let cluster = Cluster::load(&experiment.cluster)?;
    for configuration in configurations {
        configuration.place(&cluster, experiment).map_err(|error| experiment.locate(error))?;
    }
    Ok(())
}

/// The rows of an experiment, one per configuration and seed; `each` is called with every run and its configuration.
/// Empty in processes other than rank 0's.
///
/// # Errors
/// As [`Training::run`], data that cannot be read, and those of `each`.
pub fn rows(
    experiment: &Experiment,
    operation: &Operation,
    launch: &mut Launch,
    mut each: impl FnMut(&Configuration, &mut MeasuredTraining) -> Result<(), Failure>,
) -> Result<Vec<MeasuredRow>, Failure> {
    let experiment = &launch.experiment(experiment);
    let mut configurations = experiment.configurations()?;
    lay_out(experiment, &mut configurations)?;
    launch.all(launch.check(experiment, &configurations))?;
    let model = &configurations[0].job.model;
    let located =
        |error: InputError| if error.place == ErrorPlace::Flag("data") { experiment.locate(error) } else { error };
    let weights = experiment.weights.as_ref().filter(|_| operation.resumed.is_none());
    launch.all(weights.map_or(Ok(()), |file| Dataset::check_tokenizer(&experiment.data, Path::new(file))))?;
    let loaded = Dataset::load_augmented(&experiment.data, model, experiment.augmentation);
    let (train, held_out) = Dataset::decoded_by(launch.all(loaded.map_err(located))?, experiment.decode_threads);
    let initial = match operation.resumed {
        None => launch.all(experiment.initial_values(model))?,
        Some(_) => None,
    };
    if let (Some((_, summary)), true) = (&initial, launch.prints()) {
        print_information(summary);
    }
    // Where threads prepare samples, this is done by tasks of the program.
    let experiment = &Experiment {
        loaded: Some(Dataset::sizes((&train, &held_out))),
        cores: Some(launch.cores()),
        initial: initial.map(|(values, _)| values),
        ..experiment.clone()
    };
    let mut configurations = experiment.configurations()?;
    lay_out(experiment, &mut configurations)?;
    let (mut rows, mut keys) = (Vec::new(), Vec::new());
    for configuration in &configurations {
        let first = rows.len();
        for more in 0..u64::from(experiment.seeds) {
            let seed = experiment.seed.wrapping_add(more);
            let (data, judges) = (&train, Some(&held_out));
            let training = Training { experiment, configuration, seed, data, held_out: judges, operation };
            let Some(mut measured) = training.run(launch)? else { continue };
            rows.push(row(experiment, &mut measured, &held_out)?);
            each(configuration, &mut measured)?;
        }
        fill_in_spread(&mut rows[first..]);
        let key = |row: &MeasuredRow| (configuration.batch_key, row.setting.ranks, row.images_per_s);
        keys.extend(rows[first..].iter().map(key));
    }
    let efficiencies = scaling_efficiencies(&keys);
    for (row, efficiency) in rows.iter_mut().zip(efficiencies) {
        row.scaling_efficiency = efficiency;
    }
    Ok(rows)
}

/// Fills in the mean and standard deviation of the error over the rows of one configuration, one per seed (Goyal et al.
/// 2017, §5.1).
fn fill_in_spread(rows: &mut [MeasuredRow]) {
    let errors: Vec<f64> = rows.iter().filter_map(|row| row.test_error_pct).collect();
    let spread = mean_and_deviation(&errors);
    for row in rows {
        row.test_error_mean_pct = spread.map(|(mean, _)| mean);
        row.test_error_std_pct = spread.map(|(_, deviation)| deviation);
        (row.error_mean_pct, row.error_std_pct) = (row.test_error_mean_pct, row.test_error_std_pct);
    }
}

/// Mean and sample standard deviation (over n − 1) of two values or more.
fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (count - 1.0)).sqrt()))
}

fn row(experiment: &Experiment, measured: &mut MeasuredTraining, held_out: &Dataset) -> Result<MeasuredRow, Failure> {
    let MeasuredTraining { configuration, program, run, seed, .. } = measured;
    let evaluation = run.evaluate(held_out).map_err(run_failure)?;
    let mut times = run.timeline.step_times_s();
    times.sort_by(f64::total_cmp);
    let step_time_s = run.timeline.step_time_s();
    let test_error_pct = test_error_pct(experiment, &run.evaluations);
    let [shuffle_s, evaluation_s, checkpoint_s] = Periodic::ALL.map(|kind| run.timeline.periodic_time_s(kind));
    let (positions, images_per_s) = (program.model.positions(), program.images_per_s(step_time_s, shuffle_s));
    Ok(MeasuredRow {
        setting: configuration.setting(),
        data: experiment.data.clone(),
        transport: experiment.transport.to_string(),
        device: experiment.computes_on()?.to_string(),
        threads_per_rank: experiment.threads_per_rank,
        training: TrainedRun { experiment, configuration, seed: *seed }.recipe(),
        learning_rate: experiment.optimizer.target_rate(program.gradient_samples()),
        seed: *seed,
        steps: (run.first + run.losses.len() as u64) as u32,
        step_time_s,
        step_time_p10_s: quantile(&times, 0.1),
        step_time_p90_s: quantile(&times, 0.9),
        shuffle_s,
        evaluation_s,
        checkpoint_s,
        images_per_s,
        tokens_per_s: positions.map(|positions| images_per_s * f64::from(positions)),
        scaling_efficiency: None,
        exposed_comm_s: run.timeline.exposed_comm_s(program),
        exposed_input_s: run.timeline.exposed_input_s(program),
        train_loss: run.losses.last().copied().unwrap_or(0.0),
        held_out_loss: evaluation.mean_loss,
        perplexity: positions.map(|_| evaluation.mean_loss.exp()),
        accuracy: evaluation.accuracy(),
        target_accuracy: experiment.target.accuracy,
        target_epochs: experiment.target.accuracy.map(|_| experiment.target.epochs),
        steps_to_target: run.is_reached().then(|| (run.first + run.losses.len() as u64) as u32),
        test_error_pct,
        test_error_mean_pct: None,
        test_error_std_pct: None,
        error_pct: test_error_pct,
        error_mean_pct: None,
        error_std_pct: None,
        restarts: program.averages().then_some(run.restarts.len() as u32),
        restart_steps: (!run.restarts.is_empty()).then(|| run.restarts.clone()),
        direct_messages: experiment.device.is_gpu().then_some(run.direct_messages),
        weights_sha256: run.weights_sha256.clone(),
        state_sha256: run.state_sha256.clone(),
    })
}

/// The error of a run by epochs: the median over its last ones (Goyal et al. 2017, §5.1), or over as many as there are.
/// Earlier evaluations of a run that was resumed, that learners joined or that checked for a target do not count.
fn test_error_pct(experiment: &Experiment, evaluations: &[Evaluation]) -> Option<f64> {
    if !matches!(experiment.length, Length::Epochs(_)) {
        return None;
    }
    let earlier = evaluations.len().saturating_sub(experiment.judged_epochs as usize);
    let errors: Vec<f64> = evaluations[earlier..].iter().map(|one| 100.0 * (1.0 - one.accuracy())).collect();
    (!errors.is_empty()).then(|| median(errors))
}
