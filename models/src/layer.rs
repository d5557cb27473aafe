//! The layers of a model: the list of all kinds, a file for each.
//!
//! A kind's file holds its settings and all that follows from them ([`LayerRule`]), and how files write it ([`Kind`]). It has a
//! variant here, and its lines in [`Layer::rule`] and [`KINDS`].
//! Sizes come from files, so products and sums of them are taken in `u64` and limited before they become a `u32` again.

mod add;
mod attributes;
mod batch_norm;
mod concat;
mod conv2d;
mod dense;
mod dropout;
mod flatten;
mod gather;
mod gelu;
mod global_pool;
mod init;
mod input;
mod kind;
mod local_response_norm;
mod logistic_cross_entropy;
mod pool2d;
mod relu;
mod rule;
mod scale;
mod shape;
mod sigmoid;
mod silu;
mod softmax_cross_entropy;
mod tanh;
#[cfg(test)]
mod tests;
mod window;
mod work;

use std::fmt;

pub use attributes::{Attributes, Maker};
pub use batch_norm::BatchNorm;
pub use conv2d::Conv2d;
pub use dense::Dense;
pub use dropout::Dropout;
pub use gather::Gathered;
pub use init::{Init, InitRules, Inits};
pub use input::Samples;
pub use kind::{Arity, CaffeKind, FeatureRule, InputUse, KernelClass, Kind, MatrixProduct};
pub use local_response_norm::LocalResponseNorm;
pub use pool2d::{Pool2d, PoolKind};
pub use rule::{LayerRule, Learned};
pub use scale::Scale;
pub use shape::Shape;
pub(crate) use work::ELEMENT_BYTES;
pub use work::{Pass, Sizes, Work};

/// One node of a [`Model`](crate::Model).
#[derive(Debug, Clone, PartialEq)]
pub enum Layer {
    /// The samples themselves; exactly one per model, its first node.
    Input(Samples),
    /// Convolution.
    Conv2d(Conv2d),
    /// Fully connected.
    Dense(Dense),
    /// Batch normalisation.
    BatchNorm(BatchNorm),
    /// A factor and a summand per channel.
    Scale(Scale),
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// (eˣ − e⁻ˣ) / (eˣ + e⁻ˣ).
    Tanh,
    /// x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
    Gelu,
    /// x / (1 + e⁻ˣ).
    Silu,
    /// Normalisation across neighbouring channels.
    LocalResponseNorm(LocalResponseNorm),
    /// Random zeros in training.
    Dropout(Dropout),
    /// Pooling over windows.
    Pool2d(Pool2d),
    /// The mean of each channel: `c × h × w → c × 1 × 1`.
    GlobalPool,
    /// The sum of two or more inputs of one shape.
    Add,
    /// Inputs side by side along channels.
    Concat,
    /// `c × h × w → (c·h·w) × 1 × 1`.
    Flatten,
    /// What ranks have, brought together by an exchange; only in the part of a model that a rank holds.
    Gather(Gathered),
    /// Softmax and cross-entropy against the labels: the model's last node, its loss a mean over the global batch.
    SoftmaxCrossEntropy,
    /// Independent logistic units and the sum of their cross-entropies. Otherwise as [`Layer::SoftmaxCrossEntropy`].
    LogisticCrossEntropy,
}

/// Every kind that a file can ask for.
pub const KINDS: &[Kind] = &[
    conv2d::KIND,
    dense::KIND,
    batch_norm::KIND,
    scale::KIND,
    relu::KIND,
    sigmoid::KIND,
    tanh::KIND,
    gelu::KIND,
    silu::KIND,
    local_response_norm::KIND,
    dropout::KIND,
    pool2d::MAX,
    pool2d::AVERAGE,
    global_pool::KIND,
    add::KIND,
    concat::KIND,
    flatten::KIND,
    softmax_cross_entropy::KIND,
    logistic_cross_entropy::KIND,
];

impl Layer {
    /// The input of a model with samples of this shape.
    pub fn input(shape: Shape) -> Layer {
        Layer::Input(Samples(shape))
    }

    /// What ranks have of samples of this shape, brought together.
    pub(crate) fn gather(shape: Shape) -> Layer {
        Layer::Gather(Gathered(shape))
    }

    /// What it answers about itself.
    pub fn rule(&self) -> &dyn LayerRule {
        match self {
            Layer::Input(layer) => layer,
            Layer::Conv2d(layer) => layer,
            Layer::Dense(layer) => layer,
            Layer::BatchNorm(layer) => layer,
            Layer::Scale(layer) => layer,
            Layer::Relu => &relu::Relu,
            Layer::Sigmoid => &sigmoid::Sigmoid,
            Layer::Tanh => &tanh::Tanh,
            Layer::Gelu => &gelu::Gelu,
            Layer::Silu => &silu::Silu,
            Layer::LocalResponseNorm(layer) => layer,
            Layer::Dropout(layer) => layer,
            Layer::Pool2d(layer) => layer,
            Layer::GlobalPool => &global_pool::GlobalPool,
            Layer::Add => &add::Add,
            Layer::Concat => &concat::Concat,
            Layer::Flatten => &flatten::Flatten,
            Layer::Gather(layer) => layer,
            Layer::SoftmaxCrossEntropy => &softmax_cross_entropy::SoftmaxCrossEntropy,
            Layer::LogisticCrossEntropy => &logistic_cross_entropy::LogisticCrossEntropy,
        }
    }

    /// The name of the layer's kind as model files write it, e.g. `conv2d`.
    pub fn kind(&self) -> &'static str {
        self.rule().kind().name
    }

    /// Whether it is one that ends a model.
    pub fn is_loss(&self) -> bool {
        self.rule().kind().is_loss
    }

    /// Whether it is the model's input.
    pub fn is_input(&self) -> bool {
        matches!(self, Layer::Input(_))
    }

    /// Whether it is filled by an exchange.
    pub fn is_gather(&self) -> bool {
        matches!(self, Layer::Gather(_))
    }

    /// Shape of one sample of the output when samples of the shapes `inputs` enter.
    ///
    /// The loss of a sample is `1×1×1`. The error says what does not fit and how to mend it, without the layer's name.
    ///
    /// ```
    /// # use lockstep_models::{Layer, Shape};
    /// let image = Shape { channels: 3, height: 32, width: 32 };
    /// assert_eq!(Layer::GlobalPool.output_shape(&[image]), Ok(Shape { channels: 3, height: 1, width: 1 }));
    /// ```
    pub fn output_shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let count = inputs.len();
        let (fits, wanted) = match self.rule().kind().arity {
            Arity::Nothing => (count == 0, "no input"),
            Arity::One => (count == 1, "exactly one input"),
            Arity::Several => (count >= 2, "two or more inputs"),
        };
        if !fits {
            return Err(format!("has {count} inputs: {} takes {wanted}", self.kind()));
        }
        self.rule().shape(inputs)?.checked()
    }
}

impl fmt::Display for Layer {
    /// The entries of the layer's table in a model file, none left to a default.
    ///
    /// An input, and what ranks gather, have no table of their own there; they give their shape in the same style.
    ///
    /// ```
    /// use lockstep_models::{Dense, Layer};
    /// let layer = Layer::Dense(Dense { out_features: 10, bias: true });
    /// assert_eq!(layer.to_string(), r#"kind = "dense", out_features = 10, bias = true"#);
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind = \"{}\"{}", self.kind(), self.rule().settings())
    }
}
