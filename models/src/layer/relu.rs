//! Defines the rectified linear unit: max(x, 0).

use super::*;

pub(super) struct Relu;

pub(super) const KIND: LayerKind = LayerKind {
    reads_output: true,
    overwrites: 1,
    onnx: &[("Relu", |_| Ok(Layer::Relu))],
    caffe: CaffeKind::new(&["ReLU", "RELU"], &["relu_param"], "negative_slope engine", |of| {
        match of.number("negative_slope")? {
            Some(slope) if slope != 0.0 => Ok(Layer::LeakyRelu(LeakyRelu { slope })),
            _ => Ok(Layer::Relu),
        }
    }),
    ..LayerKind::new("relu", |_| Ok(Layer::Relu))
};

impl LayerRule for Relu {
    fn joins(&self, chain: &[&Layer]) -> bool {
        chain.last().is_some_and(|last| last.rule().kind().takes_relu)
    }
}
