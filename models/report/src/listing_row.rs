//! Defines the rows of commands that list or check: models, layers, memory, clusters, checks.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A row of `models list`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelRow {
    /// By which commands know it.
    pub name: String,
    /// Layers, input and loss included.
    pub layers: u32,
    /// Channels × height × width of a sample.
    pub input: String,
    /// Classes that it tells apart.
    pub classes: u32,
    /// Learnable parameters.
    pub parameters: u64,
    /// The same in fp32.
    #[serde(rename = "parameters_MiB")]
    pub parameters_mib: f64,
    /// 10⁹ floating-point operations of one sample's forward pass, a multiply-add being two.
    #[serde(rename = "forward_GFLOP_per_sample")]
    pub forward_gflop: f64,
    /// The same of its forward and backward passes.
    #[serde(rename = "training_GFLOP_per_sample")]
    pub training_gflop: f64,
    /// Where the model is from.
    pub source: String,
}

impl Row for ModelRow {}

/// A row of `models show`: a layer, its figures for one sample.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LayerRow {
    /// The layer's name.
    pub layer: String,
    /// Its kind.
    pub kind: String,
    /// Where its inputs come from.
    pub inputs: Vec<String>,
    /// Channels × height × width of its output.
    pub output: String,
    /// Learnable parameters.
    pub parameters: u64,
    /// Floating-point operations of the forward pass.
    pub forward_flops: f64,
    /// Of the input's gradient.
    pub backward_data_flops: f64,
    /// Of the parameters' gradients.
    pub backward_weight_flops: f64,
    /// Bytes that the forward pass reads and writes.
    pub forward_bytes: f64,
    /// Bytes that the input's gradient takes.
    pub backward_data_bytes: f64,
    /// Bytes that the parameters' gradients take.
    pub backward_weight_bytes: f64,
}

impl Row for LayerRow {}

/// A row of `models show --memory`: what one learner takes for one thing.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MemoryRow {
    /// `weights`, `gradients`, `optimizer`, `input`, `activations` (with their gradients), `scratch` (of kernels) or `total`.
    pub part: String,
    /// Where the output of every operator has a buffer of its own.
    pub unplanned_bytes: u64,
    /// As the executor lays it out.
    pub planned_bytes: u64,
    /// What is live at once at least.
    pub live_bytes: u64,
}

impl Row for MemoryRow {}

/// A row of `clusters list`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClusterRow {
    /// By which commands know it.
    pub name: String,
    /// Hosts.
    pub hosts: u32,
    /// Cores of all CPUs.
    pub cores: u64,
    /// GPUs of all hosts.
    pub gpus: u32,
    /// Switches, those inside hosts too.
    pub switches: u32,
    /// What its file says about it.
    pub description: String,
}

impl Row for ClusterRow {}

/// A row of `clusters networks`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NetworkRow {
    /// What follows the `@` behind a cluster's name.
    pub name: String,
    /// The kind of its links.
    pub kind: String,
    /// The rate of a link from a host, each way, in GB/s.
    #[serde(rename = "bandwidth_GBps")]
    pub bandwidth_gbps: f64,
    /// The latency of such a link, in microseconds.
    pub latency_us: f64,
    /// Where its figures come from.
    pub provenance: String,
}

impl Row for NetworkRow {}

/// A row of `clusters show`: one figure of one part.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DetailRow {
    /// `hosts`, `gpus`, `links`, `protocols` or `fabrics`.
    pub table: String,
    /// The part, as the file names it.
    pub item: String,
    /// Which figure, unit included.
    pub figure: String,
    /// The figure.
    pub value: String,
}

impl Row for DetailRow {}

/// A row of `doctor`, `exec devices`, `models check` and `clusters check`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CheckRow {
    /// What was looked at.
    pub check: String,
    /// `ok`, or `missing`.
    pub status: String,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where nothing needs to be done.
    pub cure: String,
}

impl Row for CheckRow {}

impl CheckRow {
    /// What is as it should be.
    pub fn ok(check: impl Into<String>, found: impl Into<String>) -> CheckRow {
        CheckRow { check: check.into(), status: "ok".to_owned(), found: found.into(), cure: String::new() }
    }

    /// What is not there, and what to do about it.
    pub fn missing(check: impl Into<String>, found: impl Into<String>, cure: impl Into<String>) -> CheckRow {
        CheckRow { check: check.into(), status: "missing".to_owned(), found: found.into(), cure: cure.into() }
    }
}
