//! Defines the rectified linear unit that ends at six: min(max(x, 0), 6) (Howard et al. 2017, MobileNets).

use super::*;

pub(super) struct Relu6;

pub(super) const KIND: LayerKind = LayerKind {
    reads_output: true,
    overwrites: 1,
    caffe: CaffeKind::new(&["ReLU6"], &["relu6_param"], "", |_| Ok(Layer::Relu6)),
    family: "relu",
    ..LayerKind::new("relu6", |_| Ok(Layer::Relu6))
};

impl LayerRule for Relu6 {}
