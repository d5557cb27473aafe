//! Adds a bias per channel as a separate layer, after a sum over ranks.

use super::*;

pub(super) struct Bias;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Never,
    keys: &["bias_init"],
    family: "scale",
    flops: [1.0, 0.0, 1.0],
    ..LayerKind::new("bias", |_| Ok(Layer::Bias))
};

impl LayerRule for Bias {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, inputs[0]).with_each_feature(1))
    }

    /// A bias of a dense layer or a convolution, and decays as theirs do.
    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        vec![Learned { name: "bias", init: Init::Constant(inits.bias), decay: true }]
    }
}
