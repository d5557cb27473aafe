//! Defines the hyperbolic tangent: (eˣ − e⁻ˣ) / (eˣ + e⁻ˣ).

use super::*;

pub(super) struct Tanh;

pub(super) const KIND: LayerKind = LayerKind {
    reads_output: true,
    family: "curve",
    overwrites: 1,
    onnx: &[("Tanh", |_| Ok(Layer::Tanh))],
    caffe: CaffeKind::new(&["TanH", "TANH"], &["tanh_param"], "", |_| Ok(Layer::Tanh)),
    // As much as a sigmoid.
    flops: [4.0, 3.0, 0.0],
    ..LayerKind::new("tanh", |_| Ok(Layer::Tanh))
};

impl LayerRule for Tanh {}
