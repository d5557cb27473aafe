//! Defines global response normalisation: each channel scaled by its norm among all channels' norms.

use super::*;

/// Global response normalisation (Woo et al. 2023, section 3): y = γ·x·n + β + x with n = g / (mean of g over channels + ε),
/// g the root of a channel's sum of squares in a sample. γ and β of each channel are learned, initially 0.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseNorm {
    /// Added to the mean of the norms.
    pub epsilon: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    class: KernelClass::Planes,
    keys: &["epsilon"],
    family: "batch_norm",
    flops: [6.0, 6.0, 3.0],
    ..LayerKind::new("global_response_norm", |of| {
        Ok(Layer::ResponseNorm(ResponseNorm { epsilon: of.number("epsilon")?.unwrap_or(1e-6) }))
    })
};

impl LayerRule for ResponseNorm {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(format!("epsilon is {}: it must be positive, e.g. 1e-6", self.epsilon));
        }
        Ok(Signature::elementwise(inputs, inputs[0])
            .with_whole(&[Dimension::Feature, Dimension::Row, Dimension::Column])
            .with_each_feature(2))
    }

    fn settings(&self) -> String {
        format!(", epsilon = {}", self.epsilon)
    }

    fn parameters(&self, _: &Inits) -> Vec<Learned> {
        let of = |name| Learned { name, init: Init::Constant(0.0), decay: false };
        vec![of("gamma"), of("beta")]
    }

    /// The norm of each channel.
    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("norms", u64::from(input.features()), Dtype::F32))
    }
}
