//! Multiplies two inputs element by element; the second may have one channel, row or column for all of the first's.

use super::*;

pub(super) struct Product;

pub(super) const KIND: LayerKind = LayerKind {
    arity: Arity::Several,
    input_use: InputUse::Always,
    ..LayerKind::new("product", |_| Ok(Layer::Product))
};

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

    /// One FLOP an output; backward two for each, and reads both inputs again.
    fn work(&self, of: &Sizes) -> [Work; 3] {
        [
            Work::of(of.output, of.input, of.output),
            Work::of(2.0 * of.output, of.output + of.input, of.input),
            Work::default(),
        ]
    }
}
