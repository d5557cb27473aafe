//! The layers of a model: plain values, one variant a kind; what follows from them stands in the files beside.

mod shape;
mod toml;

/// Shape of one sample: channels, height, width, in this order in memory (a batch is `[samples, channels, height, width]`).
/// A flat vector of n features is `n × 1 × 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Feature maps.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

/// A 2-d convolution (cross-correlation), weight `[out_channels, in_channels / groups, kernel.0, kernel.1]`.
/// Pairs are (vertical, horizontal).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Channels of the output.
    pub out_channels: u32,
    /// Height and width of the filter.
    pub kernel: (u32, u32),
    /// Steps of the filter.
    pub stride: (u32, u32),
    /// Zeros added on each side.
    pub padding: (u32, u32),
    /// Distance between filter taps.
    pub dilation: (u32, u32),
    /// Channel groups that do not see each other.
    pub groups: u32,
    /// Whether each output channel has a bias.
    pub bias: bool,
}

/// A fully connected layer, weight `[out_features, in_features]`; its input is flattened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dense {
    /// Features of the output.
    pub out_features: u32,
    /// Whether each output has a bias.
    pub bias: bool,
}

/// Batch normalisation per channel with learnable γ (initially 1) and β (initially 0).
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance under the root.
    pub epsilon: f32,
    /// Weight of the old running average: `running ← momentum·running + (1 − momentum)·batch`.
    pub momentum: f32,
}

/// A factor and, if wanted, a summand per channel, both learnable: Caffe's `Scale`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Whether each channel has a summand.
    pub bias: bool,
}

/// Local response normalisation across channels, `y = x / (k + α·Σ x²)^β`, the sum over the `size` channels around x's own at
/// its place (Krizhevsky, Sutskever, Hinton 2012, §3.3; Caffe's α is `size` times this one).
#[derive(Debug, Clone, PartialEq)]
pub struct LocalResponseNorm {
    /// Channels that are summed, odd, x's own in the middle; fewer at the first and last channels.
    pub size: u32,
    /// α: what the sum of squares is multiplied with.
    pub alpha: f32,
    /// β: the exponent.
    pub beta: f32,
    /// k: what the sum is added to.
    pub k: f32,
}

/// Sets a random share of the elements to zero in training and divides the others by what is kept on average, so that
/// evaluation passes everything unchanged (Srivastava et al. 2014; the division stands in training instead of evaluation).
///
/// Which elements fall is drawn for each sample by its place in the training run alone, so that any number of ranks and
/// micro-batches drops the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Share of elements that become zero, from 0 to below 1.
    pub rate: f32,
}

/// What a pooling window computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The largest value.
    Max,
    /// The mean over the window's places inside the unpadded image.
    Average,
}

/// Pooling over windows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Largest or mean.
    pub kind: PoolKind,
    /// Height and width of the window.
    pub kernel: (u32, u32),
    /// Steps of the window.
    pub stride: (u32, u32),
    /// Places added on each side that belong to no image.
    pub padding: (u32, u32),
    /// Whether a last, partial window counts (Caffe's rule) or is dropped.
    pub ceil: bool,
}

/// One node of a [`Model`](crate::Model).
#[derive(Debug, Clone, PartialEq)]
pub enum Layer {
    /// The samples themselves; exactly one per model, its first node.
    Input(Shape),
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
    /// What ranks have, brought together by an exchange: one sample of this shape. It stands only in the part of a model that a
    /// rank holds where layers are split (`models/src/model/shard.rs`), and computes nothing.
    Gather(Shape),
    /// Softmax and cross-entropy against the labels: the model's last node, its loss a mean over the global batch.
    SoftmaxCrossEntropy,
    /// Independent logistic units, one per class, and the sum of their cross-entropies against a label's one-hot vector
    /// (Krizhevsky 2014, §5): needs no sum over classes. Otherwise as [`Layer::SoftmaxCrossEntropy`].
    LogisticCrossEntropy,
}

impl Layer {
    /// Whether it is one that ends a model.
    pub fn is_loss(&self) -> bool {
        matches!(self, Layer::SoftmaxCrossEntropy | Layer::LogisticCrossEntropy)
    }
}
