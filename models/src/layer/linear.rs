//! Defines the fully connected layer of each position: one matrix of weights for all positions of a sequence.

use lockstep_topology::InputError;

use super::conv2d::weight_and_bias;
use super::*;

/// A fully connected layer of the features at each position, weight `[out_features, in_features]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Features of the output at each position.
    pub out_features: u32,
    /// Whether each output feature has a bias.
    pub bias: bool,
    /// The embedding whose vectors are its weight too, by its name in the model.
    pub tie: Option<String>,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::ForParameters,
    family: "dense",
    keys: &["out_features", "bias", "tie", "weight_init", "bias_init"],
    ..LayerKind::new("linear", |of| {
        let out_features = out_features(of, "the features at each position, e.g. out_features = 768")?;
        let tie = of.word("tie")?.map(str::to_owned);
        Ok(Layer::Linear(Linear { out_features, bias: of.boolean("bias")?.unwrap_or(tie.is_none()), tie }))
    })
};

/// The key `out_features`, which the layer needs; `example` says what it is.
pub(super) fn out_features(of: &dyn Attributes, example: &str) -> Result<u32, InputError> {
    of.size("out_features")?.ok_or_else(|| of.missing("out_features", example))
}

impl LayerRule for Linear {
    /// `y[sample, p, o] = Σ x[sample, p, i] · w[o, i] + b[o]`.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let features = features_of_positions(inputs[0], "use conv2d with kernel = 1, or dense")?;
        if let (Some(tie), true) = (&self.tie, self.bias) {
            return Err(format!("has a bias beside the weight of {tie}: give it bias = false"));
        }
        let mut of = Signature::of_places(inputs[0], IndexUse::Free);
        let o = of.index(self.out_features.into(), IndexUse::Free);
        let i = of.index(features.into(), IndexUse::Contracted);
        of.inputs[0].push((i, Dimension::Feature));
        of.output.push((o, Dimension::Feature));
        of.parameters = vec![vec![(o, Dimension::Output), (i, Dimension::Input)]];
        if self.bias {
            of.parameters.push(vec![(o, Dimension::Output)]);
        }
        Ok(of)
    }

    fn settings(&self) -> String {
        let tie = self.tie.as_ref().map_or_else(String::new, |tie| format!(", tie = {tie:?}"));
        format!(", out_features = {}, bias = {}{tie}", self.out_features, self.bias)
    }

    fn cost_settings(&self) -> String {
        if self.bias { " bias".to_owned() } else { String::new() }
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        weight_and_bias(self.bias, inits)
    }

    fn weight_rule(&self, rules: &InitRules, last: bool, _: bool) -> Option<Init> {
        rules.last_dense.filter(|_| last).or(rules.dense)
    }

    fn with_bias(&self) -> Option<Layer> {
        Some(Layer::Linear(Linear { bias: true, ..self.clone() }))
    }

    fn without_bias(&self) -> Option<(Layer, bool)> {
        Some((Layer::Linear(Linear { bias: false, ..self.clone() }), self.bias))
    }

    fn share(&self, _: Dimension, ranks: u32) -> Option<Layer> {
        Some(Layer::Linear(Linear { out_features: self.out_features.div_ceil(ranks), ..self.clone() }))
    }

    fn tie(&self) -> Option<&str> {
        self.tie.as_deref()
    }
}

/// The features of a sequence, or of a vector; the error says what else fits.
pub(super) fn features_of_positions(input: Shape, otherwise: &str) -> Result<u32, String> {
    match input.has(Dimension::Row) {
        true => Err(format!("takes the features of positions, and its input is an image of {input}: {otherwise}")),
        false => Ok(input.features()),
    }
}
