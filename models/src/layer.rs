//! Lists the kinds of layers of a model, each with its own file.
//!
//! A kind's file holds its settings, everything derived from them ([`LayerRule`]), and its form in files ([`LayerKind`]).
//! Its line here makes its variant and its row of [`KINDS`]. Sizes come from files, so products and sums of them are
//! computed in `u64` and limited before they become a `u32` again.

mod attributes;
mod init;
mod kind;
mod phase;
mod rule;
mod signature;
#[cfg(test)]
mod tests;
mod window;
mod work;

use std::fmt;

use lockstep_topology::Dtype;

pub(crate) use crate::{Dimension, ImageShape, Node, SampleTensor, Shape};
pub use attributes::{Attributes, Maker};
pub use exact_gelu::erf;
pub use init::{Init, InitRules, Inits};
pub use kind::{CaffeKind, InputUse, KernelClass, LayerKind, samples_per_group};
pub use partial_softmax::PARTIAL_NUMBERS;
pub use phase::Phase;
pub use pool2d::PoolKind;
pub use rotary::{RotaryPairing, RotaryScaling};
pub use rule::{KeptTensor, LayerRule, Learned, OfKind};
pub use signature::{Features, Index, IndexUse, MatrixProduct, PassLayouts, Signature};
pub use softmax_cross_entropy::IGNORED_LABEL;
pub use work::{Pass, Work};

/// A layer's position in topological order, which is also its index in [`Model::layers`](crate::Model::layers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub u32);

impl LayerId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Makes the layers of their files: `file: Variant(its settings, if it has any) [kinds in files] "what it is";`.
macro_rules! layers {
    (@pattern $layer:ident $variant:ident) => { Layer::$variant };
    (@pattern $layer:ident $variant:ident $settings:ident) => { Layer::$variant($layer) };
    (@rule $layer:ident $file:ident $variant:ident) => { &$file::$variant };
    (@rule $layer:ident $file:ident $variant:ident $settings:ident) => { $layer };
    (@of_kind $file:ident KIND, $type:ident $($settings:ident)?) => {
        impl OfKind for $file::$type {
            fn kind(&self) -> &'static LayerKind {
                &$file::KIND
            }
        }
    };
    (@of_kind $file:ident $($kinds:ident)*, $($type:ident)*) => {};
    ($($file:ident: $variant:ident $(($settings:ident))? [$($kind:ident),*] $doc:literal;)*) => {
        $(
            mod $file;
            $(pub use $file::$settings;)?
            layers!(@of_kind $file $($kind)*, $($settings)? $variant);
        )*

        /// One node of a [`Model`](crate::Model).
        #[derive(Debug, Clone, PartialEq)]
        pub enum Layer {
            $(#[doc = $doc] $variant $(($settings))?,)*
        }

        /// Every kind that a file can ask for.
        pub const KINDS: &[LayerKind] = &[$($($file::$kind,)*)*];

        /// Kinds that only parts of models have that a rank holds, and that have kernels: keys of costs name them, and no file.
        pub(crate) const KINDS_OF_PARTS: [&LayerKind; 3] =
            [&partial_softmax::KIND, &linear_partial_softmax::KIND, &merged_cross_entropy::KIND];

        impl Layer {
            /// The rules of its kind.
            pub fn rule(&self) -> &dyn LayerRule {
                match self {
                    $(layers!(@pattern layer $variant $($settings)?) => layers!(@rule layer $file $variant $($settings)?),)*
                }
            }
        }
    };
}

// One file each beside this one; a new kind only adds its line. `cargo fmt` does not see them: `bash tests/run
// format` does.
layers! {
    input: Input(Samples) [] "The samples themselves; exactly one per model, its first node.";
    conv2d: Conv2d(Conv2d) [KIND] "Convolution.";
    dense: Dense(Dense) [KIND] "Fully connected.";
    batch_norm: BatchNorm(BatchNorm) [KIND] "Batch normalisation.";
    scale: Scale(Scale) [KIND] "A factor and a bias per channel.";
    bias: Bias [KIND] "A bias per channel.";
    relu: Relu [KIND] "max(x, 0).";
    sigmoid: Sigmoid [KIND] "1 / (1 + e⁻ˣ).";
    tanh: Tanh [KIND] "(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ).";
    gelu: Gelu [KIND] "x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).";
    silu: Silu [KIND] "x / (1 + e⁻ˣ).";
    square: Square [KIND] "x².";
    exact_gelu: ExactGelu [KIND] "x/2 · (1 + erf(x/√2)).";
    relu6: Relu6 [KIND] "min(max(x, 0), 6).";
    leaky_relu: LeakyRelu(LeakyRelu) [KIND] "x above 0, a constant slope below.";
    hard_sigmoid: HardSigmoid [KIND] "min(max(x/6 + 1/2, 0), 1).";
    hard_swish: HardSwish [KIND] "x · min(max(x/6 + 1/2, 0), 1).";
    affine: Affine(Affine) [KIND] "A constant factor and a constant shift.";
    linear: Linear(Linear) [KIND] "Fully connected at each position.";
    embedding: Embedding(Embedding) [KIND] "A learned vector for each token.";
    documents: Documents(Documents) [KIND] "The number of each position's document.";
    position_embedding: PositionEmbedding [KIND] "A learned vector added at each position.";
    rotary: Rotary(Rotary) [KIND] "Pairs of each head's features turned by their position.";
    attention: Attention(Attention) [KIND] "Each position's mean of the values that it attends to.";
    layer_norm: LayerNorm(LayerNorm) [KIND] "Normalisation of each place over its channels.";
    rms_norm: RmsNorm(RmsNorm) [KIND] "Normalisation of each position by the root mean square of its features.";
    group_norm: GroupNorm(GroupNorm) [KIND] "Normalisation of each sample over groups of its channels.";
    response_norm: ResponseNorm(ResponseNorm) [KIND] "Each channel scaled by its norm among all channels' norms.";
    local_response_norm: LocalResponseNorm(LocalResponseNorm) [KIND] "Normalisation across neighbouring channels.";
    dropout: Dropout(Dropout) [KIND] "Random zeros in training.";
    pool2d: Pool2d(Pool2d) [MAX, AVERAGE] "Pooling over windows.";
    global_pool: GlobalPool [KIND] "The mean of each channel: `c × h × w → c × 1 × 1`.";
    add: Add [KIND] "The sum of two or more inputs of one shape.";
    concat: Concat [KIND] "Inputs side by side along channels.";
    product: Product [KIND] "The product of two inputs; sides of the second may be 1.";
    select: Select(Select) [KIND] "Some channels, in order or shuffled.";
    softmax: Softmax(Softmax) [KIND] "Softmax at each place over sets of channels.";
    border: Border(Border) [KIND] "Zeros around the image, or the image reflected.";
    blur_pool: BlurPool(BlurPool) [KIND] "A fixed binomial filter of each channel, at every few places.";
    resize: Resize(Resize) [KIND] "The image in another size, by its nearest places.";
    reshape: Reshape(Reshape) [KIND] "A vector in other dimensions.";
    flatten: Flatten [KIND] "`c × h × w → (c·h·w) × 1 × 1`.";
    relayout: Relayout(Relayout) [] "Its input in another layout; only in the part of a model that a rank holds.";
    softmax_cross_entropy: SoftmaxCrossEntropy [KIND]
        "Softmax and cross-entropy against the labels: the model's last node, its loss a mean over the global batch.";
    linear_cross_entropy: LinearCrossEntropy(LinearCrossEntropy) [KIND]
        "A linear layer and softmax cross-entropy of its scores. Otherwise as [`Layer::SoftmaxCrossEntropy`].";
    partial_softmax: PartialSoftmax(PartialSoftmax) []
        "What a loss needs of some classes' scores; only in the part of a model that a rank holds.";
    linear_partial_softmax: LinearPartialSoftmax(LinearPartialSoftmax) []
        "A linear layer to some classes, and what a loss needs of their scores; only in the part of a model that a rank holds.";
    merged_cross_entropy: MergedCrossEntropy(MergedCrossEntropy) []
        "Cross-entropy from what each part of the classes gives; only in the part of a model that a rank holds.";
    logistic_cross_entropy: LogisticCrossEntropy [KIND]
        "Independent logistic units and the sum of their cross-entropies. Otherwise as [`Layer::SoftmaxCrossEntropy`].";
}

impl Layer {
    /// The input of a model with samples of fp32 values of this shape.
    pub fn input(shape: Shape) -> Layer {
        Layer::input_of(SampleTensor::values(shape))
    }

    /// The input of a model with such samples.
    pub fn input_of(sample: SampleTensor) -> Layer {
        Layer::Input(Samples { sample, tokens: None })
    }

    /// The input of a model with sequences of so many positions, a token at each, below `tokens`.
    pub fn input_of_tokens(positions: u32, tokens: u32) -> Layer {
        Layer::Input(Samples { sample: SampleTensor::tokens(positions, tokens), tokens: Some(tokens) })
    }

    /// Samples of this shape, after a change of layout.
    pub(crate) fn relayout(shape: Shape) -> Layer {
        Layer::Relayout(Relayout(shape))
    }

    /// The name of the layer's kind as model files write it, e.g. `conv2d`.
    pub fn kind(&self) -> &'static str {
        self.rule().kind().name
    }

    /// Whether it ends a model.
    pub fn is_loss(&self) -> bool {
        self.rule().kind().is_loss
    }

    /// Whether it is a loss, or what a rank computes of one.
    pub fn is_of_loss(&self) -> bool {
        self.is_loss() || self.rule().kind().reads_labels
    }

    /// What it says of a sample, if it is the model's input.
    pub fn sample(&self) -> Option<SampleTensor> {
        if let Layer::Input(Samples { sample, .. }) = self { Some(*sample) } else { None }
    }

    /// The number of different tokens, if it is the input of sequences of tokens.
    pub fn tokens(&self) -> Option<u32> {
        if let Layer::Input(Samples { tokens, .. }) = self { *tokens } else { None }
    }

    /// Whether it is the model's input.
    pub fn is_input(&self) -> bool {
        matches!(self, Layer::Input(_))
    }

    /// Whether an exchange or a copy fills it.
    pub fn is_relayout(&self) -> bool {
        matches!(self, Layer::Relayout(_))
    }

    /// Shape of one sample of the output for inputs of the shapes `inputs`.
    ///
    /// The loss of a sample is `1×1×1`. The error says what does not fit and how to fix it, without the layer's name.
    ///
    /// ```
    /// # use lockstep_models::{Layer, Shape};
    /// let image = Shape::of_image(3, 32, 32);
    /// assert_eq!(Layer::GlobalPool.output_shape(&[image]), Ok(Shape::flat(3)));
    /// ```
    pub fn output_shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        self.signature(inputs).map(|signature| signature.output_shape())
    }

    /// The indices of its operands for inputs of the shapes `inputs`; errors as of [`Layer::output_shape`].
    pub fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let count = inputs.len();
        let wanted = &self.rule().kind().inputs;
        if !wanted.contains(&count) {
            let wanted = match (*wanted.start(), *wanted.end()) {
                (0, 0) => "no input".to_owned(),
                (1, 1) => "exactly one input".to_owned(),
                (2, usize::MAX) => "two or more inputs".to_owned(),
                (least, most) if least == most => format!("exactly {least} inputs"),
                (least, most) => format!("{least} to {most} inputs"),
            };
            return Err(format!("has {count} inputs: {} takes {wanted}", self.kind()));
        }
        let signature = self.rule().signature(inputs)?;
        signature.output_shape().checked()?;
        Ok(signature)
    }
}

impl fmt::Display for Layer {
    /// The entries of the layer's table in a model file, defaults included.
    ///
    /// An input and a change of layout have no table there; they print their shape in the same style.
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
