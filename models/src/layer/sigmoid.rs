//! Defines the sigmoid: 1 / (1 + e⁻ˣ).

use super::*;

pub(super) struct Sigmoid;

pub(super) const KIND: LayerKind = LayerKind {
    reads_output: true,
    family: "curve",
    overwrites: 1,
    onnx: &[("Sigmoid", |_| Ok(Layer::Sigmoid))],
    caffe: CaffeKind::new(&["Sigmoid", "SIGMOID"], &["sigmoid_param"], "", |_| Ok(Layer::Sigmoid)),
    flops: [4.0, 3.0, 0.0],
    ..LayerKind::new("sigmoid", |_| Ok(Layer::Sigmoid))
};

impl LayerRule for Sigmoid {}
