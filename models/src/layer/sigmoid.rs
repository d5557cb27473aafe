//! Sigmoid: 1 / (1 + e⁻ˣ).

use super::*;

pub(super) struct Sigmoid;

pub(super) const KIND: Kind = Kind {
    reads_output: true,
    family: "curve",
    overwrites: 1,
    onnx: &[("Sigmoid", |_| Ok(Layer::Sigmoid))],
    caffe: CaffeKind::new(&["Sigmoid", "SIGMOID"], &["sigmoid_param"], "", |_| Ok(Layer::Sigmoid)),
    ..Kind::new("sigmoid", |_| Ok(Layer::Sigmoid))
};

impl LayerRule for Sigmoid {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    /// Forward 4 FLOPs an element, the exponential counted as one; backward 3, from gradient and output.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        match pass {
            Pass::Forward => Work::of(4.0 * of.input, of.input, of.output),
            Pass::BackwardData => Work::of(3.0 * of.input, 2.0 * of.input, of.input),
            Pass::BackwardWeight => Work::default(),
        }
    }
}
