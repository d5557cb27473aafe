//! Defines the fully connected layer.

use super::conv2d::weight_and_bias;
use super::*;

/// A fully connected layer, weight `[out_features, in_features]`; its input is flattened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dense {
    /// Features of the output.
    pub out_features: u32,
    /// Whether each output has a bias.
    pub bias: bool,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::ForParameters,
    flattens: true,
    takes_relu: true,
    keys: &["out_features", "bias", "weight_init", "bias_init"],
    caffe: CaffeKind::new(
        &["InnerProduct", "INNER_PRODUCT"],
        &["inner_product_param"],
        "num_output bias_term weight_filler bias_filler",
        |of| {
            let out_features = of.size("num_output")?.unwrap_or(0);
            Ok(Layer::Dense(Dense { out_features, bias: of.boolean("bias_term")?.unwrap_or(true) }))
        },
    ),
    ..LayerKind::new("dense", |of| {
        let example = "the output's features, e.g. out_features = 10";
        let out_features = of.size("out_features")?.ok_or_else(|| of.missing("out_features", example))?;
        Ok(Layer::Dense(Dense { out_features, bias: of.boolean("bias")?.unwrap_or(true) }))
    })
};

impl LayerRule for Dense {
    /// `y[sample, o] = Σ x[sample, i] · w[o, i] + b[o]`, i being all elements of the input.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let mut of = Signature::of_samples(1);
        let o = of.index(self.out_features.into(), IndexUse::Free);
        let i = of.index(inputs[0].elements(), IndexUse::Contracted);
        of.inputs[0].push((i, Dimension::Feature));
        of.output.push((o, Dimension::Feature));
        of.parameters = vec![vec![(o, Dimension::Output), (i, Dimension::Input)]];
        if self.bias {
            of.parameters.push(vec![(o, Dimension::Output)]);
        }
        Ok(of)
    }

    fn settings(&self) -> String {
        format!(", out_features = {}, bias = {}", self.out_features, self.bias)
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
        Some(Layer::Dense(Dense { bias: true, ..*self }))
    }

    fn without_bias(&self) -> Option<(Layer, bool)> {
        Some((Layer::Dense(Dense { bias: false, ..*self }), self.bias))
    }

    fn joins(&self, chain: &[&Layer]) -> bool {
        matches!(chain, [only] if only.rule().kind().is_view)
    }

    fn share(&self, _: Dimension, ranks: u32) -> Option<Layer> {
        Some(Layer::Dense(Dense { out_features: self.out_features.div_ceil(ranks), ..*self }))
    }
}
