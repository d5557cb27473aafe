//! Defines global average pooling: the mean of each channel, `c × h × w → c × 1 × 1`.

use super::*;

pub(super) struct GlobalPool;

pub(super) const KIND: LayerKind = LayerKind {
    family: "pooling",
    class: KernelClass::Planes,
    onnx: &[("GlobalAveragePool", |_| Ok(Layer::GlobalPool))],
    ..LayerKind::new("global_pool", |_| Ok(Layer::GlobalPool))
};

impl LayerRule for GlobalPool {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, Shape::flat(inputs[0].features())))
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        [of.input_elements(), of.output_elements(), 0.0]
    }
}
