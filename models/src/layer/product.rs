//! Multiplies two inputs element by element; the second may have one channel, row or column for all of the first's.

use super::*;

pub(super) struct Product;

pub(super) const KIND: LayerKind =
    LayerKind { inputs: 2..=2, input_use: InputUse::Always, ..LayerKind::new("product", |_| Ok(Layer::Product)) };

impl LayerRule for Product {
    /// The first input's: each side of the second is as long, or 1 (squeeze and excitation: c × h × w times c × 1 × 1). Ranks may
    /// each have some features of inputs of one shape; those of sequences have one (gated units).
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let [first, second] = inputs else {
            return Err(format!("has {} inputs: product takes two, multiply one after the other", inputs.len()));
        };
        if first == second {
            return Ok(Signature::elementwise(inputs, *first));
        }
        if first.has(Dimension::Position) || second.has(Dimension::Position) {
            return Err(format!("multiplies {first} by {second}: sequences must have one shape"));
        }
        match second.dimensions().iter().all(|(dimension, size)| *size == 1 || *size == first.size(*dimension)) {
            true => Ok(Signature::elementwise(inputs, *first).with_whole(&[Dimension::Feature])),
            false => Err(format!("multiplies {first} by {second}: each side of the second must be as long, or 1")),
        }
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        [of.output_elements(), 2.0 * of.output_elements(), 0.0]
    }
}
