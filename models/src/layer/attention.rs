//! Defines scaled dot-product attention of sequences (Vaswani et al. 2017, §3.2), with several heads, of which groups may share
//! keys and values (Ainslie et al. 2023).

use super::linear::features_of_positions;
use super::*;

/// Of queries, keys and values, three inputs with the features of their heads one head after the other: each query's output is
/// the mean of the values of its head, weighted by the softmax of its products with the keys over √(features of a head).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values, a divisor of `heads`.
    pub key_heads: u32,
    /// Whether a position sees itself and those before it alone.
    pub causal: bool,
}

pub(super) const KIND: LayerKind = LayerKind {
    arity: Arity::Several,
    input_use: InputUse::Always,
    reads_output: true,
    class: KernelClass::Scores,
    keys: &["heads", "key_heads", "causal"],
    ..LayerKind::new("attention", |of| {
        let heads =
            of.size("heads")?.ok_or_else(|| of.missing("heads", "the heads of the queries, e.g. heads = 12"))?;
        let key_heads = of.size("key_heads")?.unwrap_or(heads);
        Ok(Layer::Attention(Attention { heads, key_heads, causal: of.boolean("causal")?.unwrap_or(true) }))
    })
};

impl Attention {
    fn check(&self, inputs: &[Shape]) -> Result<u32, String> {
        let [queries, keys, values] = inputs else {
            return Err(format!("has {} inputs: give it queries, keys and values", inputs.len()));
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
        let width = self.check(inputs)?;
        let mut of = Signature::of_samples(3);
        let positions = inputs[0].places();
        let [queries, keys] = [(); 2].map(|()| of.index(positions, IndexUse::Whole));
        let group = of.index(self.key_heads.into(), IndexUse::Free);
        let head = of.index((self.heads / self.key_heads).into(), IndexUse::Whole);
        let [compared, taken] = [(); 2].map(|()| of.index(width.into(), IndexUse::Whole));
        let features = |indices: &[usize]| indices.iter().map(|index| (*index, Dimension::Feature)).collect::<Vec<_>>();
        if inputs[0].has(Dimension::Position) {
            for (operand, position) in of.inputs.iter_mut().zip([queries, keys, keys]) {
                operand.push((position, Dimension::Position));
            }
            of.output.push((queries, Dimension::Position));
        }
        of.inputs[0].extend(features(&[group, head, compared]));
        of.inputs[1].extend(features(&[group, compared]));
        of.inputs[2].extend(features(&[group, taken]));
        of.output.extend(features(&[group, head, taken]));
        Ok(of)
    }

    fn settings(&self) -> String {
        format!(", heads = {}, key_heads = {}, causal = {}", self.heads, self.key_heads, self.causal)
    }

    fn cost_settings(&self) -> String {
        let causal = if self.causal { " causal" } else { "" };
        format!(" heads{} key_heads{}{causal}", self.heads, self.key_heads)
    }

    fn share(&self, ranks: u32) -> Option<Layer> {
        let [heads, key_heads] = [self.heads, self.key_heads].map(|heads| heads / ranks);
        Some(Layer::Attention(Attention { heads, key_heads, ..*self }))
    }

    /// The logarithm of the sum of each query's exponentials, by head (Dao et al. 2022).
    fn keeps(&self, input: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("log-sum-exp", u64::from(self.heads) * input.places(), Dtype::F32))
    }

    /// Two products of a query with each position that it sees, half of them where it is causal; backward five.
    fn work(&self, of: &Sizes) -> [Work; 3] {
        let positions = of.output / (of.samples * of.channels).max(1.0);
        let product = 2.0 * of.output * if self.causal { (positions + 1.0) / 2.0 } else { positions };
        [
            Work::of(2.0 * product, of.input, of.output),
            Work::of(5.0 * product, of.input + 2.0 * of.output, of.input),
            Work::default(),
        ]
    }
}
