//! Defines the rows of `sim sweep`: one for each point in its file, and those of the front on standard output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Row;
use super::row::{SETTING, Setting};

/// A line of the file that `sim sweep --out` writes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SweepRow {
    /// Which sweep: twelve digits of the SHA-256 of everything that decides its rows.
    pub sweep: String,
    /// Which point of it, from 0, which is also the row's place in the file.
    pub point: u64,
    /// The cluster as it was asked for.
    pub cluster: String,
    /// What of it was multiplied, as in `nic=2 gpu=1`; `-`: nothing.
    pub scale: String,
    /// The configuration; of a refused one, 0 for what is not known.
    #[serde(flatten)]
    pub setting: Setting,
    /// Bytes per lane of an exchange, `auto`: the algorithm's own choice.
    pub chunk: String,
    /// Exchanges in flight at once.
    pub concurrent_exchanges: u32,
    /// How transfers share links.
    pub network: String,
    /// Ranks, dedicated servers included: as many GPUs, or cores where there are none, as the job has for itself.
    pub total_ranks: u32,
    /// Median seconds per step.
    pub step_time_s: Option<f64>,
    /// Samples per second over all ranks.
    pub images_per_s: Option<f64>,
    /// Images per second and rank relative to the first row that differs in ranks and the cluster's size alone, which is
    /// the one with the fewest ranks.
    pub scaling_efficiency: Option<f64>,
    /// Seconds per step in which a rank's computation waits for communication.
    pub exposed_comm_s: Option<f64>,
    /// Seconds per step in which it waits for the batch that it loads next; only where `[input]` says how samples reach devices.
    pub exposed_input_s: Option<f64>,
    /// What bounds the step: the resource that is busy longest, `waiting: latency` or `waiting: imbalance`.
    pub bound: Option<String>,
    /// For which share of the step, from 0 to 1.
    pub bound_utilisation: Option<f64>,
    /// Bytes that the ranks on the device with the fullest memory need.
    pub memory_bytes: Option<u64>,
    /// Whether that device has them; `null` where its memory is unknown.
    pub fits_memory: Option<bool>,
    /// Ranks that were simulated; the others are equal to them.
    pub simulated_ranks: Option<u32>,
    /// Why there are no figures, where the point cannot be.
    pub refused: Option<String>,
}

impl SweepRow {
    /// The row as a line of JSON.
    pub fn json_line(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text + "\n",
            Err(error) => unreachable!("a row is a plain struct: {error}"),
        }
    }

    /// The row with the figures of another one, whose point is the same.
    pub fn with_figures_of(self, other: &SweepRow) -> SweepRow {
        SweepRow {
            sweep: self.sweep,
            point: self.point,
            cluster: self.cluster,
            scale: self.scale,
            setting: self.setting,
            chunk: self.chunk,
            concurrent_exchanges: self.concurrent_exchanges,
            network: self.network,
            total_ranks: self.total_ranks,
            ..other.clone()
        }
    }
}

/// The columns that tables show once where all rows agree, beside those of other rows.
const SHOWN_ONCE: &[&str] = &["sweep", "scale", "chunk", "concurrent_exchanges", "batch_per_rank", "global_batch"];

impl Row for SweepRow {
    const SETTING: &'static [&'static str] = SETTING;
    const OWN_SETTING: &'static [&'static str] = SHOWN_ONCE;
}

/// A row of `sim sweep`: a point of a front.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FrontRow {
    /// The point.
    #[serde(flatten)]
    pub row: SweepRow,
    /// The front's throughput with up to twice as many ranks over that of this point; `null` where the sweep has no point
    /// with twice as many.
    pub doubling_gain: Option<f64>,
    /// Whether this is the front's knee: from here on no doubling gains 1.5.
    pub knee: bool,
    /// Cost of a million samples, in the currency of the price of a device for an hour; `null` without one.
    pub cost_per_million_samples: Option<f64>,
    /// Cost of a pass over the training samples; `null` where their number is not known.
    pub cost_per_epoch: Option<f64>,
}

impl Row for FrontRow {
    const SETTING: &'static [&'static str] = SETTING;
    const OWN_SETTING: &'static [&'static str] = SHOWN_ONCE;
}
