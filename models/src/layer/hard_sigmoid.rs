//! Defines the piecewise linear sigmoid: min(max(x/6 + 1/2, 0), 1) (Howard et al. 2019, MobileNetV3, §5.2).

use super::*;

pub(super) struct HardSigmoid;

pub(super) const KIND: LayerKind = LayerKind {
    reads_output: true,
    overwrites: 1,
    family: "curve",
    flops: [4.0, 1.0, 0.0],
    ..LayerKind::new("hard_sigmoid", |_| Ok(Layer::HardSigmoid))
};

impl LayerRule for HardSigmoid {}
