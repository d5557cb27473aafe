//! Hyperbolic tangent: (eˣ − e⁻ˣ) / (eˣ + e⁻ˣ).

use super::sigmoid::Sigmoid;
use super::*;

pub(super) struct Tanh;

pub(super) const KIND: Kind = Kind {
    reads_output: true,
    family: "curve",
    overwrites: 1,
    onnx: &[("Tanh", |_| Ok(Layer::Tanh))],
    caffe: CaffeKind::new(&["TanH", "TANH"], &["tanh_param"], "", |_| Ok(Layer::Tanh)),
    ..Kind::new("tanh", |_| Ok(Layer::Tanh))
};

impl LayerRule for Tanh {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    /// As much as a sigmoid.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        Sigmoid.work(pass, of)
    }
}
