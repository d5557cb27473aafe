//! Parameters that PyTorch's FSDP gathers and gradients that it scatters, a layer at a time (Zhao et al. 2023).

use crate::layout::{Layout, Sharding};
use crate::stack::Holding;

/// Bytes of gathered parameters and of their gradients before they are scattered, in forward and backward passes of layers and of the
/// head; `reduced` are the bytes of an element in the input of a reduce-scatter, `root` whether tables and head stay gathered, `whole`
/// whether frozen parameters have gradients because those of their layer that train do.
pub(super) fn gathered(holding: &Holding, layout: &Layout, reduced: u64, root: bool, whole: bool) -> [u64; 3] {
    if layout.sharding < Sharding::Parameters || layout.copies() == 1 {
        return [0; 3];
    }
    let element = layout.element();
    let trains = layout.lora.is_none();
    let frozen = layout.quantize.map_or(holding.matrices * element, |format| format.bytes(holding.matrices));
    let layer = if trains { holding.layer() * element } else { frozen + holding.vectors * element };
    let gradient = |elements: u64| if trains || whole { elements * (element + reduced) } else { 0 };
    let tables = holding.embedding + holding.head + holding.last_vectors;
    let kept = if root { tables * element } else { 0 };
    // Pipelines keep a stage's layers gathered over its micro-batches; else the next layer's are fetched beside this one's.
    let layers = if layout.pipeline > 1 { holding.layers } else { holding.layers.min(2) } * layer;
    let head = if root { tables } else { holding.head.max(holding.embedding) };
    [layers + kept, layers + kept + gradient(holding.layer()), kept.max(head * element) + layer + gradient(head)]
}
