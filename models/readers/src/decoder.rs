//! `Decoder`: describes a decoder-only transformer by its sizes and settings, whatever file states them.

mod build;
mod keys;

use lockstep_models::{RotaryPairing, RotaryScaling};

pub(super) use build::build;
pub(super) use keys::{override_with, parse};

/// A decoder-only transformer. The defaults are those of GPT-2: other architectures state what differs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decoder {
    /// Different tokens.
    pub(super) vocabulary: u32,
    /// Tokens of a sample.
    pub(super) positions: u32,
    /// Features at each position between layers.
    pub(super) hidden: u32,
    /// Layers, each of attention and a feed-forward part.
    pub(super) layers: u32,
    /// Heads of queries.
    pub(super) heads: u32,
    /// Heads of keys and values; `None`: as many.
    pub(super) key_heads: Option<u32>,
    /// Features of a head; `None`: `hidden / heads`.
    pub(super) head_width: Option<u32>,
    /// Features inside the feed-forward part; `None`: `4 · hidden`.
    pub(super) feed_forward: Option<u32>,
    /// The kind of normalisation.
    pub(super) norm: Norm,
    /// Added to a variance, or a mean of squares.
    pub(super) epsilon: f32,
    /// Where the norms of a layer are.
    pub(super) norms: Norms,
    /// Whether attention and the feed-forward part read the same input, and both are added to it (GPT-NeoX).
    pub(super) parallel: bool,
    /// What is between the products of the feed-forward part.
    pub(super) activation: Activation,
    /// Whether a second product multiplies the activation (SwiGLU, GeGLU).
    pub(super) gated: bool,
    /// Whether each position has a learned vector.
    pub(super) learned_positions: bool,
    /// Base of the rotary frequencies; `None`: queries and keys are not turned.
    pub(super) theta: Option<f32>,
    /// The same of layers with a window, where it differs (Gemma 3).
    pub(super) local_theta: Option<f32>,
    /// Fraction of a head's features that are turned.
    pub(super) rotary_fraction: f32,
    /// Which features are turned together.
    pub(super) pairing: RotaryPairing,
    /// How the frequencies are scaled, but not those of [`Decoder::local_theta`].
    pub(super) scaling: RotaryScaling,
    /// Whether queries, keys and values have a bias.
    pub(super) attention_bias: bool,
    /// Whether the product behind attention has one.
    pub(super) output_bias: bool,
    /// Whether the feed-forward part has one.
    pub(super) feed_forward_bias: bool,
    /// Whether the scores have one.
    pub(super) head_bias: bool,
    /// How queries and keys are normalised.
    pub(super) query_norm: QueryNorm,
    /// Whether scores are products with the vectors of the embedding.
    pub(super) tied: bool,
    /// Positions that one sees at most; `None`: all before it.
    pub(super) window: Option<u32>,
    /// Which layers have the window.
    pub(super) windowed: Windowed,
    /// Factor of the products of queries and keys; `None`: 1/√(features of a head).
    pub(super) scale: Option<f32>,
    /// Bound of attention's scores.
    pub(super) soft_cap: Option<f32>,
    /// Bound of the scores of tokens.
    pub(super) final_soft_cap: Option<f32>,
    /// Factor of the embedding's vectors.
    pub(super) embedding_factor: EmbeddingFactor,
    /// Standard deviation of initial weights.
    pub(super) deviation: f32,
    /// Whether the weights that end a layer's two parts start smaller by √(2 · layers) (Radford et al. 2019, §2.3).
    pub(super) scaled_residuals: bool,
    /// Whether scores and loss are one layer, which never stores all scores.
    pub(super) fused_loss: bool,
}

/// A kind of normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    /// By mean and variance, with a factor and a shift.
    Layer,
    /// By the root mean square, with a factor.
    Rms,
    /// The same with a factor of 1 + w (Gemma).
    RmsUnitOffset,
}

/// Where the norms of a layer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norms {
    /// Before attention and before the feed-forward part.
    Before,
    /// Behind each, before it is added (OLMo 2).
    After,
    /// Before and behind each (Gemma 2, GLM-4).
    Both,
}

/// A function of each feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    /// By the hyperbolic tangent.
    Gelu,
    /// By the error function.
    ExactGelu,
    /// x / (1 + e⁻ˣ).
    Silu,
    /// max(x, 0).
    Relu,
}

/// How queries and keys are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryNorm {
    /// Not at all.
    None,
    /// Each head by itself (Qwen 3).
    Heads,
    /// All heads together (OLMo 2).
    Whole,
}

/// Factor of the embedding's vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum EmbeddingFactor {
    /// No factor.
    None,
    /// √hidden (Gemma).
    RootOfHidden,
    /// This one.
    Number(f32),
}

/// Which layers have the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Windowed {
    /// All.
    All,
    /// All but each so-manieth.
    AllBut(u32),
    /// All from this one on, counted from 0.
    From(u32),
    /// Those with `true`, over and over.
    Listed(Vec<bool>),
}

impl Windowed {
    /// Whether the layer with this number, counted from 0, has it.
    fn has(&self, layer: u32) -> bool {
        match self {
            Windowed::All => true,
            Windowed::AllBut(every) => !(layer + 1).is_multiple_of((*every).max(1)),
            Windowed::From(first) => layer >= *first,
            Windowed::Listed(list) => list.get(layer as usize % list.len().max(1)).copied().unwrap_or(false),
        }
    }
}

impl Default for Decoder {
    /// GPT-2 (Radford et al. 2019), the smallest.
    fn default() -> Decoder {
        Decoder {
            vocabulary: 50_257,
            positions: 1024,
            hidden: 768,
            layers: 12,
            heads: 12,
            key_heads: None,
            head_width: None,
            feed_forward: None,
            norm: Norm::Layer,
            epsilon: 1e-5,
            norms: Norms::Before,
            parallel: false,
            activation: Activation::Gelu,
            gated: false,
            learned_positions: true,
            theta: None,
            local_theta: None,
            rotary_fraction: 1.0,
            pairing: RotaryPairing::Halves,
            scaling: RotaryScaling::None,
            attention_bias: true,
            output_bias: true,
            feed_forward_bias: true,
            head_bias: false,
            query_norm: QueryNorm::None,
            tied: true,
            window: None,
            windowed: Windowed::All,
            scale: None,
            soft_cap: None,
            final_soft_cap: None,
            embedding_factor: EmbeddingFactor::None,
            deviation: 0.02,
            scaled_residuals: true,
            fused_loss: true,
        }
    }
}

impl Decoder {
    /// What Llama and those after it have in common: rotary positions, root mean squares, SwiGLU, no biases.
    pub(super) fn llama() -> Decoder {
        Decoder {
            norm: Norm::Rms,
            activation: Activation::Silu,
            gated: true,
            learned_positions: false,
            theta: Some(10_000.0),
            attention_bias: false,
            output_bias: false,
            feed_forward_bias: false,
            tied: false,
            scaled_residuals: false,
            ..Decoder::default()
        }
    }

    /// Refuses settings that have no effect beside the others.
    fn check(&self) -> Result<(), String> {
        let rotary = [
            ("local_theta", self.local_theta.is_some()),
            ("rotary_fraction", self.rotary_fraction != 1.0),
            ("pairing", self.pairing != RotaryPairing::Halves),
            ("scaling", self.scaling != RotaryScaling::None),
        ];
        let window = [("windowed", self.windowed != Windowed::All), ("local_theta", self.local_theta.is_some())];
        let of = [("theta", self.theta.is_some(), &rotary[..]), ("window", self.window.is_some(), &window[..])];
        for (key, stated, settings) in of {
            if let Some((setting, _)) = settings.iter().find(|(_, stated)| *stated).filter(|_| !stated) {
                return Err(format!("{setting} has no effect without {key}: leave it out, or state {key}"));
            }
        }
        Ok(())
    }

    /// Heads of keys and values.
    pub(super) fn key_heads(&self) -> u32 {
        self.key_heads.unwrap_or(self.heads)
    }

    /// Features of a head; the error says what does not divide.
    pub(super) fn head_width(&self) -> Result<u32, String> {
        let Decoder { hidden, heads, .. } = *self;
        match self.head_width {
            Some(width) => Ok(width),
            None if heads > 0 && hidden.is_multiple_of(heads) => Ok(hidden / heads),
            None => Err(format!("{heads} heads do not divide hidden = {hidden}: state head_width, or other heads")),
        }
    }

    /// Factor of the embedding's vectors, if there is one.
    pub(super) fn embedding_factor(&self) -> Option<f32> {
        match self.embedding_factor {
            EmbeddingFactor::None => None,
            EmbeddingFactor::RootOfHidden => Some((self.hidden as f32).sqrt()),
            EmbeddingFactor::Number(factor) => Some(factor),
        }
    }

    /// Features inside the feed-forward part.
    pub(super) fn feed_forward(&self) -> u32 {
        self.feed_forward.unwrap_or(self.hidden.saturating_mul(4))
    }
}
