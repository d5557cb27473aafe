//! Hyperbolic tangent: (eˣ − e⁻ˣ) / (eˣ + e⁻ˣ).

use super::sigmoid::Sigmoid;
use super::{CaffeKind, Kind, Layer, LayerRule, Pass, Sizes, Work};

pub(super) struct Tanh;

pub(super) const KIND: Kind = Kind {
    onnx: &[("Tanh", |_| Ok(Layer::Tanh))],
    caffe: Some(CaffeKind { types: &["TanH", "TANH"], own: &["tanh_param"], fields: &[], read: |_| Ok(Layer::Tanh) }),
    ..Kind::plain("tanh", |_| Ok(Layer::Tanh))
};

impl LayerRule for Tanh {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    /// As much as a sigmoid.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        Sigmoid.work(pass, of)
    }

    fn reads_output(&self) -> bool {
        true
    }

    fn overwrites(&self, _: usize) -> usize {
        1
    }

    fn family(&self) -> &'static str {
        Sigmoid.family()
    }
}
