//! Independent logistic units, one per class, and the sum of their cross-entropies against a label's one-hot vector
//! (Krizhevsky 2014, §5): needs no sum over classes, and is a softmax's cross-entropy otherwise.

use super::softmax_cross_entropy::SoftmaxCrossEntropy;
use super::{CaffeKind, FeatureRule, KernelClass, Kind, Layer, LayerRule, Pass, Shape, Sizes, Work};

pub(super) struct LogisticCrossEntropy;

pub(super) const KIND: Kind = Kind {
    keys: &["loss_weight"],
    caffe: Some(CaffeKind {
        types: &["SigmoidCrossEntropyLoss", "SIGMOID_CROSS_ENTROPY_LOSS"],
        own: &["loss_param", "loss_weight"],
        fields: &[],
        read: |_| Ok(Layer::LogisticCrossEntropy),
    }),
    ..Kind::plain("logistic_cross_entropy", |_| Ok(Layer::LogisticCrossEntropy))
};

impl LayerRule for LogisticCrossEntropy {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        SoftmaxCrossEntropy.shape(inputs)
    }

    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        SoftmaxCrossEntropy.work(pass, of)
    }

    fn keeps(&self, input: Shape, output: Shape) -> Option<(&'static str, u64)> {
        SoftmaxCrossEntropy.keeps(input, output)
    }

    fn is_loss(&self) -> bool {
        true
    }

    fn features(&self, inputs_split: bool, before_vector: bool) -> Result<FeatureRule, &'static str> {
        SoftmaxCrossEntropy.features(inputs_split, before_vector)
    }

    fn kernel_class(&self, input: Shape, output: Shape) -> KernelClass {
        SoftmaxCrossEntropy.kernel_class(input, output)
    }

    fn family(&self) -> &'static str {
        SoftmaxCrossEntropy.family()
    }
}
