//! Builds the layers of a decoder.

use lockstep_models::layer::Inits;
use lockstep_models::{
    Affine, Attention, Draft, Embedding, Init, Layer, LayerNorm, Linear, LinearCrossEntropy, Model, RmsNorm, Rotary,
    RotaryScaling,
};
use lockstep_topology::{ErrorPlace, InputError};

use super::super::sketch::Sketch;
use super::{Activation, Decoder, Norm, Norms, QueryNorm};

/// The name of the layer with the vectors of tokens.
const EMBEDDING: &str = "embedding";

/// The model of a decoder, whose errors are at `place`.
///
/// # Errors
/// Sizes that do not fit each other, or too many layers or parameters.
pub(in super::super) fn build(
    decoder: &Decoder,
    (name, source): (String, String),
    place: &ErrorPlace,
) -> Result<Model, InputError> {
    let wrong = |message: String| InputError::new(place.clone(), "", message);
    decoder.check().map_err(wrong)?;
    let width = decoder.head_width().map_err(wrong)?;
    let mut builder = Builder { of: decoder, width, place, sketch: Sketch::default() };
    builder.all()?;
    Model::build(name, source, builder.sketch.finish())
}

/// The layers built so far.
struct Builder<'a> {
    of: &'a Decoder,
    /// Features of a head.
    width: u32,
    place: &'a ErrorPlace,
    sketch: Sketch,
}

impl Builder<'_> {
    /// Adds a layer and returns its index.
    fn add(&mut self, name: impl Into<String>, layer: Layer, inputs: &[usize]) -> Result<usize, InputError> {
        self.add_from(name, layer, inputs, Init::Gaussian(self.of.deviation))
    }

    /// The same with initial values of its weight.
    fn add_from(
        &mut self,
        name: impl Into<String>,
        layer: Layer,
        inputs: &[usize],
        weight: Init,
    ) -> Result<usize, InputError> {
        let (name, place) = (name.into(), self.place.clone());
        let value = format!("{name} ({})", layer.kind());
        let inits = Inits { weight, ..Inits::default() };
        let (inputs, multipliers) = (inputs.to_vec(), Vec::new());
        let draft = Draft { name, layer, inputs, inits, multipliers, loss_weight: 1.0, place };
        self.sketch.add(draft).map_err(|message| InputError::new(self.place.clone(), value, message))
    }

    /// A product with a matrix.
    fn linear(&mut self, name: String, from: usize, out_features: u32, bias: bool) -> Result<usize, InputError> {
        self.add(name, Layer::Linear(Linear { out_features, bias, tie: None }), &[from])
    }

    /// The same at the end of a layer's part.
    fn residual(&mut self, name: String, from: usize, bias: bool) -> Result<usize, InputError> {
        let deviation = match self.of.scaled_residuals {
            true => self.of.deviation / (2.0 * self.of.layers as f32).sqrt(),
            false => self.of.deviation,
        };
        let layer = Layer::Linear(Linear { out_features: self.of.hidden, bias, tie: None });
        self.add_from(name, layer, &[from], Init::Gaussian(deviation))
    }

    /// The norm of all features.
    fn norm(&mut self, name: String, from: usize) -> Result<usize, InputError> {
        match self.of.norm {
            Norm::Layer => self.add(name, Layer::LayerNorm(LayerNorm { epsilon: self.of.epsilon }), &[from]),
            Norm::Rms | Norm::RmsUnitOffset => self.norm_of_heads(name, from, 1),
        }
    }

    /// The norm of each head's features, by root mean squares whatever the norm of all features.
    fn norm_of_heads(&mut self, name: String, from: usize, heads: u32) -> Result<usize, InputError> {
        let (epsilon, unit_offset) = (self.of.epsilon, self.of.norm == Norm::RmsUnitOffset);
        self.add(name, Layer::RmsNorm(RmsNorm { epsilon, unit_offset, heads }), &[from])
    }

    /// All layers, from the tokens to the loss.
    fn all(&mut self) -> Result<(), InputError> {
        let of = self.of;
        let input = self.add("input", Layer::input_of_tokens(of.positions, of.vocabulary), &[])?;
        let table = Embedding { entries: of.vocabulary, out_features: of.hidden };
        let mut at = self.add(EMBEDDING, Layer::Embedding(table), &[input])?;
        if let Some(factor) = of.embedding_factor() {
            at = self.add("embedding_factor", Layer::Affine(Affine { factor, shift: 0.0 }), &[at])?;
        }
        if of.learned_positions {
            at = self.add("positions", Layer::PositionEmbedding, &[at])?;
        }
        for layer in 0..of.layers {
            at = self.layer(layer, at)?;
        }
        at = self.norm("norm".to_owned(), at)?;
        let (tie, soft_cap) = (of.tied.then(|| EMBEDDING.to_owned()), of.final_soft_cap);
        let (out_features, bias) = (of.vocabulary, of.head_bias);
        if of.fused_loss {
            let head = LinearCrossEntropy { out_features, bias, tie, soft_cap };
            return self.add("head", Layer::LinearCrossEntropy(head), &[at]).map(drop);
        }
        if soft_cap.is_some() {
            let message = "final_soft_cap is of scores and loss in one layer: leave fused_loss = false out";
            return Err(InputError::new(self.place.clone(), "fused_loss = false", message));
        }
        let head = self.add("head", Layer::Linear(Linear { out_features, bias, tie }), &[at])?;
        self.add("loss", Layer::SoftmaxCrossEntropy, &[head]).map(drop)
    }

    /// One layer, from the features before it to those behind it; layers are numbered from 0, as in Hugging Face's files.
    fn layer(&mut self, number: u32, from: usize) -> Result<usize, InputError> {
        let (of, name) = (self.of, |part: &str| format!("layers.{number}.{part}"));
        let (before, behind) = (of.norms != Norms::After, of.norms != Norms::Before);
        let read = if before { self.norm(name("attention_norm"), from)? } else { from };
        let mut attention = self.attention(number, read)?;
        if behind {
            attention = self.norm(name("attention_post_norm"), attention)?;
        }
        let sum = if of.parallel { from } else { self.add(name("attention_sum"), Layer::Add, &[from, attention])? };
        let read = if before { self.norm(name("feed_forward_norm"), sum)? } else { sum };
        let mut inner = self.linear(name("up"), read, of.feed_forward(), of.feed_forward_bias)?;
        let activation = match of.activation {
            Activation::Gelu => Layer::Gelu,
            Activation::ExactGelu => Layer::ExactGelu,
            Activation::Silu => Layer::Silu,
            Activation::Relu => Layer::Relu,
        };
        if of.gated {
            let gate = self.linear(name("gate"), read, of.feed_forward(), of.feed_forward_bias)?;
            let gate = self.add(name("activation"), activation, &[gate])?;
            inner = self.add(name("gated"), Layer::Product, &[gate, inner])?;
        } else {
            inner = self.add(name("activation"), activation, &[inner])?;
        }
        let mut feed_forward = self.residual(name("down"), inner, of.feed_forward_bias)?;
        if behind {
            feed_forward = self.norm(name("feed_forward_post_norm"), feed_forward)?;
        }
        match of.parallel {
            true => self.add(name("sum"), Layer::Add, &[from, attention, feed_forward]),
            false => self.add(name("sum"), Layer::Add, &[sum, feed_forward]),
        }
    }

    /// Queries, keys and values, attention, and the product behind it.
    fn attention(&mut self, number: u32, from: usize) -> Result<usize, InputError> {
        let (of, name) = (self.of, |part: &str| format!("layers.{number}.{part}"));
        let window = of.window.filter(|_| of.windowed.has(number));
        let mut parts = [("query", of.heads), ("key", of.key_heads()), ("value", of.key_heads())].map(|part| (part, 0));
        for ((part, heads), at) in &mut parts {
            let features = heads.saturating_mul(self.width);
            *at = self.linear(name(part), from, features, of.attention_bias)?;
            if *part == "value" {
                continue;
            }
            let norm = format!("{part}_norm");
            *at = match of.query_norm {
                QueryNorm::None => *at,
                QueryNorm::Heads => self.norm_of_heads(name(&norm), *at, *heads)?,
                QueryNorm::Whole => self.norm(name(&norm), *at)?,
            };
            if let Some(theta) = of.theta {
                let is_local = window.is_some() && of.local_theta.is_some();
                let (theta, scaling) = match of.local_theta {
                    Some(local) if is_local => (local, RotaryScaling::None),
                    _ => (theta, of.scaling),
                };
                let (fraction, pairing) = (of.rotary_fraction, of.pairing);
                let layer = Rotary { heads: *heads, theta, fraction, pairing, scaling };
                *at = self.add(name(&format!("{part}_rotary")), Layer::Rotary(layer), &[*at])?;
            }
        }
        let layer = Attention {
            heads: of.heads,
            key_heads: of.key_heads(),
            causal: true,
            window: window.filter(|window| *window < of.positions),
            soft_cap: of.soft_cap,
            scale: of.scale,
        };
        let at = self.add(name("attention"), Layer::Attention(layer), &parts.map(|(_, at)| at))?;
        self.residual(name("output"), at, of.output_bias)
    }
}
