//! Derives the layouts of a layer's pass from its signature: along each index that ranks may split, what has the index is
//! split, what is made without it is a summand, and the rest is the same on all ranks.

use super::{COLUMNS, FEATURES, SAMPLES, Tensor, TensorLayout};
use crate::layer::{IndexUse, PassLayouts, Signature};
use crate::{AxisLayout, Dimension, LayerId, Node, Pass};

const WHOLE: AxisLayout = AxisLayout::Replicated;

/// What a layer takes and makes.
#[derive(Debug, Clone)]
pub(in crate::graph) struct Operands {
    /// The layers whose outputs it takes.
    pub(in crate::graph) inputs: Vec<LayerId>,
    pub(in crate::graph) signature: Signature,
    /// Whether it shares a parameter with another layer.
    pub(in crate::graph) shares: bool,
}

impl Operands {
    /// Those of a layer of a model.
    pub(in crate::graph) fn of(node: &Node) -> Operands {
        Operands { inputs: node.inputs.clone(), signature: node.signature.clone(), shares: false }
    }

    /// Whether a pass may take these inputs and give these outputs.
    pub(super) fn allow(&self, pass: Pass, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> bool {
        let all = |wanted: &dyn Fn(Tensor) -> bool, layout| {
            let mut of_kind = inputs.iter().filter(|(tensor, _)| wanted(*tensor));
            of_kind.all(|(_, other)| *other == layout)
        };
        let gives = |layout| outputs.iter().all(|(_, other)| *other == layout);
        let is_gradient = |tensor| matches!(tensor, Tensor::ActivationGradient(_));
        let has_weights = inputs.iter().any(|(tensor, _)| tensor.is_weights());
        // Each rank has weights of its own, and all of their gradient.
        let made = if pass == Pass::BackwardWeight { AxisLayout::Own } else { SAMPLES };
        let own = has_weights
            && all(&Tensor::is_weights, AxisLayout::Own)
            && all(&|tensor| !tensor.is_weights(), SAMPLES)
            && gives(made);
        // A node without weights may run on the first rank alone: the others then contribute nothing.
        let first = !has_weights && all(&|_| true, AxisLayout::First) && gives(AxisLayout::First);
        // A pass back to the inputs is linear in the gradient: a summand of it gives a summand.
        let passed_on = pass == Pass::BackwardData
            && all(&is_gradient, AxisLayout::Partial)
            && all(&|tensor| !is_gradient(tensor), WHOLE)
            && gives(AxisLayout::Partial);
        let mut served = (0..self.signature.indices.len()).filter(|index| self.is_served(*index));
        own || first
            || passed_on
            || served.any(|index| {
                let of = self.signature.layouts(pass, index);
                of.is_some_and(|of| self.fits(&of, inputs) && self.makes(&of, pass, outputs))
            })
    }

    /// Rows and columns of images are never split: a normalisation has the statistics of all places. What is merged is in a layer
    /// of its own, after those of the parts.
    fn is_served(&self, index: usize) -> bool {
        let of = &self.signature;
        if of.indices[index].usage == IndexUse::Merged {
            return false;
        }
        let operands = of.inputs.iter().chain(&of.parameters).chain([&of.output]).flatten();
        operands.filter(|(own, _)| *own == index).all(|(_, of)| !matches!(of, Dimension::Row | Dimension::Column))
    }

    fn fits(&self, of: &PassLayouts, inputs: &[TensorLayout]) -> bool {
        inputs.iter().all(|(tensor, layout)| match tensor {
            Tensor::Activation(id) => self.each(&of.inputs, *id, *layout),
            Tensor::ActivationGradient(_) => of.gradient == Some(*layout),
            _ => weights(&of.parameters) == Some(*layout),
        })
    }

    fn makes(&self, of: &PassLayouts, pass: Pass, outputs: &[TensorLayout]) -> bool {
        outputs.iter().all(|(tensor, layout)| match (pass, tensor) {
            (Pass::Forward, _) => of.made[0] == *layout,
            (Pass::BackwardData, Tensor::ActivationGradient(id)) => self.each(&of.made, *id, *layout),
            _ => weights(&of.made) == Some(*layout),
        })
    }

    /// Whether the inputs that `id` makes have a layout.
    fn each(&self, layouts: &[AxisLayout], id: LayerId, layout: AxisLayout) -> bool {
        let mut own = self.inputs.iter().zip(layouts).filter(|(input, _)| **input == id).map(|(_, layout)| *layout);
        own.next() == Some(layout) && own.all(|other| other == layout)
    }
}

/// The one layout of a layer's parameters, as graphs name it: rows of a weight are its features. `None` where they differ, and
/// of a layer without parameters.
pub(in crate::graph) fn weights(parameters: &[AxisLayout]) -> Option<AxisLayout> {
    let name = |layout: &AxisLayout| match layout {
        AxisLayout::Split(Dimension::Output) => FEATURES,
        AxisLayout::Split(Dimension::Input) => COLUMNS,
        other => *other,
    };
    let first = parameters.first().map(name)?;
    parameters.iter().all(|layout| name(layout) == first).then_some(first)
}
