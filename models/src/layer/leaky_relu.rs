//! Defines the leaky rectified linear unit: x above 0, slope · x below (Maas et al. 2013).

use super::*;

/// A rectified linear unit with a constant slope below 0.
#[derive(Debug, Clone, PartialEq)]
pub struct LeakyRelu {
    /// The slope below 0, from 0 to 1.
    pub slope: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    reads_output: true,
    overwrites: 1,
    keys: &["slope"],
    onnx: &[("LeakyRelu", |of| Ok(Layer::LeakyRelu(LeakyRelu { slope: of.number("alpha")?.unwrap_or(0.01) })))],
    family: "relu",
    flops: [2.0, 2.0, 0.0],
    ..LayerKind::new("leaky_relu", |of| Ok(Layer::LeakyRelu(LeakyRelu { slope: of.number("slope")?.unwrap_or(0.01) })))
};

impl LayerRule for LeakyRelu {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(0.0..=1.0).contains(&self.slope) {
            return Err(format!("slope is {}: it must lie in 0 to 1, e.g. 0.01", self.slope));
        }
        Ok(Signature::elementwise(inputs, inputs[0]))
    }

    fn settings(&self) -> String {
        format!(", slope = {}", self.slope)
    }
}
