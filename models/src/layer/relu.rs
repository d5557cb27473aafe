//! Rectified linear unit: max(x, 0).

use super::{CaffeKind, Kind, Layer, LayerRule, Pass, Sizes, Work};

pub(super) struct Relu;

pub(super) const KIND: Kind = Kind {
    onnx: &[("Relu", |_| Ok(Layer::Relu))],
    caffe: Some(CaffeKind {
        types: &["ReLU", "RELU"],
        own: &["relu_param"],
        fields: &["negative_slope", "engine"],
        read: |of| match of.number("negative_slope")? {
            Some(slope) if slope != 0.0 => {
                Err(of.refuse("negative_slope", "a ReLU is flat below zero here: leave it out"))
            }
            _ => Ok(Layer::Relu),
        },
    }),
    ..Kind::plain("relu", |_| Ok(Layer::Relu))
};

impl LayerRule for Relu {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    /// One FLOP an element; backward reads gradient and output.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        match pass {
            Pass::Forward => Work::of(of.input, of.input, of.output),
            Pass::BackwardData => Work::of(of.input, of.input + of.output, of.input),
            Pass::BackwardWeight => Work::default(),
        }
    }

    fn reads_output(&self) -> bool {
        true
    }

    fn overwrites(&self, _: usize) -> usize {
        1
    }

    fn joins(&self, chain: &[&Layer]) -> bool {
        chain.last().is_some_and(|last| last.rule().takes_relu())
    }
}
