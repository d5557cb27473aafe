//! Defines the input, the samples themselves: exactly one per model, its first node.

use super::*;

/// What one sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Samples {
    /// Its shape, and the format of its numbers.
    pub sample: SampleTensor,
    /// Where its numbers are tokens, how many different ones there are: each is below this.
    pub tokens: Option<u32>,
}

const KIND: LayerKind =
    LayerKind { inputs: 0..=0, ..LayerKind::new("input", |of| Err(of.refuse("kind", "no file asks for it"))) };

impl OfKind for Samples {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for Samples {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, self.sample.shape))
    }

    fn settings(&self) -> String {
        let SampleTensor { shape, dtype } = self.sample;
        if let Some(tokens) = self.tokens {
            return format!(", positions = {}, tokens = {tokens}", shape.places());
        }
        let format = if dtype == Dtype::F32 { String::new() } else { format!(", dtype = \"{dtype}\"") };
        match shape.as_image() {
            Some(image) => format!(", shape = {:?}{format}", image.sizes()),
            None => format!(", shape = {:?}{format}", shape.sizes().collect::<Vec<u32>>()),
        }
    }
}
