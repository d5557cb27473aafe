//! Defines SiLU, or swish: x / (1 + e⁻ˣ) (Hendrycks and Gimpel 2016, §2).

use super::*;

pub(super) struct Silu;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    onnx: &[("Swish", |of| match of.number("alpha")? {
        None | Some(1.0) => Ok(Layer::Silu),
        Some(_) => Err(of.refuse("alpha", "must be 1: another slope is not supported")),
    })],
    caffe: CaffeKind::new(&["Swish"], &["swish_param"], "beta", |of| match of.number("beta")? {
        None | Some(1.0) => Ok(Layer::Silu),
        Some(_) => Err(of.refuse("beta", "must be 1: another slope is no layer here, and costs as much")),
    }),
    family: "curve",
    flops: [4.0, 8.0, 0.0],
    ..LayerKind::new("silu", |_| Ok(Layer::Silu))
};

impl LayerRule for Silu {}
