//! `Decoder`: the sizes of a decoder-only transformer, read off a model's layers.

use lockstep_models::{Layer, Model};
use lockstep_topology::InputError;

/// Sizes of a decoder, all of whose layers are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoder {
    /// The model's name.
    pub name: String,
    /// Layers.
    pub layers: u64,
    /// Features at each position between layers (h).
    pub hidden: u64,
    /// Heads of queries (a), and of keys and values (k).
    pub heads: u64,
    /// Heads of keys and values.
    pub key_heads: u64,
    /// Features of a head.
    pub head_width: u64,
    /// Features inside the feed-forward part (f).
    pub feed_forward: u64,
    /// Whether two products go into the feed-forward part (SwiGLU, GeGLU).
    pub gated: bool,
    /// Different tokens (V).
    pub vocabulary: u64,
    /// Whether scores are products with the embedding.
    pub tied: bool,
    /// Positions with a learned vector, none where positions are turned.
    pub learned_positions: Option<u64>,
    /// Base of the frequencies by which positions are turned, where they are.
    pub rotary_base: Option<f32>,
    /// Whether the products for queries and the product into the feed-forward part have biases.
    pub biases: (bool, bool),
    /// What norms add to squares.
    pub epsilon: f32,
    /// Whether norms are by root mean squares.
    pub rms: bool,
    /// Norms of all features in a layer.
    pub norms: u64,
    /// Whether attention and the feed-forward part read the same features.
    pub parallel: bool,
    /// Whether each head of queries and keys is normalised.
    pub query_norm: bool,
    /// Elements of a layer's matrices.
    pub matrices: u64,
    /// Elements of its biases and norms.
    pub vectors: u64,
    /// Elements of the norm behind the layers, and of biases of scores.
    pub last_vectors: u64,
}

impl Decoder {
    /// The decoder that a model is.
    ///
    /// # Errors
    /// A model that is no decoder of equal layers.
    ///
    /// ```
    /// let model = lockstep_readers::load_model("llama-3-8b")?;
    /// let decoder = lockstep_stack::Decoder::of(&model)?;
    /// assert_eq!((decoder.layers, decoder.feed_forward), (32, 14336));
    /// assert_eq!(decoder.parameters(), 8_030_261_248);
    /// # Ok::<(), lockstep_topology::InputError>(())
    /// ```
    pub fn of(model: &Model) -> Result<Decoder, InputError> {
        let refused = |what: &str| {
            let cure = "give a decoder: a name such as llama-3-8b, or a config.json";
            InputError::flag("model", model.name(), format!("{what}: {cure}"))
        };
        let named = |name: &str| model.layers().iter().find(|node| node.name == name);
        let count = |name: &str| named(name).map_or(0, |node| node.parameters.iter().map(|of| of.elements()).sum());
        let elements = |prefix: &str| -> u64 {
            let inside = model.layers().iter().filter(|node| node.name.starts_with(prefix));
            inside.flat_map(|node| &node.parameters).map(|of| of.elements()).sum()
        };
        let (Some(embedding), Some(up)) = (named("embedding"), named("layers.0.up")) else {
            return Err(refused("has no layers of a decoder"));
        };
        let (Layer::Embedding(table), Layer::Linear(up)) = (&embedding.layer, &up.layer) else {
            return Err(refused("has no layers of a decoder"));
        };
        let Some(Layer::Attention(attention)) = named("layers.0.attention").map(|node| &node.layer) else {
            return Err(refused("has no attention"));
        };
        let Some(Layer::Linear(query)) = named("layers.0.query").map(|node| &node.layer) else {
            return Err(refused("has no products for queries"));
        };
        let head = named("head").map(|node| &node.layer);
        let tied = match head {
            Some(Layer::LinearCrossEntropy(of)) => of.tie.is_some(),
            Some(Layer::Linear(of)) => of.tie.is_some(),
            _ => return Err(refused("has no scores of tokens")),
        };
        let is_norm = |layer: &Layer| matches!(layer, Layer::LayerNorm(_) | Layer::RmsNorm(_));
        let first = || model.layers().iter().filter(|node| node.name.starts_with("layers.0."));
        let of_heads = |name: &str| name.ends_with("query_norm") || name.ends_with("key_norm");
        let (hidden, vocabulary) = (u64::from(table.out_features), u64::from(table.entries));
        let layers = model.layers().iter().filter(|node| node.name.ends_with(".attention")).count() as u64;
        let (heads, key_heads) = (u64::from(attention.heads), u64::from(attention.key_heads));
        let head_width = u64::from(query.out_features) / heads.max(1);
        let gated = named("layers.0.gate").is_some();
        let positions = named("positions").map(|_| count("positions") / hidden.max(1));
        let mut decoder = Decoder {
            name: model.name().to_owned(),
            layers,
            hidden,
            heads,
            key_heads,
            head_width,
            feed_forward: u64::from(up.out_features),
            gated,
            vocabulary,
            tied,
            learned_positions: positions,
            rotary_base: first().find_map(|node| rotary_base(&node.layer)),
            biases: (query.bias, up.bias),
            epsilon: first().find_map(|node| epsilon(&node.layer)).ok_or_else(|| refused("has no norms"))?,
            rms: first().any(|node| matches!(node.layer, Layer::RmsNorm(_)) && !of_heads(&node.name)),
            norms: first().filter(|node| is_norm(&node.layer) && !of_heads(&node.name)).count() as u64,
            parallel: named("layers.0.attention_sum").is_none(),
            query_norm: first().any(|node| is_norm(&node.layer) && of_heads(&node.name)),
            matrices: 0,
            vectors: 0,
            last_vectors: 0,
        };
        decoder.matrices = decoder.shapes().iter().map(|(i, o)| i * o).sum();
        decoder.vectors = elements("layers.0.").saturating_sub(decoder.matrices);
        decoder.last_vectors = count("norm") + if tied { 0 } else { count("head") - hidden * vocabulary };
        match decoder.parameters() == model.parameter_elements() {
            true => Ok(decoder),
            false => Err(refused("has layers that differ from each other in size")),
        }
    }

    /// Features of all heads of queries.
    pub fn query_features(&self) -> u64 {
        self.heads * self.head_width
    }

    /// Features of all heads of keys, and as many of values.
    pub fn key_features(&self) -> u64 {
        self.key_heads * self.head_width
    }

    /// Features in and out of each product of a layer as Megatron has them: queries, keys and values are one product, and
    /// gate and up one.
    pub fn shapes(&self) -> [(u64, u64); 4] {
        let up = if self.gated { 2 * self.feed_forward } else { self.feed_forward };
        [
            (self.hidden, self.query_features() + 2 * self.key_features()),
            (self.query_features(), self.hidden),
            (self.hidden, up),
            (self.feed_forward, self.hidden),
        ]
    }

    /// Elements of a table with a vector for each token.
    pub fn table(&self) -> u64 {
        self.vocabulary * self.hidden
    }

    /// Parameters of a layer.
    pub fn layer(&self) -> u64 {
        self.matrices + self.vectors
    }

    /// Parameters of the model.
    pub fn parameters(&self) -> u64 {
        let tables = self.table() * if self.tied { 1 } else { 2 };
        self.layers * self.layer() + tables + self.last_vectors + self.learned_positions.unwrap_or(0) * self.hidden
    }
}

/// What a norm adds to squares.
fn epsilon(layer: &Layer) -> Option<f32> {
    match layer {
        Layer::LayerNorm(of) => Some(of.epsilon),
        Layer::RmsNorm(of) => Some(of.epsilon),
        _ => None,
    }
}

/// Base of the frequencies of a rotary embedding.
fn rotary_base(layer: &Layer) -> Option<f32> {
    match layer {
        Layer::Rotary(of) => Some(of.theta),
        _ => None,
    }
}
