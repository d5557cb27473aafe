//! Adds a bias per channel as a separate layer, after a sum over ranks.

use super::*;

pub(super) struct Bias;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Never,
    keys: &["bias_init"],
    family: "scale",
    ..LayerKind::new("bias", |_| Ok(Layer::Bias))
};

impl LayerRule for Bias {
    /// A bias of a dense layer or a convolution, and decays as theirs do.
    fn parameters(&self, _: Shape, output: Shape, inits: &Inits) -> Vec<Learned> {
        vec![Learned { name: "bias", dims: vec![output.channels], init: Init::Constant(inits.bias), decay: true }]
    }

    /// One FLOP an element; the gradient of the input is that of the output.
    fn work(&self, of: &Sizes) -> [Work; 3] {
        [
            Work::of(of.input, of.input + of.learned, of.output),
            Work::of(0.0, of.input, of.input),
            Work::of(of.input, of.input, of.learned),
        ]
    }

    fn features(&self, inputs_split: bool, _: bool) -> Result<FeatureRule, &'static str> {
        Ok(if inputs_split { FeatureRule::Follows } else { FeatureRule::Whole })
    }
}
