//! Sigmoid: 1 / (1 + e⁻ˣ).

use super::{CaffeKind, Kind, Layer, LayerRule, Pass, Sizes, Work};

pub(super) struct Sigmoid;

pub(super) const KIND: Kind = Kind {
    onnx: &[("Sigmoid", |_| Ok(Layer::Sigmoid))],
    caffe: Some(CaffeKind {
        types: &["Sigmoid", "SIGMOID"],
        own: &["sigmoid_param"],
        fields: &[],
        read: |_| Ok(Layer::Sigmoid),
    }),
    ..Kind::plain("sigmoid", |_| Ok(Layer::Sigmoid))
};

impl LayerRule for Sigmoid {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    /// Forward 4 FLOPs an element, the exponential counted as one; backward 3, from gradient and output.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        match pass {
            Pass::Forward => Work::of(4.0 * of.input, of.input, of.output),
            Pass::BackwardData => Work::of(3.0 * of.input, 2.0 * of.input, of.input),
            Pass::BackwardWeight => Work::default(),
        }
    }

    fn reads_output(&self) -> bool {
        true
    }

    fn overwrites(&self, _: usize) -> usize {
        1
    }

    fn family(&self) -> &'static str {
        "curve"
    }
}
