//! Defines normalisation of each position by the root mean square of its features, or of those of each head.

use super::*;

/// Root mean square normalisation (Zhang and Sennrich 2019) of each position over its features, with a learnable weight of
/// each feature: `y = x / √(mean(x²) + ε) · w`. With several heads each head's features are normalised by themselves, with
/// one weight for all heads (Henry et al. 2020 normalise queries and keys so).
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean of squares under the root.
    pub epsilon: f32,
    /// Whether the factor is 1 + w, with w initially 0 instead of 1, as in Gemma.
    pub unit_offset: bool,
    /// Heads whose features are normalised by themselves; 1 for all features together.
    pub heads: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    class: KernelClass::Planes,
    flops: [4.0, 6.0, 3.0],
    keys: &["epsilon", "unit_offset", "heads"],
    family: "batch_norm",
    ..LayerKind::new("rms_norm", |of| {
        Ok(Layer::RmsNorm(RmsNorm {
            epsilon: of.number("epsilon")?.unwrap_or(1e-5),
            unit_offset: of.boolean("unit_offset")?.unwrap_or(false),
            heads: of.size("heads")?.unwrap_or(1),
        }))
    })
};

impl LayerRule for RmsNorm {
    /// Of several heads ranks may each have some; their weight has an index for the features of one.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(format!("epsilon is {}: it must be positive, e.g. 1e-5", self.epsilon));
        }
        let (of, width) = Signature::of_heads(inputs[0], self.heads)?;
        Ok(Signature { parameters: vec![vec![(width, Dimension::Feature)]], ..of })
    }

    fn settings(&self) -> String {
        let RmsNorm { epsilon, unit_offset, heads } = self;
        format!(", epsilon = {epsilon}, unit_offset = {unit_offset}, heads = {heads}")
    }

    fn cost_settings(&self) -> String {
        if self.heads > 1 { format!(" heads{}", self.heads) } else { String::new() }
    }

    fn parameters(&self, _: &Inits) -> Vec<Learned> {
        let init = Init::Constant(if self.unit_offset { 0.0 } else { 1.0 });
        vec![Learned { name: "weight", init, decay: false }]
    }

    fn share(&self, _: Dimension, ranks: u32) -> Option<Layer> {
        Some(Layer::RmsNorm(RmsNorm { heads: self.heads / ranks, ..*self }))
    }

    /// An inverse root mean square of each head of each position.
    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("statistics", u64::from(self.heads) * input.places(), Dtype::F32))
    }
}
