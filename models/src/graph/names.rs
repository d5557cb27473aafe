//! Names nodes, tensors and layers of a graph in errors, as timelines and models call them.

use super::{Graph, NodeWork, Tensor};
use crate::{LayerId, Phase};

impl Graph {
    /// The layer's name in the model.
    pub(super) fn layer_name(&self, id: LayerId) -> String {
        self.layers.get(id.index()).map(|(name, _)| name.clone()).unwrap_or_else(|| format!("layer {}", id.index()))
    }

    /// `backward-weight conv1`, `update of elements 0..8`, `allreduce along data of elements 0..8`.
    pub(super) fn work_name(&self, work: &NodeWork) -> String {
        match work {
            NodeWork::Load => "load".to_owned(),
            NodeWork::Layer(id, pass) => format!("{} {}", pass.name(), self.layer_name(*id)),
            NodeWork::Recompute(id) => format!("{} {}", Phase::Recompute.name(), self.layer_name(*id)),
            NodeWork::SquareSum { range, .. } => format!("squares of elements {range:?}"),
            NodeWork::Elementwise { of, .. } => format!("{} of elements {:?}", of.formula.name(), of.range),
            NodeWork::Relayout { layer, pass, collective, axes, .. } => {
                let change = collective.as_ref().map_or("slice", |collective| collective.name());
                format!("{change} along {axes} in the {} pass of {}", pass.name(), self.layer_name(*layer))
            }
            NodeWork::Collective { collective, axes, range } => {
                format!("{} along {axes} of elements {range:?}", collective.name())
            }
        }
    }

    /// `weight gradient`, `activation of conv1`.
    pub(super) fn tensor_name(&self, tensor: Tensor) -> String {
        match tensor {
            Tensor::Activation(id) => format!("activation of {}", self.layer_name(id)),
            Tensor::ActivationGradient(id) => format!("activation gradient of {}", self.layer_name(id)),
            Tensor::Weight => "weight".to_owned(),
            Tensor::GatheredWeight => "gathered weight".to_owned(),
            Tensor::WeightGradient => "weight gradient".to_owned(),
            Tensor::GradientSum => "gradient sum".to_owned(),
            Tensor::SquareSum => "sum of squares".to_owned(),
            Tensor::Difference => "difference".to_owned(),
            Tensor::Average => "average".to_owned(),
            Tensor::Reference => "reference".to_owned(),
            Tensor::Consensus => "consensus".to_owned(),
        }
    }
}
