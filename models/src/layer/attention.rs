//! Defines scaled dot-product attention of sequences (Vaswani et al. 2017, §3.2), with several heads, of which groups may share
//! keys and values (Ainslie et al. 2023).

use super::linear::features_of_positions;
use super::*;

/// Of queries, keys and values, three inputs with the features of their heads one head after the other: each query's output is
/// the mean of the values of its head, weighted by the softmax of its products with the keys over √(features of a head). A fourth
/// input has the number of each position's document; documents do not see each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values, a divisor of `heads`.
    pub key_heads: u32,
    /// Whether a position sees itself and those before it alone.
    pub causal: bool,
    /// Positions that one sees at most, itself the last of them; all where it has none (Beltagy et al. 2020; Mistral).
    pub window: Option<u32>,
    /// The bound c that scores s approach, as c · tanh(s / c) (Gemma 2).
    pub soft_cap: Option<f32>,
    /// The factor of products of queries and keys; 1/√(features of a head) where it has none.
    pub scale: Option<f32>,
}

pub(super) const KIND: LayerKind = LayerKind {
    inputs: 3..=4,
    input_use: InputUse::Always,
    reads_output: true,
    keys: &["heads", "key_heads", "causal", "window", "soft_cap", "scale"],
    ..LayerKind::new("attention", |of| {
        let heads =
            of.size("heads")?.ok_or_else(|| of.missing("heads", "the heads of the queries, e.g. heads = 12"))?;
        let key_heads = of.size("key_heads")?.unwrap_or(heads);
        Ok(Layer::Attention(Attention {
            heads,
            key_heads,
            causal: of.boolean("causal")?.unwrap_or(true),
            window: of.size("window")?,
            soft_cap: of.number("soft_cap")?,
            scale: of.number("scale")?,
        }))
    })
};

impl Attention {
    /// Without window, cap and scale of its own.
    pub fn new(heads: u32, key_heads: u32, causal: bool) -> Attention {
        Attention { heads, key_heads, causal, window: None, soft_cap: None, scale: None }
    }

    /// How many positions one sees, on average over `positions`.
    fn seen(&self, positions: f64) -> f64 {
        let window = self.window.map_or(positions, f64::from).min(positions);
        match self.causal {
            // The first ones see as many as there are.
            true => window - window * (window - 1.0) / (2.0 * positions),
            false => positions,
        }
    }

    fn check_numbers(&self) -> Result<(), String> {
        if let Some(window) = self.window.filter(|window| *window == 0 || !self.causal) {
            return Err(format!("window is {window}: it must be at least 1, and needs causal = true"));
        }
        for (name, value) in [("soft_cap", self.soft_cap), ("scale", self.scale)] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(format!("{name} is {value}: it must be positive, or left out"));
            }
        }
        Ok(())
    }

    fn check(&self, inputs: &[Shape]) -> Result<u32, String> {
        let ([queries, keys, values] | [queries, keys, values, _]) = inputs else {
            let count = inputs.len();
            return Err(format!(
                "has {count} inputs: give it queries, keys and values, and documents if there are some"
            ));
        };
        for input in inputs {
            features_of_positions(*input, "give it sequences")?;
        }
        let Attention { heads, key_heads, .. } = *self;
        if heads == 0 || key_heads == 0 || !heads.is_multiple_of(key_heads) {
            return Err(format!(
                "has {heads} heads of queries and {key_heads} of keys: use a divisor, or leave key_heads out"
            ));
        }
        let width = queries.features() / heads;
        if width == 0 || !queries.features().is_multiple_of(heads) {
            let features = queries.features();
            return Err(format!("divides {features} features among {heads} heads: use heads that divide them"));
        }
        if let Some(documents) = inputs.get(3).filter(|documents| **documents != queries.with_features(1)) {
            return Err(format!("takes the number of each position's document, and its fourth input is {documents}"));
        }
        let wanted = queries.with_features(width * key_heads);
        match [keys, values].into_iter().find(|shape| **shape != wanted) {
            Some(other) => Err(format!("takes keys and values of {wanted}, and one is {other}: give both {wanted}")),
            None => Ok(width),
        }
    }
}

impl LayerRule for Attention {
    /// Heads are independent of each other; each needs all positions and all of its features.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        self.check_numbers()?;
        let width = self.check(inputs)?;
        let mut of = Signature::of_samples(inputs.len());
        let positions = inputs[0].places();
        let [queries, keys] = [(); 2].map(|()| of.index(positions, IndexUse::Whole));
        let group = of.index(self.key_heads.into(), IndexUse::Free);
        let head = of.index((self.heads / self.key_heads).into(), IndexUse::Whole);
        let [compared, taken] = [(); 2].map(|()| of.index(width.into(), IndexUse::Whole));
        let features = |indices: &[usize]| indices.iter().map(|index| (*index, Dimension::Feature)).collect::<Vec<_>>();
        if inputs[0].has(Dimension::Position) {
            for (operand, position) in of.inputs.iter_mut().zip([queries, keys, keys, keys]) {
                operand.push((position, Dimension::Position));
            }
            of.output.push((queries, Dimension::Position));
        }
        of.inputs[0].extend(features(&[group, head, compared]));
        of.inputs[1].extend(features(&[group, compared]));
        of.inputs[2].extend(features(&[group, taken]));
        of.output.extend(features(&[group, head, taken]));
        if inputs.len() > 3 {
            let one = of.index(1, IndexUse::Whole);
            of.inputs[3].extend(features(&[one]));
        }
        Ok(of)
    }

    fn settings(&self) -> String {
        let Attention { heads, key_heads, causal, .. } = self;
        let window = self.window.map_or_else(String::new, |window| format!(", window = {window}"));
        let number =
            |name: &str, value: Option<f32>| value.map_or_else(String::new, |value| format!(", {name} = {value:?}"));
        let (cap, scale) = (number("soft_cap", self.soft_cap), number("scale", self.scale));
        format!(", heads = {heads}, key_heads = {key_heads}, causal = {causal}{window}{cap}{scale}")
    }

    fn cost_settings(&self) -> String {
        let causal = if self.causal { " causal" } else { "" };
        let window = self.window.map_or_else(String::new, |window| format!(" window{window}"));
        let cap = if self.soft_cap.is_some() { " cap" } else { "" };
        format!(" heads{} key_heads{}{causal}{window}{cap}", self.heads, self.key_heads)
    }

    fn share(&self, _: Dimension, ranks: u32) -> Option<Layer> {
        let [heads, key_heads] = [self.heads, self.key_heads].map(|heads| heads / ranks);
        Some(Layer::Attention(Attention { heads, key_heads, ..*self }))
    }

    /// The logarithm of the sum of each query's exponentials, by head (Dao et al. 2022).
    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("log-sum-exp", u64::from(self.heads) * input.places(), Dtype::F32))
    }

    /// Products of each head's queries with its keys, and of as many weights with its values.
    fn product(&self, of: &Node) -> Option<MatrixProduct> {
        let (positions, heads) = (of.output.places() as f64, f64::from(self.heads));
        let inputs = f64::from(of.output.features()) / heads;
        Some(MatrixProduct { outputs: positions, inputs, kernel: 1.0, groups: heads, places: positions })
    }

    /// Two products of a query with each position that it sees; backward five.
    fn flops(&self, of: &Node) -> [f64; 3] {
        let product = 2.0 * of.output_elements() * self.seen(of.output.places() as f64);
        [2.0 * product, 5.0 * product, 0.0]
    }
}
