//! Says which layouts of its inputs a node may take on an axis, and what its outputs then are.

use super::{Tensor, Work};
use crate::layout::transition;
use crate::{AveragingRule, Axis, AxisLayout, Dimension, Pass};

/// A tensor and how it lies on the axis in question.
pub(super) type Placed = (Tensor, AxisLayout);

const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
const ELEMENTS: AxisLayout = AxisLayout::Split(Dimension::Element);

/// A node, the axis on which it is looked at, and whether it is a layer that works channel by channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    pub(super) work: &'a Work,
    pub(super) axis: Axis,
    pub(super) by_channel: bool,
}

impl Rule<'_> {
    /// Whether inputs may lie so, and the outputs are then as stated.
    pub(super) fn allows(self, inputs: &[Placed], outputs: &[Placed]) -> bool {
        let all = |items: &[Placed], layout| items.iter().all(|(_, other)| *other == layout);
        if let Some((collective, axes)) = self.work.change() {
            let (Some((_, from)), Some((_, to))) = (inputs.first(), outputs.first()) else { return false };
            let led = || transition(*from, *to).as_ref().map(Option::as_ref) == Some(collective);
            let changes = if axes.contains(self.axis) { led() } else { from == to };
            return changes && all(inputs, *from) && all(outputs, *to);
        }
        // Where ranks hold the same, they do the same.
        if all(inputs, AxisLayout::Replicated) && all(outputs, AxisLayout::Replicated) {
            return true;
        }
        match self.work {
            Work::Load => inputs.is_empty() && (all(outputs, SAMPLES) || all(outputs, AxisLayout::First)),
            Work::Layer(_, pass) => layer(*pass, self.by_channel, inputs, outputs),
            // Elements do not depend on each other.
            Work::Update { .. } => [FEATURES, ELEMENTS].iter().any(|part| all(inputs, *part) && all(outputs, *part)),
            Work::Averaging { rule, .. } => averaging(*rule, inputs, outputs),
            Work::Relayout { .. } | Work::Collective { .. } => false,
        }
    }

    /// The transition of an input without which no rule allows the node, if one is enough: `allreduce of WeightGradient`.
    pub(super) fn missing(self, inputs: &[Placed], outputs: &[Placed]) -> Option<String> {
        inputs.iter().find_map(|(tensor, from)| {
            [AxisLayout::Replicated, FEATURES, SAMPLES, ELEMENTS, AxisLayout::First].into_iter().find_map(|to| {
                let collective = transition(*from, to)?;
                let changed = |item: &Placed| if item == &(*tensor, *from) { (*tensor, to) } else { *item };
                let name = collective.map_or_else(|| "slice".to_owned(), |collective| collective.name().to_owned());
                let fits = self.allows(&inputs.iter().map(changed).collect::<Vec<_>>(), outputs);
                fits.then(|| format!("{name} of {tensor:?}"))
            })
        })
    }
}

/// The rules of a layer's pass, which is linear in its weights, its input (forward) and its gradient (backward).
fn layer(pass: Pass, by_channel: bool, inputs: &[Placed], outputs: &[Placed]) -> bool {
    let all = |items: &[Placed], placement| items.iter().all(|(_, other)| *other == placement);
    let (weights, data): (Vec<_>, Vec<_>) = inputs.iter().partition(|(tensor, _)| *tensor == Tensor::Weight);
    let (gradients, activations): (Vec<_>, Vec<_>) =
        data.iter().copied().partition(|(tensor, _)| matches!(tensor, Tensor::ActivationGradient(_)));
    // Samples do not depend on each other: each rank computes its own, with weights that are the same or its own.
    let same_or_own = all(&weights, AxisLayout::Replicated) || all(&weights, AxisLayout::Own);
    let samples = all(&data, SAMPLES) && same_or_own && all(outputs, SAMPLES);
    // What has no weights may run on the first rank alone: the others have no part of the result to give.
    let first = weights.is_empty() && all(&data, AxisLayout::First) && all(outputs, AxisLayout::First);
    // Channel by channel, split features stay split.
    let channels = by_channel && all(&data, FEATURES) && all(&weights, FEATURES) && all(outputs, FEATURES);
    let rows = !by_channel && !weights.is_empty() && all(&weights, FEATURES);
    match pass {
        // y = W·x: split rows of W give split features of y.
        Pass::Forward => {
            samples || first || channels || (rows && all(&data, AxisLayout::Replicated) && all(outputs, FEATURES))
        }
        // dx = Wᵀ·dy: split rows of W and their features of dy give one part of dx each; a part of dy, where W and x are the
        // same, gives a part of dx.
        Pass::BackwardData => {
            let parts = rows && all(&gradients, FEATURES);
            let passed_on = all(&weights, AxisLayout::Replicated) && all(&gradients, AxisLayout::Partial);
            let partial = all(&activations, AxisLayout::Replicated) && all(outputs, AxisLayout::Partial);
            samples || first || channels || ((parts || passed_on) && partial)
        }
        // dW = Σ over samples of dy·xᵀ: split samples give partial sums, which at weights of their own are whole; split features
        // of dy give split rows.
        Pass::BackwardWeight => {
            let own = !weights.is_empty() && all(&weights, AxisLayout::Own);
            let partial = all(&weights, AxisLayout::Replicated) && all(outputs, AxisLayout::Partial);
            let activation = if by_channel { FEATURES } else { AxisLayout::Replicated };
            (all(&data, SAMPLES) && (partial || own && all(outputs, AxisLayout::Own)))
                || (all(&gradients, FEATURES) && all(&activations, activation) && all(outputs, FEATURES))
        }
    }
}

/// The rules of model averaging on an axis along which models differ.
fn averaging(rule: AveragingRule, inputs: &[Placed], outputs: &[Placed]) -> bool {
    let each = |items: &[Placed], placement: &dyn Fn(Tensor) -> AxisLayout| {
        items.iter().all(|(tensor, other)| *other == placement(*tensor))
    };
    match rule {
        AveragingRule::Descend => [inputs, outputs].iter().all(|items| each(items, &|_| AxisLayout::Own)),
        // Only the average model is the same for all, or the reference for a device's learners; only differences from them may
        // be added up.
        AveragingRule::Correct => {
            let reference = |item: &Placed| item.0 == Tensor::Reference && item.1 == AxisLayout::Replicated;
            let others: Vec<Placed> = inputs.iter().copied().filter(|item| !reference(item)).collect();
            let input = |tensor| if tensor == Tensor::Average { AxisLayout::Replicated } else { AxisLayout::Own };
            let output = |tensor| if tensor == Tensor::Difference { AxisLayout::Partial } else { AxisLayout::Own };
            each(&others, &input) && each(outputs, &output)
        }
        // What a device hands on to the others is the difference of its reference, and no longer those of its learners.
        AveragingRule::Reference => {
            let placement = |tensor| match tensor {
                Tensor::Average => AxisLayout::Replicated,
                Tensor::Difference => AxisLayout::Partial,
                _ => AxisLayout::Own,
            };
            let needed = [Tensor::Difference, Tensor::Average];
            each(inputs, &placement)
                && each(outputs, &placement)
                && needed.iter().all(|tensor| inputs.iter().any(|(other, _)| other == tensor))
        }
        AveragingRule::Average => false,
    }
}
