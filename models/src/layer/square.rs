//! Squares every element.

use super::*;

pub(super) struct Square;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    family: "curve",
    flops: [1.0, 2.0, 0.0],
    ..LayerKind::new("square", |_| Ok(Layer::Square))
};

impl LayerRule for Square {}
