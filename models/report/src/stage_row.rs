//! Defines the rows of `models plan`: the stages of a pipeline.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A row of `models plan`: a stage, its figures summed over its chunks of layers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StageRow {
    /// The stage, from 0.
    pub stage: u32,
    /// By chunk: its first and its last layer, e.g. `conv1..pool2`.
    pub layers: Vec<String>,
    /// Learnable parameters.
    pub parameters: u64,
    /// 10⁹ floating-point operations of one sample's forward pass, a multiply-add being two.
    #[serde(rename = "forward_GFLOP_per_sample")]
    pub forward_gflop: f64,
    /// The same of its backward passes.
    #[serde(rename = "backward_GFLOP_per_sample")]
    pub backward_gflop: f64,
    /// fp32 activations that it sends to the next stage in a forward pass, those included that later stages read and it only hands on.
    pub sent_bytes_per_sample: u64,
    /// The same of all samples of a micro-batch.
    #[serde(rename = "sent_MiB_per_micro_batch")]
    pub sent_mib: f64,
    /// The most activations in flight: pairs of a chunk and a micro-batch that went forward and not yet backward.
    pub in_flight: u32,
    /// Share of a step in which it waits, from 0 to 1, if every FLOP takes as long and messages take no time.
    pub idle_share: f64,
}

impl Row for StageRow {}
