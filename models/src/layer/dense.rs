//! Defines the fully connected layer.

use super::conv2d::{product_work, weight_and_bias};
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
    features: Ok(FeatureRule::Rows),
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
    fn shape(&self, _: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::flat(self.out_features))
    }

    fn settings(&self) -> String {
        format!(", out_features = {}, bias = {}", self.out_features, self.bias)
    }

    fn cost_settings(&self) -> String {
        if self.bias { " bias".to_owned() } else { String::new() }
    }

    fn parameters(&self, input: Shape, output: Shape, inits: &Inits) -> Vec<Learned> {
        // A shape that was accepted has fewer than 2³¹ elements.
        weight_and_bias(vec![output.channels, input.elements() as u32], self.bias, inits)
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

    /// A convolution's, with a filter as large as its input.
    fn work(&self, of: &Sizes) -> [Work; 3] {
        product_work(of)
    }

    fn joins(&self, chain: &[&Layer]) -> bool {
        matches!(chain, [only] if only.rule().kind().is_view)
    }

    fn share(&self, ranks: u32) -> Option<Layer> {
        Some(Layer::Dense(Dense { out_features: self.out_features.div_ceil(ranks), ..*self }))
    }

    fn kernel_class(&self, input: Shape, _: Shape) -> KernelClass {
        let (outputs, inputs) = (f64::from(self.out_features), input.elements() as f64);
        KernelClass::Product(MatrixProduct { outputs, inputs, kernel: 1.0, groups: 1.0, by_place: false })
    }
}
