//! Defines the rows of `lockstep memory`: ranks, what would make them fit, and published runs beside the account.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A row of `memory`: the ranks of one stage of the pipeline, or of neighbouring stages that take as much, at the peak of a step.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RankMemoryRow {
    /// The model.
    pub model: String,
    /// GPUs, such as `8xh100-80`.
    pub gpus: String,
    /// Whose account it is: `megatron`, `torchtitan`, `deepspeed`, `trl` or `litgpt`.
    pub stack: String,
    /// Tokens of a sequence.
    pub seq_length: u64,
    /// Sequences of a micro-batch.
    pub micro_batch_size: u64,
    /// The first of its stages, from 0.
    pub stage: u64,
    /// Ranks that take as much.
    pub ranks: u64,
    /// Layers of a rank.
    pub layers: u64,
    /// Micro-batches whose activations are there at once, at most.
    pub in_flight: f64,
    /// When a step takes most: `forward`, `loss`, `head`, `backward` or `optimizer`.
    pub when: String,
    /// Parameters that products read, and copies of them in other formats.
    pub weights_gib: f64,
    /// Gradients of parameters.
    pub gradients_gib: f64,
    /// Master weights and moments.
    pub optimizer_gib: f64,
    /// Parameters gathered from other ranks, and their gradients before they are scattered.
    pub gathered_gib: f64,
    /// Buffers of exchanges, and in which results are staged.
    pub buffers_gib: f64,
    /// Workspaces of libraries.
    pub workspace_gib: f64,
    /// Activations of attention.
    pub attention_gib: f64,
    /// Activations of the feed-forward part.
    pub feed_forward_gib: f64,
    /// Inputs and outputs of norms, and what recomputation starts from.
    pub norms_gib: f64,
    /// Scores of tokens, and what the loss keeps of them.
    pub logits_gib: f64,
    /// Gradients of activations, and activations that were computed again.
    pub temporaries_gib: f64,
    /// All of them: what tensors take.
    pub allocated_gib: f64,
    /// What the allocator has taken from the GPU for them.
    pub reserved_gib: f64,
    /// The driver's context and exchanges' own memory, outside of the allocator.
    pub context_gib: f64,
    /// The GPU's memory that programs can use.
    pub usable_gib: f64,
    /// What stays free of it; negative where it does not fit.
    pub margin_gib: f64,
    /// Whether it fits.
    pub fits: bool,
}

impl Row for RankMemoryRow {
    const SETTING: &'static [&'static str] =
        &["model", "gpus", "stack", "seq_length", "micro_batch_size", "context_gib", "usable_gib"];
}

/// A row of `memory --advise`: a change of the layout, alone and with those above it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MemoryAdviceRow {
    /// The flags that make it.
    pub change: String,
    /// What the rank that takes most has allocated with this change alone.
    pub allocated_gib: f64,
    /// What stays free there; negative where it does not fit.
    pub margin_gib: f64,
    /// Whether this change alone makes it fit.
    pub fits: bool,
    /// What stays free with this change and all above it that can be combined.
    pub together_margin_gib: f64,
    /// Whether they make it fit together.
    pub together_fit: bool,
    /// What it costs beside memory.
    pub costs: String,
}

impl Row for MemoryAdviceRow {}

/// A row of `memory --beside`: a published run beside the account.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MemoryBesideRow {
    /// What ran, as flags of this command.
    pub flags: String,
    /// The rank: `first`, `last` or `worst`.
    pub rank: String,
    /// What tensors took, where it is known.
    pub measured_allocated_gib: Option<f64>,
    /// What the account says.
    pub allocated_gib: f64,
    /// Account against run.
    pub allocated_error_pct: Option<f64>,
    /// What the allocator had taken, where it is known.
    pub measured_reserved_gib: Option<f64>,
    /// What the account says.
    pub reserved_gib: f64,
    /// Account against run.
    pub reserved_error_pct: Option<f64>,
    /// Whether it ran, where it is known.
    pub ran: Option<bool>,
    /// Whether it fits by the account.
    pub fits: bool,
}

impl Row for MemoryBesideRow {}
