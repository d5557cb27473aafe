//! Defines independent logistic units, one per class, and the sum of their cross-entropies against a one-hot label
//! (Krizhevsky 2014, §5): it needs no sum over classes; in all else it equals the softmax's cross-entropy.

use super::softmax_cross_entropy::SoftmaxCrossEntropy;
use super::*;

pub(super) struct LogisticCrossEntropy;

pub(super) const KIND: LayerKind = LayerKind {
    is_loss: true,
    family: "loss",
    class: KernelClass::Scores,
    keys: &["loss_weight"],
    caffe: CaffeKind::new(
        &["SigmoidCrossEntropyLoss", "SIGMOID_CROSS_ENTROPY_LOSS"],
        &["loss_param", "loss_weight"],
        "",
        |_| Ok(Layer::LogisticCrossEntropy),
    ),
    ..LayerKind::new("logistic_cross_entropy", |_| Ok(Layer::LogisticCrossEntropy))
};

impl LayerRule for LogisticCrossEntropy {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if inputs[0].has(Dimension::Position) {
            return Err(format!(
                "takes one vector of scores, and its input is {}: use softmax_cross_entropy",
                inputs[0]
            ));
        }
        SoftmaxCrossEntropy.signature(inputs)
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        SoftmaxCrossEntropy.flops(of)
    }

    fn adjusted_work(&self, of: &Node, pass: Pass, samples: f64, work: Work) -> Work {
        SoftmaxCrossEntropy.adjusted_work(of, pass, samples, work)
    }

    fn labels(&self, input: Shape) -> Option<SampleTensor> {
        SoftmaxCrossEntropy.labels(input)
    }

    fn keeps(&self, input: Shape, output: Shape) -> Option<KeptTensor> {
        SoftmaxCrossEntropy.keeps(input, output)
    }
}
