//! Defines what a rank computes of the softmax of a loss whose classes ranks share: of its scores the largest and the sum of their
//! exponentials, and the score of the label if it is one of its classes (Shoeybi et al. 2019, §3). It occurs only in the part of a
//! model that a rank holds.

use super::*;

/// Numbers of a part for each position: the largest score, Σ exp(score − m), and the label's score, each as the sum of two of which
/// the first, m for the largest, is what bf16 has of it; and 0, 1 if the label is one of the part's classes, or 2 if it has
/// the first of its largest scores.
///
/// The gradients of Σ and of the label's score are sums of two numbers too; those of the others are 0, since m cancels out.
pub const PARTIAL_NUMBERS: u32 = 7;

/// Of some of the `classes` classes, as many as its input has features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialSoftmax {
    /// Of the whole loss: scores beyond them are padding, and do not count.
    pub classes: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    reads_output: true,
    reads_labels: true,
    family: "loss",
    class: KernelClass::Scores,
    flops: [5.0, 2.0, 0.0],
    ..LayerKind::new("partial_softmax", |of| {
        let classes = of.size("classes")?.unwrap_or(u32::MAX);
        Ok(Layer::PartialSoftmax(PartialSoftmax { classes }))
    })
};

impl OfKind for PartialSoftmax {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for PartialSoftmax {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let mut of = Signature::of_places(inputs[0], IndexUse::Free);
        let part = of.index(1, IndexUse::Free);
        let [own, numbers] = [inputs[0].features(), PARTIAL_NUMBERS].map(|size| of.index(size.into(), IndexUse::Whole));
        of.inputs[0].extend([(part, Dimension::Feature), (own, Dimension::Feature)]);
        of.output.extend([(part, Dimension::Feature), (numbers, Dimension::Feature)]);
        Ok(of)
    }

    fn settings(&self) -> String {
        format!(", classes = {}", self.classes)
    }

    fn cost_settings(&self) -> String {
        format!(" classes{}", self.classes)
    }
}
