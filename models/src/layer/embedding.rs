//! Defines the embedding: a learned vector for each token.

use super::linear::out_features;
use super::*;

/// A table of `entries` vectors of `out_features`, from which each token takes the one with its number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Embedding {
    /// Vectors: the size of the vocabulary.
    pub entries: u32,
    /// Features of a vector.
    pub out_features: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::ForParameters,
    reads_integers: true,
    keys: &["entries", "out_features", "weight_init"],
    ..LayerKind::new("embedding", |of| {
        let example = "its vectors, as many as there are tokens, e.g. entries = 50257";
        let entries = of.size("entries")?.ok_or_else(|| of.missing("entries", example))?;
        let out_features = out_features(of, "the features of a vector, e.g. out_features = 768")?;
        Ok(Layer::Embedding(Embedding { entries, out_features }))
    })
};

impl LayerRule for Embedding {
    /// `y[sample, p, f] = w[t[sample, p], f]`. Ranks that each have some entries get summands: zeros for the tokens of others.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if inputs[0].has(Dimension::Feature) || inputs[0].has(Dimension::Row) {
            return Err(format!("takes a token at each position, and its input is {}: give it tokens", inputs[0]));
        }
        let mut of = Signature::elementwise(inputs, inputs[0]);
        let v = of.index(self.entries.into(), IndexUse::LookedUp);
        let f = of.index(self.out_features.into(), IndexUse::Free);
        of.output.push((f, Dimension::Feature));
        of.parameters = vec![vec![(v, Dimension::Vocabulary), (f, Dimension::Feature)]];
        Ok(of)
    }

    fn settings(&self) -> String {
        format!(", entries = {}, out_features = {}", self.entries, self.out_features)
    }

    fn cost_settings(&self) -> String {
        format!(" entries{}", self.entries)
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        vec![Learned { name: "weight", init: inits.weight, decay: true }]
    }

    fn share(&self, along: Dimension, ranks: u32) -> Option<Layer> {
        let share = |size: u32, split| if along == split { size.div_ceil(ranks) } else { size };
        let entries = share(self.entries, Dimension::Vocabulary);
        Some(Layer::Embedding(Embedding { entries, out_features: share(self.out_features, Dimension::Feature) }))
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        [0.0, 0.0, of.output_elements()]
    }

    /// Tokens have no gradient, and of the table the rows of the tokens are read.
    fn adjusted_work(&self, of: &Node, pass: Pass, samples: f64, work: Work) -> Work {
        match pass {
            Pass::Forward => Work { elements_read: samples * (of.input_elements() + of.output_elements()), ..work },
            Pass::BackwardData => Work::default(),
            Pass::BackwardWeight => work,
        }
    }
}
