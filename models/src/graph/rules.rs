//! Decides which layouts of its inputs a node may take on an axis, and which layouts its outputs then have.

mod elementwise;
mod layer;

use lockstep_topology::Collective;

use super::{NodeWork, Tensor};
use crate::tensor::transition;
use crate::{Axis, AxisLayout, Dimension, Pass};
pub(super) use layer::Operands;

/// A tensor and its layout on the axis in question.
pub(super) type TensorLayout = (Tensor, AxisLayout);

const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
const COLUMNS: AxisLayout = AxisLayout::Split(Dimension::Input);
const ELEMENTS: AxisLayout = AxisLayout::Split(Dimension::Element);

/// A node, the axis on which it is looked at, and the operands of the layer that it runs, if it runs one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    pub(super) work: &'a NodeWork,
    pub(super) axis: Axis,
    pub(super) operands: Option<&'a Operands>,
}

impl Rule<'_> {
    /// Whether some rule allows these inputs and outputs.
    pub(super) fn allows(self, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> bool {
        let all = |items: &[TensorLayout], layout| items.iter().all(|(_, other)| *other == layout);
        if let Some((collective, axes)) = self.work.change() {
            let (Some((_, from)), Some((_, to))) = (inputs.first(), outputs.first()) else { return false };
            if collective.is_some() && axes.is_empty() {
                return false;
            }
            let collective = collective.map(|collective| on_axis(collective, self.axis));
            let led = || transition(*from, *to) == Some(collective.clone());
            // On other axes each tensor of a bucket keeps its layout.
            return if axes.contains(self.axis) {
                led() && all(inputs, *from) && all(outputs, *to)
            } else {
                are_alike(inputs, outputs)
            };
        }
        // If all inputs are replicated, so are the outputs.
        if all(inputs, AxisLayout::Replicated) && all(outputs, AxisLayout::Replicated) {
            return true;
        }
        match self.work {
            NodeWork::Load => inputs.is_empty() && (all(outputs, SAMPLES) || all(outputs, AxisLayout::First)),
            // Of a parameter that two stages share each makes a summand of the gradient.
            NodeWork::Layer(_, Pass::BackwardWeight)
                if self.axis == Axis::Pipeline && self.operands.is_some_and(|of| of.shares) =>
            {
                all(inputs, AxisLayout::Replicated) && all(outputs, AxisLayout::Partial)
            }
            NodeWork::Layer(..) | NodeWork::Recompute(_) => self.allow_pass(inputs, outputs),
            NodeWork::Elementwise { of, .. } => elementwise::allows(&of.formula, inputs, outputs),
            // Squares are not linear: of the parts of a sum they are no parts. Ranks with parts of a tensor have parts of
            // the sum; what all have counts on the first.
            NodeWork::SquareSum { axes, .. } => {
                axes.contains(self.axis)
                    && inputs.iter().all(|(_, layout)| is_part_of_model(*layout))
                    && all(outputs, AxisLayout::Partial)
            }
            NodeWork::Relayout { .. } | NodeWork::Collective { .. } => false,
        }
    }

    /// Whether a layer's pass may take and make these.
    fn allow_pass(self, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> bool {
        let of = self.operands.zip(self.work.layer_pass());
        of.is_some_and(|(operands, (_, pass))| operands.allow(pass, inputs, outputs))
    }

    /// The transition of an input without which no rule allows the node, if one is enough: `allreduce` of the weight
    /// gradient.
    pub(super) fn missing(self, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> Option<(String, Tensor)> {
        inputs.iter().find_map(|(tensor, from)| {
            [AxisLayout::Replicated, FEATURES, SAMPLES, ELEMENTS, AxisLayout::First].into_iter().find_map(|to| {
                let collective = transition(*from, to)?;
                let changed = |item: &TensorLayout| if item == &(*tensor, *from) { (*tensor, to) } else { *item };
                let name = collective.map_or_else(|| "slice".to_owned(), |collective| collective.name().to_owned());
                let fits = self.allows(&inputs.iter().map(changed).collect::<Vec<_>>(), outputs);
                fits.then_some((name, *tensor))
            })
        })
    }
}

/// Whether ranks have all of a tensor of parameters, or each a part of it.
fn is_part_of_model(layout: AxisLayout) -> bool {
    layout == AxisLayout::Replicated || matches!(layout, AxisLayout::Split(along) if along != Dimension::Sample)
}

/// What a collective does along one of its axes: the learners of a device, which are a node, sum to the first of them.
fn on_axis(collective: &Collective, axis: Axis) -> Collective {
    match collective {
        Collective::AllReduceToLeaders if axis == Axis::Learner => Collective::Reduce { root: 0 },
        Collective::AllReduceToLeaders => Collective::AllReduce,
        other => other.clone(),
    }
}

/// Whether inputs and outputs have the same layouts.
fn are_alike(inputs: &[TensorLayout], outputs: &[TensorLayout]) -> bool {
    let within = |some: &[TensorLayout], others: &[TensorLayout]| {
        some.iter().all(|(_, layout)| others.iter().any(|(_, other)| other == layout))
    };
    within(inputs, outputs) && within(outputs, inputs)
}
