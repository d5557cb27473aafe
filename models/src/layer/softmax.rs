//! Softmax over sets of channels at each place: the weights of split attention.

use super::*;

/// Softmax at each place over sets of `parts` channels, C / `parts` apart: with C parts over all channels, with 2 over
/// each channel of the first half and its counterpart in the second (Zhang et al. 2020, section 3.2; Li et al. 2019).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// Channels of a set.
    pub parts: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["parts"],
    reads_output: true,
    // The maximum, an exponential, a sum and a quotient; a product, a sum, a difference and a product.
    flops: [4.0, 4.0, 0.0],
    ..LayerKind::new("softmax", |of| {
        let parts = of.size("parts")?;
        let parts = parts.ok_or_else(|| of.missing("parts", "the channels that sum to 1, e.g. parts = 2"))?;
        Ok(Layer::Softmax(Softmax { parts }))
    })
};

impl LayerRule for Softmax {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if self.parts == 0 || !inputs[0].features().is_multiple_of(self.parts) {
            return Err(format!("parts is {}: it must divide the {} channels", self.parts, inputs[0].features()));
        }
        Ok(Signature::elementwise(inputs, inputs[0]).with_whole(&[Dimension::Feature]))
    }

    fn settings(&self) -> String {
        format!(", parts = {}", self.parts)
    }

    fn cost_settings(&self) -> String {
        format!(" of{}", self.parts)
    }
}
