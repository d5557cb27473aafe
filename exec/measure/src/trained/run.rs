//! Trains one run of a trained sweep, and makes its rows: training losses and the accuracy after each epoch.

use std::path::Path;
use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_experiment::trained::TrainedRun;
use lockstep_experiment::{Experiment, Length};
use lockstep_models::READ_AHEAD;
use lockstep_report::EpochRow;
use lockstep_report::failure::Failure;
use lockstep_topology::{ErrorPlace, InputError};

use super::plan::Planned;
use crate::host::Cores;
use crate::launch::Launch;
use crate::operation::{Operation, STALL_LIMIT};
use crate::rows::lay_out;
use crate::training::{MeasuredTraining, Training};

/// The samples of the last run, which the next one usually shares.
#[derive(Default)]
pub struct Data {
    last: Option<(String, Arc<(Dataset, Dataset)>)>,
}

impl Data {
    /// Both parts of the data of `planned`.
    fn of(&mut self, planned: &Planned) -> Result<Arc<(Dataset, Dataset)>, InputError> {
        let (experiment, model) = (&planned.experiment, &planned.configuration.job.model);
        let key = format!("{} {} {}", experiment.data, experiment.augmentation, model.name());
        if let Some((of, data)) = &self.last
            && *of == key
        {
            return Ok(Arc::clone(data));
        }
        let located =
            |error: InputError| if error.place == ErrorPlace::Flag("data") { experiment.locate(error) } else { error };
        let loaded = Dataset::load_augmented(&experiment.data, model, experiment.augmentation).map_err(located)?;
        let data = Arc::new(Dataset::decoded_by(loaded, experiment.decode_threads));
        self.last = Some((key, Arc::clone(&data)));
        Ok(data)
    }
}

/// Trains `planned` and returns its accuracy after each epoch; `command` is recorded. A run whose loss is not finite
/// has one row, which names the step.
///
/// # Errors
/// Data that do not fit, or a rank that panics or stalls.
pub fn train(planned: &Planned, data: &mut Data, command: &str) -> Result<Vec<EpochRow>, Failure> {
    if let Some(weights) = &planned.experiment.weights {
        Dataset::check_tokenizer(&planned.experiment.data, Path::new(weights))?;
    }
    let data = data.of(planned)?;
    let loaded = Dataset::sizes((&data.0, &data.1));
    // Where threads prepare samples, this is done by tasks of the program, as many ahead as the experiment says.
    let initial = planned.experiment.initial_values(&planned.configuration.job.model)?.map(|(values, _)| values);
    let cores = Some(Cores::find().count() as u32);
    let experiment = &Experiment { loaded: Some(loaded), cores, initial, ..planned.experiment.clone() };
    let mut configurations = [planned.configuration.clone()];
    if experiment.input.is_none() {
        configurations[0].job.ahead = experiment.prepared_for(planned.configuration.job.ranks()).map(|_| READ_AHEAD);
    }
    lay_out(experiment, &mut configurations)?;
    let [configuration] = configurations;
    let mut launch = Launch::new(experiment, STALL_LIMIT)?;
    let (seed, operation) = (planned.seed, &Operation::default());
    let (configuration, samples, held_out) = (&configuration, &data.0, Some(&data.1));
    let training = Training { experiment, configuration, seed, data: samples, held_out, operation };
    let blank = blank(planned, command);
    let steps = steps_by_epoch(planned, data.0.len())?;
    match training.run(&mut launch) {
        Ok(Some(measured)) => Ok(rows(&blank, &measured, &steps)),
        Ok(None) => Ok(Vec::new()),
        Err(Failure::Diverged { step, .. }) => {
            let ends = steps.iter().scan(0, |done, (steps, _)| {
                *done += steps;
                Some(*done)
            });
            let epoch = ends.take_while(|end| *end <= step).count() as u32 + 1;
            Ok(vec![EpochRow { epoch, steps: step, diverged_step: Some(step), ..blank }])
        }
        Err(other) => Err(other),
    }
}

/// The fields that all rows of a run share.
fn blank(planned: &Planned, command: &str) -> EpochRow {
    let Planned { arm, experiment, configuration, seed, run } = planned;
    EpochRow {
        run: run.clone(),
        experiment: experiment.name.clone(),
        arm: arm.clone(),
        seed: *seed,
        setting: configuration.setting(),
        growth: if experiment.growth.is_empty() { "-".to_owned() } else { experiment.growth_text() },
        data: experiment.data_with_tokenizer(),
        sampling: experiment.sampling.to_string(),
        recompute_bn: experiment.recompute_bn,
        learning_rate: experiment.optimizer.target_rate(configuration.job.gradient_samples()),
        training: TrainedRun { experiment, configuration, seed: *seed }.recipe(),
        command: command.to_owned(),
        ..EpochRow::default()
    }
}

/// Whether the settings in a row are those of its run.
pub(super) fn has_settings_of(planned: &Planned, row: &EpochRow) -> bool {
    let own = blank(planned, &row.command);
    let figures = EpochRow {
        epoch: row.epoch,
        steps: row.steps,
        images: row.images,
        train_loss: row.train_loss,
        held_out_loss: row.held_out_loss,
        accuracy: row.accuracy,
        test_error_pct: row.test_error_pct,
        diverged_step: row.diverged_step,
        step_time_s: row.step_time_s,
        weights_sha256: row.weights_sha256.clone(),
        ..own
    };
    figures == *row
}

/// Steps of each epoch, and samples of a step.
fn steps_by_epoch(planned: &Planned, samples: usize) -> Result<Vec<(u64, u64)>, InputError> {
    let Experiment { length: Length::Epochs(epochs), .. } = planned.experiment else { return Ok(Vec::new()) };
    let mut steps = Vec::new();
    for (learners, end) in planned.experiment.stages(epochs) {
        let batch = planned.experiment.with_learners(&planned.configuration, learners)?.program()?.global_batch();
        steps.resize(end as usize, (samples as u64 / batch, batch));
    }
    Ok(steps)
}

fn rows(blank: &EpochRow, measured: &MeasuredTraining, steps: &[(u64, u64)]) -> Vec<EpochRow> {
    let run = &measured.run;
    let (mut rows, mut done, mut images) = (Vec::new(), 0, 0);
    for (evaluation, (steps, batch)) in run.evaluations.iter().zip(steps) {
        let losses = &run.losses[done as usize..(done + steps) as usize];
        (done, images) = (done + steps, images + steps * batch);
        rows.push(EpochRow {
            epoch: rows.len() as u32 + 1,
            steps: done,
            images,
            train_loss: Some(losses.iter().sum::<f64>() / losses.len() as f64),
            held_out_loss: Some(evaluation.mean_loss),
            accuracy: Some(evaluation.accuracy()),
            test_error_pct: Some(100.0 * (1.0 - evaluation.accuracy())),
            step_time_s: Some(run.timeline.step_time_s()),
            ..blank.clone()
        });
    }
    if let Some(last) = rows.last_mut() {
        last.weights_sha256 = Some(run.weights_sha256.clone());
    }
    rows
}
