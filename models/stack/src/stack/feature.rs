//! `Feature`: a part of a layout that only some stacks have; which parts have no effect without another.

use lockstep_models::Recompute;
use lockstep_topology::InputError;

use crate::layout::{AttentionKernel, Layout, Sharding};
use crate::numbers::{Optimizer, Precision};

/// A part of a layout that only some stacks have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Ranks that split products.
    Tensor,
    /// Stages.
    Pipeline,
    /// Ranks that split positions.
    Context,
    /// Positions split between products.
    SequenceParallel,
    /// Several parts of the model on a stage.
    Interleave,
    /// Gradients in 2 bytes beside master weights.
    HalfGradients,
    /// Weights in fp8 in one order.
    OneOrder,
    /// Gradients of the output layer's weight at the end of a step.
    DeferredHeads,
    /// A stated size of the bucket of gradients.
    ReduceBucket,
    /// A stated size of what is fetched ahead.
    AheadBucket,
    /// A stated most of gathered parameters.
    LiveParameters,
    /// Dropped features.
    Dropout,
    /// Compiled layers.
    Compile,
    /// Adapters.
    Adapters,
    /// Quantised frozen weights.
    Quantised,
    /// Moments in fewer bytes.
    SmallMoments,
    /// Optimizer in the host's memory.
    Offload,
    /// Parts of a layer that run again.
    Selective,
}

impl Feature {
    /// All of them.
    pub(super) const ALL: [Feature; 18] = [
        Feature::Tensor,
        Feature::Pipeline,
        Feature::Context,
        Feature::SequenceParallel,
        Feature::Interleave,
        Feature::HalfGradients,
        Feature::OneOrder,
        Feature::DeferredHeads,
        Feature::ReduceBucket,
        Feature::AheadBucket,
        Feature::LiveParameters,
        Feature::Dropout,
        Feature::Compile,
        Feature::Adapters,
        Feature::Quantised,
        Feature::SmallMoments,
        Feature::Offload,
        Feature::Selective,
    ];

    /// The flag that asks for it.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Feature::Tensor => "tp",
            Feature::Pipeline => "pp",
            Feature::Context => "cp",
            Feature::SequenceParallel => "sequence_parallel",
            Feature::Interleave => "interleave",
            Feature::HalfGradients => "half_gradients",
            Feature::OneOrder => "no_transpose_cache",
            Feature::DeferredHeads => "defer_head_gradients",
            Feature::ReduceBucket => "reduce_bucket_size",
            Feature::AheadBucket => "stage3_prefetch_bucket_size",
            Feature::LiveParameters => "stage3_max_live_parameters",
            Feature::Dropout => "dropout",
            Feature::Compile => "compile",
            Feature::Adapters => "lora",
            Feature::Quantised => "quantize",
            Feature::SmallMoments => "optimizer",
            Feature::Offload => "offload_optimizer",
            Feature::Selective => "recompute",
        }
    }

    /// Its value where the layout asks for it.
    pub(super) fn stated(self, layout: &Layout) -> Option<String> {
        let count = |count: u64| (count > 1).then(|| count.to_string());
        let flag = |stated: bool| stated.then(String::new);
        match self {
            Feature::Tensor => count(layout.tensor),
            Feature::Pipeline => count(layout.pipeline),
            Feature::Context => count(layout.context),
            Feature::SequenceParallel => flag(layout.sequence_parallel),
            Feature::Interleave => count(layout.virtual_stages),
            Feature::HalfGradients => flag(layout.half_gradients),
            Feature::OneOrder => flag(!layout.transpose_cache),
            Feature::DeferredHeads => (layout.deferred_heads > 0).then(|| layout.deferred_heads.to_string()),
            Feature::ReduceBucket => layout.buckets.reduce.map(|of| of.to_string()),
            Feature::AheadBucket => layout.buckets.ahead.map(|of| of.to_string()),
            Feature::LiveParameters => layout.buckets.live.map(|of| of.to_string()),
            Feature::Dropout => flag(layout.dropout),
            Feature::Compile => flag(layout.compile),
            Feature::Adapters => layout.lora.as_ref().map(ToString::to_string),
            Feature::Quantised => layout.quantize.map(|of| of.to_string()),
            Feature::SmallMoments => {
                let small = matches!(layout.optimizer, Optimizer::AdamW8 | Optimizer::AdamWBf16);
                small.then(|| layout.optimizer.to_string())
            }
            Feature::Offload => flag(layout.offload),
            Feature::Selective => {
                matches!(layout.recompute, Recompute::Selective(_)).then(|| layout.recompute.to_string())
            }
        }
    }
}

/// Refuses what has no effect without another part.
///
/// # Errors
/// The flag and what it needs.
pub(super) fn together(layout: &Layout) -> Result<(), InputError> {
    let wrong = |key, value: String, message: &str| Err(InputError::flag(key, value, message));
    if layout.sequence_parallel && layout.tensor == 1 {
        return wrong("sequence_parallel", String::new(), "has no effect without tensor ranks: give tp too");
    }
    if let Some(exchange) = layout.context_exchange.filter(|_| layout.context == 1) {
        return wrong("cp_exchange", exchange.to_string(), "has no effect without context ranks: give cp too");
    }
    if layout.half_gradients && !matches!(layout.precision, Precision::Bf16 | Precision::F16 | Precision::F8) {
        return wrong("half_gradients", String::new(), "is of mixed precision: take precision bf16 or fp8");
    }
    if !layout.transpose_cache && layout.precision != Precision::F8 {
        return wrong("no_transpose_cache", String::new(), "is of weights in fp8: take precision fp8");
    }
    if layout.deferred_heads > 0 && layout.pipeline == 1 {
        let value = layout.deferred_heads.to_string();
        return wrong("defer_head_gradients", value, "has no effect without stages: give pp too");
    }
    if layout.deferred_heads > 0 && layout.lora.is_some() {
        let value = layout.deferred_heads.to_string();
        return wrong("defer_head_gradients", value, "has no effect beside adapters: the output layer is frozen");
    }
    for feature in [Feature::AheadBucket, Feature::LiveParameters] {
        if let Some(value) = feature.stated(layout).filter(|_| layout.sharding < Sharding::Parameters) {
            return wrong(feature.flag(), value, "has no effect without gathered parameters: take strategy zero-3");
        }
    }
    if layout.dropout && layout.attention == AttentionKernel::Flash && layout.lora.is_some() {
        return wrong("dropout", String::new(), "of adapters is part of lora: write dropout there");
    }
    Ok(())
}
