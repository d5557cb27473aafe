//! Defines a row of `compare`.

use schemars::JsonSchema;
use serde::Serialize;

use lockstep_report::{Row, Setting};

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
