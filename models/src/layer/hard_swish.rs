//! Defines the piecewise quadratic swish: x · min(max(x/6 + 1/2, 0), 1) (Howard et al. 2019, MobileNetV3, §5.2).

use super::*;

pub(super) struct HardSwish;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    onnx: &[("HardSwish", |_| Ok(Layer::HardSwish))],
    family: "curve",
    flops: [5.0, 5.0, 0.0],
    ..LayerKind::new("hard_swish", |_| Ok(Layer::HardSwish))
};

impl LayerRule for HardSwish {}
