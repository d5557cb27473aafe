//! Which parameters a stage of the pipeline has, and what each rank of it keeps of them for good.

use crate::decoder::Decoder;
use crate::layout::Layout;
use crate::part::{Live, Part};
use crate::stack::{Holding, Stack};

/// Layers of a stage: equal numbers, the first ones one more where they do not divide.
pub(super) fn layers(decoder: &Decoder, layout: &Layout, stage: u64) -> u64 {
    decoder.layers / layout.pipeline + u64::from(stage < decoder.layers % layout.pipeline)
}

/// The parameters of a rank of a stage.
pub(crate) fn holding(decoder: &Decoder, layout: &Layout, stack: &dyn Stack, stage: u64) -> Holding {
    let (first, last) = (stage == 0, stage + 1 == layout.pipeline);
    let table = stack.table(decoder, layout);
    let positions = decoder.learned_positions.unwrap_or(0) * decoder.hidden;
    // A tied table is on both ends of a pipeline.
    let head = last && (!decoder.tied || !first);
    Holding {
        layers: layers(decoder, layout, stage),
        matrices: decoder.matrices.div_ceil(layout.tensor),
        vectors: decoder.vectors,
        embedding: if first { table + positions } else { 0 },
        head: if head { table } else { 0 },
        last_vectors: if last { decoder.last_vectors } else { 0 },
        adapters: layout.lora.as_ref().map_or(0, |lora| lora.parameters(decoder).div_ceil(layout.tensor)),
    }
}

/// What a rank keeps of its parameters through the step.
pub(super) fn kept(holding: &Holding, layout: &Layout, stack: &dyn Stack) -> Live {
    let states = stack.states(layout);
    let (trained, weights) = match layout.lora {
        Some(_) => {
            let trained = holding.layers * holding.adapters;
            (trained, states.weights.of(trained) + stack.frozen(holding, layout))
        }
        None => (holding.all(), stack.weights(holding, layout)),
    };
    Live::of(Part::Weights, weights)
        + Live::of(Part::Gradients, states.gradients.of(trained))
        + Live::of(Part::Optimizer, states.optimizer.of(trained))
}

/// What is there besides while the optimizer steps.
pub(super) fn step(holding: &Holding, layout: &Layout, stack: &dyn Stack) -> Live {
    let trained = if layout.lora.is_some() { holding.layers * holding.adapters } else { holding.all() };
    Live::of(Part::Temporaries, stack.states(layout).step.of(trained))
}
