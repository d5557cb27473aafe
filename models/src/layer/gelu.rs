//! Defines GELU approximated by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))) (Hendrycks and Gimpel 2016, §2).

use super::*;

pub(super) struct Gelu;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    onnx: &[("Gelu", |of| match of.word("approximate")? {
        Some("tanh") => Ok(Layer::Gelu),
        _ => Ok(Layer::ExactGelu),
    })],
    family: "curve",
    // The tanh counted as one.
    flops: [9.0, 18.0, 0.0],
    ..LayerKind::new("gelu", |_| Ok(Layer::Gelu))
};

impl LayerRule for Gelu {}
