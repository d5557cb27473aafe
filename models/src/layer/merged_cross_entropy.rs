//! Defines the loss of a softmax whose classes ranks share, from what each of them found in its part (`partial_softmax.rs`). It
//! occurs only in the part of a model that a rank holds.

use super::partial_softmax::PARTIAL_NUMBERS;
use super::softmax_cross_entropy::SoftmaxCrossEntropy;
use super::*;

/// Cross-entropy of labels among `classes`, as of [`Layer::SoftmaxCrossEntropy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MergedCrossEntropy {
    /// Of all parts together.
    pub classes: u32,
    /// How many there are; the input has the numbers of each, one part after the other.
    pub parts: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    is_loss: true,
    family: "loss",
    class: KernelClass::Scores,
    flops: [5.0, 1.0, 0.0],
    ..LayerKind::new("merged_cross_entropy", |of| {
        let size = |key| of.size(key)?.ok_or_else(|| of.missing(key, "of all parts together"));
        Ok(Layer::MergedCrossEntropy(MergedCrossEntropy { classes: size("classes")?, parts: size("parts")? }))
    })
};

impl OfKind for MergedCrossEntropy {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for MergedCrossEntropy {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if u64::from(inputs[0].features()) != u64::from(self.parts) * u64::from(PARTIAL_NUMBERS) {
            return Err(format!("merges {} parts, and its input is {}", self.parts, inputs[0]));
        }
        Ok(Signature::elementwise(inputs, Shape::flat(1)).with_whole(&[Dimension::Feature]))
    }

    fn settings(&self) -> String {
        format!(", classes = {}, parts = {}", self.classes, self.parts)
    }

    fn cost_settings(&self) -> String {
        format!(" classes{} parts{}", self.classes, self.parts)
    }

    fn classes(&self, _: Shape) -> u32 {
        self.classes
    }

    fn labels(&self, input: Shape) -> Option<SampleTensor> {
        SoftmaxCrossEntropy.labels(input)
    }

    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("gradients", input.elements(), Dtype::F32))
    }
}
