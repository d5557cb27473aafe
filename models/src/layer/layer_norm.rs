//! Defines layer normalisation over the channels of each place.

use super::*;

/// Layer normalisation (Ba et al. 2016) of each place over its channels, with learnable γ (initially 1) and β (initially
/// 0) of each channel.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance under the square root.
    pub epsilon: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    class: KernelClass::Planes,
    keys: &["epsilon", "gamma_init"],
    family: "batch_norm",
    flops: [6.0, 4.0, 4.0],
    ..LayerKind::new("layer_norm", |of| {
        Ok(Layer::LayerNorm(LayerNorm { epsilon: of.number("epsilon")?.unwrap_or(1e-5) }))
    })
};

impl LayerRule for LayerNorm {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(format!("epsilon is {}: it must be positive, e.g. 1e-5", self.epsilon));
        }
        Ok(Signature::elementwise(inputs, inputs[0]).with_whole(&[Dimension::Feature]).with_each_feature(2))
    }

    fn settings(&self) -> String {
        format!(", epsilon = {}", self.epsilon)
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        let of = |name, init| Learned { name, init: Init::Constant(init), decay: false };
        vec![of("gamma", inits.gamma), of("beta", 0.0)]
    }

    /// A mean and an inverse deviation of each place.
    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("statistics", 2 * input.places(), Dtype::F32))
    }
}
