//! Defines a row of `compare`.

use schemars::JsonSchema;
use serde::Serialize;

use lockstep_exec::replica::Evaluation;
use lockstep_experiment::Experiment;
use lockstep_measure::training::MeasuredTraining;
use lockstep_models::{INPUT_WAIT, Periodic, Timeline, WAIT, median, quantile};
use lockstep_report::{PredictedRow, Row, Setting};

use super::Compared;

/// One configuration, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CompareRow {
    /// The configuration.
    #[serde(flatten)]
    pub setting: Setting,
    /// The data trained on.
    pub data: String,
    /// How messages travel: `threads` or `mpi`.
    pub transport: String,
    /// Seed of initial parameters and of the order of the samples.
    pub seed: u64,
    /// Optimizer steps of each round.
    pub steps: u32,
    /// Predicted seconds per step.
    pub predicted_step_time_s: f64,
    /// Measured median seconds per step.
    pub step_time_s: f64,
    /// Predicted against measured step time, in percent of the measured one.
    pub error_pct: f64,
    /// The tenth percentile of the measured step times.
    pub step_time_p10_s: f64,
    /// The ninetieth percentile of the measured step times.
    pub step_time_p90_s: f64,
    /// Predicted seconds of a shuffle of samples in memory; `null` in this and the next two columns where there is none.
    pub predicted_shuffle_s: Option<f64>,
    /// Measured median seconds of a shuffle; `null` also where no measured run is long enough for one.
    pub shuffle_s: Option<f64>,
    /// Predicted against measured seconds of a shuffle, in percent of the measured ones.
    pub shuffle_error_pct: Option<f64>,
    /// Predicted samples per second over all ranks.
    pub predicted_images_per_s: f64,
    /// Measured samples per second over all ranks.
    pub images_per_s: f64,
    /// Predicted images per second and rank relative to the row with the fewest ranks of the same batch.
    pub predicted_scaling_efficiency: Option<f64>,
    /// The same, measured.
    pub scaling_efficiency: Option<f64>,
    /// Predicted seconds per step in which a rank's computation waits for communication.
    pub predicted_exposed_comm_s: f64,
    /// The same, measured.
    pub exposed_comm_s: f64,
    /// Predicted seconds per step in which it waits for the batch that it loads next; `null` in this and the next column where
    /// batches are there.
    pub predicted_exposed_input_s: Option<f64>,
    /// The same, measured.
    pub exposed_input_s: Option<f64>,
    /// What could not be measured undisturbed, although it was repeated: `training`, and figures of the calibration that this
    /// prediction rests on; `null` where all could.
    pub disturbed: Option<String>,
    /// The resource that the prediction says is used most.
    pub bound: String,
    /// Share of held-out samples classified correctly after the measured steps, from 0 to 1.
    pub accuracy: f64,
    /// SHA-256 of the learnable parameters, the same in every round.
    pub weights_sha256: String,
}

impl Row for CompareRow {
    const SETTING: &'static [&'static str] =
        &["model", "strategy", "learners", "accumulate", "bucket", "data", "transport", "seed", "steps", "bound"];
}

impl CompareRow {
    /// The row of a configuration: its prediction, and the medians over all steps of its rounds, of which `first` is the
    /// first; its scaling efficiency depends on the other rows. `disturbed` names what stayed disturbed.
    pub(super) fn of(
        experiment: &Experiment,
        of: &Compared,
        predicted: &PredictedRow,
        (first, evaluation): (&MeasuredTraining, &Evaluation),
        disturbed: &[String],
    ) -> CompareRow {
        let mut times: Vec<f64> = of.measured.iter().flat_map(Timeline::step_times_s).collect();
        times.sort_by(f64::total_cmp);
        let step_time_s = quantile(&times, 0.5);
        let shuffles = of.measured.iter().flat_map(|timeline| timeline.periodic_times_s(Periodic::Shuffle));
        let shuffles: Vec<f64> = shuffles.collect();
        let shuffle_s = (!shuffles.is_empty()).then(|| median(shuffles));
        let measured_by_kind = of.measured_by_kind();
        CompareRow {
            setting: of.configuration.setting(),
            data: experiment.data.clone(),
            transport: experiment.transport.to_string(),
            seed: experiment.seed,
            steps: first.run.losses.len() as u32,
            predicted_step_time_s: predicted.step_time_s,
            step_time_s,
            error_pct: (predicted.step_time_s / step_time_s - 1.0) * 100.0,
            step_time_p10_s: quantile(&times, 0.1),
            step_time_p90_s: quantile(&times, 0.9),
            predicted_shuffle_s: predicted.shuffle_s,
            shuffle_s,
            shuffle_error_pct: predicted.shuffle_s.zip(shuffle_s).map(|(p, m)| (p / m - 1.0) * 100.0),
            predicted_images_per_s: predicted.images_per_s,
            images_per_s: of.program.images_per_s(step_time_s, shuffle_s),
            predicted_scaling_efficiency: predicted.scaling_efficiency,
            scaling_efficiency: None,
            predicted_exposed_comm_s: predicted.exposed_comm_s,
            exposed_comm_s: measured_by_kind.get(WAIT).copied().unwrap_or(0.0),
            predicted_exposed_input_s: predicted.exposed_input_s,
            exposed_input_s: measured_by_kind.get(INPUT_WAIT).copied(),
            disturbed: (!disturbed.is_empty()).then(|| disturbed.join("; ")),
            bound: predicted.bound.clone(),
            accuracy: evaluation.accuracy(),
            weights_sha256: first.run.weights_sha256.clone(),
        }
    }
}
