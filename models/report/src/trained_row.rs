//! Defines the rows of `exec sweep`: one for each epoch of a run in its file, one for each arm on standard output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Row;
use super::row::Setting;

/// A line of the file that `exec sweep --out` writes: a run after one of its epochs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EpochRow {
    /// Which run: twelve digits of the SHA-256 of everything that decides what it trains.
    pub run: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the arm, `-` where there are none.
    pub arm: String,
    /// Of initial parameters, of the order of the samples and of dropout.
    pub seed: u64,
    /// Epochs done.
    pub epoch: u32,
    /// Optimizer steps done.
    pub steps: u64,
    /// Samples that these trained on.
    pub images: u64,
    /// Mean loss over the epoch's training samples; `null` where the run diverged.
    pub train_loss: Option<f64>,
    /// Mean loss on held-out samples.
    pub held_out_loss: Option<f64>,
    /// Share of held-out samples that are classified correctly, from 0 to 1.
    pub accuracy: Option<f64>,
    /// Percent of them that are not.
    #[serde(alias = "error_pct")]
    pub test_error_pct: Option<f64>,
    /// The step, counted from 0, in which the loss was no number and the run ended; such a run has this one row.
    pub diverged_step: Option<u64>,
    /// Median seconds per step of the run.
    pub step_time_s: Option<f64>,
    /// The configuration.
    #[serde(flatten)]
    pub setting: Setting,
    /// Learners on each device from an epoch on, as in `2@3 4@6`; `-` where their number stays.
    pub growth: String,
    /// What is trained on.
    pub data: String,
    /// Who draws samples together.
    pub sampling: String,
    /// Whether batch norm's statistics are recomputed before each evaluation.
    pub recompute_bn: bool,
    /// The rate after warm-up and before any decay.
    pub learning_rate: f64,
    /// Rates, momentum, decays and initial values.
    pub training: String,
    /// SHA-256 of the learnable parameters; of the last epoch alone.
    pub weights_sha256: Option<String>,
    /// What made the row.
    pub command: String,
}

impl EpochRow {
    /// Whether no further epoch follows.
    pub fn ends_run(&self) -> bool {
        self.weights_sha256.is_some() || self.diverged_step.is_some()
    }
}

impl Row for EpochRow {}

/// A row of `exec sweep`: all runs of one configuration of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ArmRow {
    /// Name of the arm, `-` where there are none.
    pub arm: String,
    /// Ranks that train.
    pub ranks: u32,
    /// Samples per step over all ranks.
    pub global_batch: u64,
    /// The rate after warm-up and before any decay.
    pub learning_rate: f64,
    /// Epochs of a run.
    pub epochs: u32,
    /// Runs, a seed each, those that diverged included.
    pub runs: u32,
    /// Runs whose loss was no number.
    pub diverged: u32,
    /// Percent of held-out samples that are classified wrongly after the last epoch, mean over the runs that did not diverge.
    pub test_error_mean_pct: Option<f64>,
    /// Half the width of that mean's 95 % interval (Student's); of two runs or more.
    pub test_error_interval_pct: Option<f64>,
    /// `test_error_mean_pct` by its former name, in JSON for one release.
    pub error_mean_pct: Option<f64>,
    /// `test_error_interval_pct` by its former name, in JSON for one release.
    pub error_interval_pct: Option<f64>,
    /// Seconds of training, evaluations left out, mean over the same runs.
    pub seconds: Option<f64>,
}

impl Row for ArmRow {
    const SETTING: &'static [&'static str] = &["ranks", "epochs", "runs"];
    const JSON_ONLY: &'static [&'static str] = &["error_mean_pct", "error_interval_pct"];
}

#[cfg(test)]
mod tests {
    use super::super::csv::CsvForm;
    use super::*;

    #[test]
    fn rows_round_trip() {
        let mut fields = serde_json::to_value(EpochRow::default()).unwrap();
        let texts = fields.as_object_mut().unwrap().values_mut().filter(|value| value.is_string());
        texts.for_each(|text| *text = "no warm-up, \"large\"".into());
        let row: EpochRow = serde_json::from_value(fields).unwrap();
        let whole = EpochRow { accuracy: Some(0.5), weights_sha256: Some("00".to_owned()), ..row };
        let torn = EpochRow { diverged_step: Some(7), weights_sha256: None, ..whole.clone() };
        let form = CsvForm::of(&EpochRow::default());
        for row in [whole, torn] {
            assert_eq!(form.row(form.line(&row).trim_end()).as_ref(), Some(&row));
            assert!(row.ends_run());
        }
        assert_eq!(form.row("1,2"), None);
    }
}
