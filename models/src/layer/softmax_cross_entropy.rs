//! Defines softmax and cross-entropy against the labels: the model's last node, its loss a mean over the global batch.
//!
//! A sample of a sequence has a label at each position, and its loss is the mean over those that count: it follows from the
//! sample alone, so that ranks need not know each other's labels, and equals the mean over all labels of a batch where samples
//! have equally many.

use super::*;

/// A label of a position that counts neither in the loss nor in its gradient.
pub const IGNORED_LABEL: u32 = u32::MAX;

pub(super) struct SoftmaxCrossEntropy;

pub(super) const KIND: LayerKind = LayerKind {
    is_loss: true,
    family: "loss",
    class: KernelClass::Scores,
    keys: &["loss_weight"],
    caffe: CaffeKind::new(
        &["SoftmaxWithLoss", "SOFTMAX_LOSS"],
        &["loss_param", "loss_weight", "softmax_param"],
        "",
        |_| Ok(Layer::SoftmaxCrossEntropy),
    ),
    ..LayerKind::new("softmax_cross_entropy", |_| Ok(Layer::SoftmaxCrossEntropy))
};

impl LayerRule for SoftmaxCrossEntropy {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let input = inputs[0];
        if input.has(Dimension::Row) || input.features() < 2 {
            return Err(format!(
                "needs one score per class and two classes or more (n×1×1), or that at each position of a sequence, but its \
                 input is {input}: put a dense layer before it"
            ));
        }
        let mut of = Signature::elementwise(inputs, Shape::flat(1)).with_whole(&[Dimension::Feature]);
        // The scores of one vector are few: ranks gather them.
        if input.has(Dimension::Position) {
            let classes = of.inputs[0].iter().filter(|(_, of)| *of == Dimension::Feature);
            classes.for_each(|(index, _)| of.indices[*index].usage = IndexUse::Merged);
        }
        Ok(of)
    }

    fn in_parts(&self, input: Shape, parts: u32) -> Option<(Layer, Layer)> {
        let classes = self.classes(input);
        let part = Layer::PartialSoftmax(PartialSoftmax { classes });
        Some((part, Layer::MergedCrossEntropy(MergedCrossEntropy { classes, parts })))
    }

    /// 5 FLOPs a score, from scores and labels to probabilities and losses; backward one.
    fn flops(&self, of: &Node) -> [f64; 3] {
        [5.0 * of.input_elements(), scores_and_labels(of), 0.0]
    }

    /// Forward it also reads labels and writes the probabilities, which backward reads with the labels.
    fn adjusted_work(&self, of: &Node, pass: Pass, samples: f64, work: Work) -> Work {
        let scores = samples * scores_and_labels(of);
        Work {
            elements_read: scores,
            elements_written: if pass == Pass::Forward { scores } else { work.elements_written },
            ..work
        }
    }

    /// The class of each place at which there are scores.
    fn labels(&self, input: Shape) -> Option<SampleTensor> {
        Some(SampleTensor::labels(input.without_features()))
    }

    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("probabilities", input.elements(), Dtype::F32))
    }
}

/// Scores of a sample, and the label of each place of them.
fn scores_and_labels(of: &Node) -> f64 {
    of.input_elements() + of.input_shapes[0].places() as f64
}
