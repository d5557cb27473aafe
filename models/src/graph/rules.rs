//! Decides which layouts of its inputs a node may take on an axis, and which layouts its outputs then have.

mod elementwise;

use lockstep_topology::Collective;

use super::{NodeWork, Tensor};
use crate::tensor::transition;
use crate::{Axis, AxisLayout, Dimension, Pass};

/// A tensor and its layout on the axis in question.
pub(super) type TensorLayout = (Tensor, AxisLayout);

const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
const COLUMNS: AxisLayout = AxisLayout::Split(Dimension::Input);
const ELEMENTS: AxisLayout = AxisLayout::Split(Dimension::Element);

/// A node, the axis on which it is looked at, and whether it is a layer that works channel by channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    pub(super) work: &'a NodeWork,
    pub(super) axis: Axis,
    pub(super) by_channel: bool,
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
            NodeWork::Layer(_, pass) => layer(*pass, self.by_channel, inputs, outputs),
            NodeWork::Elementwise { of, .. } => elementwise::allows(&of.formula, inputs, outputs),
            // Squares are not linear: of the parts of a sum they are no parts. Ranks with parts of a tensor have parts of
            // the sum; what all have counts on the first.
            NodeWork::SquareSum { axes, .. } => {
                let is_part =
                    |layout: AxisLayout| matches!(layout, AxisLayout::Replicated | FEATURES | COLUMNS | ELEMENTS);
                axes.contains(self.axis)
                    && inputs.iter().all(|(_, layout)| is_part(*layout))
                    && all(outputs, AxisLayout::Partial)
            }
            NodeWork::Relayout { .. } | NodeWork::Collective { .. } => false,
        }
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

/// The rules of a layer's pass, which is linear in its weights, its input (forward) and its gradient (backward).
fn layer(pass: Pass, by_channel: bool, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> bool {
    let all = |items: &[TensorLayout], placement| items.iter().all(|(_, other)| *other == placement);
    let (weights, data): (Vec<_>, Vec<_>) = inputs.iter().partition(|(tensor, _)| tensor.is_weights());
    let (gradients, activations): (Vec<_>, Vec<_>) =
        data.iter().copied().partition(|(tensor, _)| matches!(tensor, Tensor::ActivationGradient(_)));
    // Samples do not depend on each other: each rank computes its own, with weights that are the same or its own.
    let same_or_own = all(&weights, AxisLayout::Replicated) || all(&weights, AxisLayout::Own);
    let samples = all(&data, SAMPLES) && same_or_own && all(outputs, SAMPLES);
    // A node without weights may run on the first rank alone: the others then contribute nothing.
    let first = weights.is_empty() && all(&data, AxisLayout::First) && all(outputs, AxisLayout::First);
    // Channel by channel, split features stay split.
    let channels = by_channel && all(&data, FEATURES) && all(&weights, FEATURES) && all(outputs, FEATURES);
    let product = |split| !by_channel && !weights.is_empty() && all(&weights, split);
    let (rows, columns) = (product(FEATURES), product(COLUMNS));
    match pass {
        // y = W·x: split rows of W give split features of y; split columns and their features of x give one
        // part of y each.
        Pass::Forward => {
            let split = rows && all(&data, AxisLayout::Replicated) && all(outputs, FEATURES);
            let parts = columns && all(&data, FEATURES) && all(outputs, AxisLayout::Partial);
            samples || first || channels || split || parts
        }
        // dx = Wᵀ·dy: split rows of W and their features of dy give one part of dx each; a part of dy, where W and x
        // are the same, gives a part of dx; split columns of W give split features of dx.
        Pass::BackwardData => {
            let parts = rows && all(&gradients, FEATURES);
            let passed_on = all(&weights, AxisLayout::Replicated) && all(&gradients, AxisLayout::Partial);
            let partial = all(&activations, AxisLayout::Replicated) && all(outputs, AxisLayout::Partial);
            let whole = all(&gradients, AxisLayout::Replicated) && all(&activations, FEATURES);
            samples
                || first
                || channels
                || ((parts || passed_on) && partial)
                || (columns && whole && all(outputs, FEATURES))
        }
        // dW = Σ over samples of dy·xᵀ: split samples give partial sums, which are complete where each rank has its own
        // weights; split features of dy give split rows, those of x split columns.
        Pass::BackwardWeight => {
            let own = !weights.is_empty() && all(&weights, AxisLayout::Own);
            let partial = all(&weights, AxisLayout::Replicated) && all(outputs, AxisLayout::Partial);
            let activation = if by_channel { FEATURES } else { AxisLayout::Replicated };
            (all(&data, SAMPLES) && (partial || own && all(outputs, AxisLayout::Own)))
                || (all(&gradients, FEATURES) && all(&activations, activation) && all(outputs, FEATURES))
                || (!by_channel
                    && all(&gradients, AxisLayout::Replicated)
                    && all(&activations, FEATURES)
                    && all(outputs, COLUMNS))
        }
    }
}
