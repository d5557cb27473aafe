//! Defines the rows of each command, one struct per kind; a field's name is its column, unit included.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Row;
use super::explanation::{ClassFigures, Explanation, SensitivityFigures};

/// Which configuration a row is about.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Name of the model, with `in bf16` or the like where it is not trained in fp32.
    pub model: String,
    /// How training is spread over ranks.
    pub strategy: String,
    /// Learners on each device, all of which are ranks.
    pub learners: u32,
    /// Ranks that train, dedicated servers not counted.
    pub ranks: u32,
    /// Samples per rank and micro-batch.
    pub batch_per_rank: u32,
    /// Micro-batches per step and rank.
    pub accumulate: u32,
    /// Samples per step over all ranks.
    pub global_batch: u64,
    /// Method of the allreduce; `-` where there is a single rank.
    pub algorithm: String,
    /// How gradients are cut into exchanges.
    pub bucket: String,
    /// Which activations are computed again; only where some are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute: Option<String>,
}

/// Columns of [`Setting`] and its neighbours that tables show once where all rows agree.
pub(super) const SETTING: &[&str] = &[
    "model",
    "strategy",
    "learners",
    "accumulate",
    "bucket",
    "recompute",
    "cluster",
    "network",
    "precision",
    "data",
    "transport",
    "device",
    "threads_per_rank",
    "training",
    "seed",
    "steps",
];

/// A row of `sim predict`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct PredictedRow {
    /// The configuration.
    #[serde(flatten)]
    pub setting: Setting,
    /// The whole cluster: its name, number of hosts and networks, e.g. `dgx-h100:8@infiniband-ndr`.
    pub cluster: String,
    /// How transfers share links.
    pub network: String,
    /// The number format of activations and factors.
    pub precision: String,
    /// The scenario, `none` for the undisturbed run; `null` where the experiment has none.
    pub scenario: Option<String>,
    /// The step's time over that of the undisturbed run: of means where there are trials, else of medians.
    pub scenario_factor: Option<f64>,
    /// Median seconds per step.
    pub step_time_s: f64,
    /// Number of simulations with noise; `null` in this and the next columns where nothing varies.
    pub trials: Option<u32>,
    /// Mean seconds per step over all trials.
    pub step_time_mean_s: Option<f64>,
    /// Standard error of that mean; of two trials and more.
    pub step_time_se_s: Option<f64>,
    /// Seconds that 5 % of the steps stay below.
    pub step_time_p05_s: Option<f64>,
    /// Seconds that 50 % of the steps stay below.
    pub step_time_p50_s: Option<f64>,
    /// Seconds that 95 % of the steps stay below.
    pub step_time_p95_s: Option<f64>,
    /// Seconds that 99 % of the steps stay below.
    pub step_time_p99_s: Option<f64>,
    /// Mean seconds by which a step's slowest rank computes longer than ranks do on average.
    pub straggling_s: Option<f64>,
    /// Seconds of a shuffle of samples in memory, which comes on top of steps; `null` where there is none.
    pub shuffle_s: Option<f64>,
    /// Half the width of the 95 % interval that the measured costs leave of the step time, in percent of it; only of
    /// explained predictions from a profile.
    pub error_bar_pct: Option<f64>,
    /// Samples per second over all ranks, each step's share of a shuffle counted.
    pub images_per_s: f64,
    /// Tokens per second over all ranks; only of models of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Typical error of such predictions, in percent of `images_per_s`: the mean where they were measured, else assumed;
    /// tables show it behind that. Empty where it is not known.
    pub typical_error_pct: Option<f64>,
    /// Images per second and rank relative to the row with the fewest ranks of the same batch; see
    /// [`scaling_efficiencies`].
    pub scaling_efficiency: Option<f64>,
    /// Seconds per step in which a rank's computation waits for communication.
    pub exposed_comm_s: f64,
    /// Seconds per step in which it waits for the batch that it loads next; `null` where batches are there.
    pub exposed_input_s: Option<f64>,
    /// What bounds the step: the resource that is busy longest, `waiting: latency` or `waiting: imbalance`.
    pub bound: String,
    /// For which share of the step, from 0 to 1.
    pub bound_utilisation: f64,
    /// Optimizer steps to the accuracy of `--target`, the mean of the runs that it is known from.
    pub steps_to_target: Option<f64>,
    /// Seconds of training until then.
    pub time_to_target_s: Option<f64>,
    /// Lower end of the 95 % interval of that mean, as far as runs differ and the prediction has an error bar.
    pub time_to_target_low_s: Option<f64>,
    /// Upper end of it.
    pub time_to_target_high_s: Option<f64>,
    /// Cost of a million samples, in the currency of the price of a device for an hour; `null` without one.
    pub cost_per_million_samples: Option<f64>,
    /// Cost of a pass over the training samples; `null` where their number is not known.
    pub cost_per_epoch: Option<f64>,
    /// Bytes that the ranks on the device with the fullest memory need.
    pub memory_bytes: u64,
    /// Whether that device has them; `null` where its memory is unknown.
    pub fits_memory: Option<bool>,
    /// The published figure in images/s, where the experiment cites one.
    pub published_images_per_s: Option<f64>,
    /// Predicted against published, in percent of the published figure.
    pub error_pct: Option<f64>,
    /// Its explanation, with `--explain`.
    pub explanation: Option<Explanation>,
}

impl Row for PredictedRow {
    const SETTING: &'static [&'static str] = SETTING;
    const JSON_ONLY: &'static [&'static str] = &["explanation"];
    const BARS: &'static [(&'static str, &'static str)] = &[("images_per_s", "typical_error_pct")];
}

/// A row of `exec run`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredRow {
    /// The configuration.
    #[serde(flatten)]
    pub setting: Setting,
    /// The data trained on.
    pub data: String,
    /// How messages travel: `threads` or `mpi`.
    pub transport: String,
    /// What computes.
    pub device: String,
    /// Threads of each rank.
    pub threads_per_rank: u32,
    /// The optimizer in full (rate, scaling, warm-up, decay, momentum, weight decay) and how parameters start.
    pub training: String,
    /// Learning rate that scaling gives at this global batch, before warm-up and decay.
    pub learning_rate: f64,
    /// Seed of initial parameters, of the order of the samples and of dropout.
    pub seed: u64,
    /// Optimizer steps that were run.
    pub steps: u32,
    /// Median seconds per step, the first steps left out.
    pub step_time_s: f64,
    /// The tenth percentile of the step times.
    pub step_time_p10_s: f64,
    /// The ninetieth percentile of the step times.
    pub step_time_p90_s: f64,
    /// Median seconds of a shuffle of samples in memory; `null` in this and the next two columns where there was none.
    pub shuffle_s: Option<f64>,
    /// Median seconds of an evaluation on held-out samples between two steps.
    pub evaluation_s: Option<f64>,
    /// Median seconds in which a checkpoint was collected and written.
    pub checkpoint_s: Option<f64>,
    /// Samples per second over all ranks, each step's share of a shuffle counted.
    pub images_per_s: f64,
    /// Tokens per second over all ranks; only of models of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Images per second and rank relative to the row with the fewest ranks of the same batch.
    pub scaling_efficiency: Option<f64>,
    /// Seconds per step in which a rank's computation waits for communication.
    pub exposed_comm_s: f64,
    /// Seconds per step in which it waits for the batch that it loads next; `null` where batches are there.
    pub exposed_input_s: Option<f64>,
    /// Mean loss of the last step's global batch.
    pub train_loss: f64,
    /// Mean loss on held-out samples.
    pub held_out_loss: f64,
    /// e to the power of that loss, of a token; only of models of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// Share of held-out samples, or tokens, that are classified correctly, from 0 to 1, after the last step.
    pub accuracy: f64,
    /// The accuracy at which the run was to end; `null` without one.
    pub target_accuracy: Option<f64>,
    /// Epochs whose median accuracy, after each of the last of them, had to be that high; `null` without a target.
    pub target_epochs: Option<u32>,
    /// Optimizer steps after which it was, at the end of an epoch; `null` where it was not.
    pub steps_to_target: Option<u32>,
    /// Percent of held-out samples that are not: the median after each of the last five epochs, so that it need not be what
    /// `accuracy` leaves; only of runs by epochs.
    pub test_error_pct: Option<f64>,
    /// Mean of `test_error_pct` over the configuration's seeds; only of several.
    pub test_error_mean_pct: Option<f64>,
    /// Their sample standard deviation.
    pub test_error_std_pct: Option<f64>,
    /// `test_error_pct` by its former name, in JSON for one release.
    pub error_pct: Option<f64>,
    /// `test_error_mean_pct` by its former name, in JSON for one release.
    pub error_mean_pct: Option<f64>,
    /// `test_error_std_pct` by its former name, in JSON for one release.
    pub error_std_pct: Option<f64>,
    /// How often learners began again at their average model, because it had not improved when the rate fell; `null` where
    /// all ranks train one model.
    pub restarts: Option<u32>,
    /// After which steps, counted since training began; `null` where they never did.
    pub restart_steps: Option<Vec<u64>>,
    /// Messages of exchanges that went from one GPU's memory to another's, past the host; `null` where nothing computes on GPUs.
    pub direct_messages: Option<u64>,
    /// SHA-256 of the learnable parameters.
    pub weights_sha256: String,
    /// SHA-256 of all state: parameters, optimizer, running statistics.
    pub state_sha256: String,
}

impl Row for MeasuredRow {
    const SETTING: &'static [&'static str] = SETTING;
    const JSON_ONLY: &'static [&'static str] = &["error_pct", "error_mean_pct", "error_std_pct"];
}

/// A row of `sim collective` and `exec collective`: the columns of nccl-tests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct CollectiveRow {
    /// `predicted` or `measured`.
    pub source: String,
    /// What holds afterwards.
    pub collective: String,
    /// How it is done.
    pub algorithm: String,
    /// Where: the cluster's name, or the transport.
    pub on: String,
    /// Members.
    pub ranks: u32,
    /// Size of the buffer.
    pub bytes: u64,
    /// Microseconds from the common start to the last member's end; measured: the median.
    pub time_us: f64,
    /// The tenth percentile of the measured times.
    pub time_p10_us: Option<f64>,
    /// The ninetieth percentile of the measured times.
    pub time_p90_us: Option<f64>,
    /// Bytes over time, in 10⁹ bytes per second.
    #[serde(rename = "algbw_GBps")]
    pub algbw: f64,
    /// `algbw_GBps` times the share of the buffer that each wire must carry at least: comparable between rank counts.
    #[serde(rename = "busbw_GBps")]
    pub busbw: f64,
    /// Elements that differ from what the collective means; measured only.
    pub wrong: Option<u64>,
    /// What bounds the time: the busiest resource, or `waiting: latency` for messages under way elsewhere; predicted only.
    pub bound: Option<String>,
    /// For which share of the time, from 0 to 1.
    pub bound_utilisation: Option<f64>,
    /// With `--explain`: resources by class, the class with the busiest resource first.
    pub in_use: Option<Vec<ClassFigures>>,
    /// With `--explain`: sensitivities of the time, the strongest first: d log time / d log parameter.
    pub reacts_to: Option<Vec<SensitivityFigures>>,
    /// With `--explain`: parameters without effect on it.
    pub does_not_react_to: Option<Vec<String>>,
    /// With `--explain`: sensitivities to rates minus those to times: −1 but for messages that change places.
    pub sensitivity_sum: Option<f64>,
}

impl Row for CollectiveRow {
    const SETTING: &'static [&'static str] = &["source", "collective", "algorithm", "on", "ranks", "wrong"];
    const BELOW: &'static [&'static str] = &["in_use", "reacts_to", "does_not_react_to", "sensitivity_sum"];
}

/// Throughput per rank relative to that of the fewest ranks with an equal batch.
///
/// For each row (key of its batch, ranks, images/s): images/s/ranks over the same of the row of that key with the fewest
/// ranks, which is 1 there; with an equal batch per rank this is the weak, with an equal global batch the strong scaling
/// efficiency. `None` where a key has one row only and that is not of a single rank, since there is nothing to compare.
pub fn scaling_efficiencies(rows: &[(u64, u32, f64)]) -> Vec<Option<f64>> {
    let of = |(key, ranks, images_per_s): &(u64, u32, f64)| {
        let alike = || rows.iter().filter(|row| row.0 == *key);
        let (_, fewest, base) = alike().min_by_key(|row| row.1)?;
        let compares = *fewest == 1 || alike().any(|row| row.1 != *fewest);
        let each = |images: f64, ranks: u32| images / f64::from(ranks);
        compares.then(|| each(*images_per_s, *ranks) / each(*base, *fewest)).filter(|efficiency| efficiency.is_finite())
    };
    rows.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efficiency_is_relative_to_the_fewest_ranks() {
        // Batch 16: 100 images/s on 1 rank, 160 on 2: each rank does 80 % of its best. Batch 64: 8 and 16 ranks.
        let rows = [(16, 1, 100.0), (64, 8, 800.0), (16, 2, 160.0), (64, 16, 1200.0), (32, 4, 1.0)];
        let expected = [Some(1.0), Some(1.0), Some(0.8), Some(0.75), None];
        assert_eq!(scaling_efficiencies(&rows), expected);
    }
}
