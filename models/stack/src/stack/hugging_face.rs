//! What models of Hugging Face's transformers keep, whatever trains them: layers of plain operators, scores in fp32.

use crate::decoder::Decoder;
use crate::layout::{Layout, Loss};
use crate::stack::Head;
use crate::stack::eager::{Eager, dequantised};

/// A layer: norms on copies in fp32, written as products; separate products for queries, keys and values.
pub(super) const LAYER: Eager = Eager {
    norm_input: 4,
    norm_of_products: true,
    joined: false,
    repeated: false,
    one_adapter: false,
    compiled: false,
};

/// Gradients of activations in a layer's backward pass.
pub(super) fn backward(decoder: &Decoder, layout: &Layout) -> u64 {
    LAYER.backward(decoder, layout)
}

/// Scores and loss: scores are copied to fp32, whose log-softmax stays; its gradient and that of the loss join it.
pub(super) fn head(decoder: &Decoder, layout: &Layout, loss: Loss) -> Head {
    let (tokens, element) = (layout.tokens(), layout.element());
    let scores = tokens * decoder.vocabulary;
    let features = tokens * decoder.hidden * element;
    let (kept, forward, most) = match loss {
        Loss::Plain => (4 * scores, (element + 8) * scores, 12 * scores),
        Loss::Fused => (element * scores, 2 * element * scores, 2 * element * scores),
        // A loss that takes tokens in pieces of about h / V of them, and makes gradients in its forward pass (Hsu et al. 2024).
        Loss::Chunked => {
            let pieces = decoder.vocabulary.div_ceil(decoder.hidden.max(1)).max(1);
            (features, 12 * scores / pieces, features)
        }
    };
    let last = 3 * features;
    let table = dequantised(decoder, layout);
    Head { kept: last + kept, forward: last + forward, backward: last + most + features + table }
}
