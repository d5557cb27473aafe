//! Defines learned positions: a vector that is added at each position.

use super::linear::features_of_positions;
use super::*;

pub(super) struct PositionEmbedding;

pub(super) const KIND: LayerKind = LayerKind {
    family: "scale",
    flops: [1.0, 0.0, 1.0],
    keys: &["weight_init"],
    ..LayerKind::new("position_embedding", |_| Ok(Layer::PositionEmbedding))
};

impl LayerRule for PositionEmbedding {
    /// `y[sample, p, f] = x[sample, p, f] + w[p, f]`.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        features_of_positions(inputs[0], "leave it out")?;
        let mut of = Signature::elementwise(inputs, inputs[0]);
        of.parameters = vec![of.output[1..].to_vec()];
        Ok(of)
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        vec![Learned { name: "weight", init: inits.weight, decay: true }]
    }
}
