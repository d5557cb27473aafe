//! Defines global average pooling: the mean of each channel, `c × h × w → c × 1 × 1`.

use super::*;

pub(super) struct GlobalPool;

pub(super) const KIND: LayerKind = LayerKind {
    family: "pooling",
    class: KernelClass::Planes { overlapping_maxima: false },
    onnx: &[("GlobalAveragePool", |_| Ok(Layer::GlobalPool))],
    ..LayerKind::new("global_pool", |_| Ok(Layer::GlobalPool))
};

impl LayerRule for GlobalPool {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, Shape::flat(inputs[0].features())))
    }

    /// One FLOP an element of the input forward, of the output backward.
    fn work(&self, of: &Sizes) -> [Work; 3] {
        [Work::of(of.input, of.input, of.output), Work::of(of.output, of.output, of.input), Work::default()]
    }
}
