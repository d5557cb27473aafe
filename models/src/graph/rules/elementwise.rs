//! Derives the layouts of elementwise arithmetic from its formula: multiply-adds are linear in what they read, products,
//! quotients, square roots and shifts are not.
//!
//! A value may depend on inputs that are replicated (R), own (O) and partial (P):
//!
//! | it depends on | it may be given as | because |
//! |---|---|---|
//! | R alone | replicated, own | all ranks compute the same |
//! | P alone | partial, own | sums and multiples of parts are parts of the sum and the multiple |
//! | P and R | own | as a part it would count what is replicated once for each rank |
//! | O, with or without others | own, partial | each rank has a version, and a sum over versions is a tensor of its own |
//! | P, by what is not linear | nothing | of the parts of a sum it is something else than of the sum |
//!
//! A split is kept if all operands have it, since elements do not depend on each other. What the first rank gives alone
//! it computes from what it has. The optimizer's states
//! belong to one model: gradients must reach it complete or sharded, tensor by tensor.

use super::{Tensor, TensorLayout, are_alike, is_part_of_model};
use crate::{AxisLayout, Formula, Operand};

/// What a value depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Origin {
    own: bool,
    partial: bool,
    replicated: bool,
}

impl Origin {
    /// Of a tensor in a layout; none of one that is split.
    fn of(layout: AxisLayout) -> Option<Origin> {
        let nothing = Origin::default();
        match layout {
            AxisLayout::Replicated => Some(Origin { replicated: true, ..nothing }),
            AxisLayout::Partial => Some(Origin { partial: true, ..nothing }),
            AxisLayout::Own => Some(Origin { own: true, ..nothing }),
            AxisLayout::Split(_) | AxisLayout::First => None,
        }
    }

    fn and(self, other: Origin) -> Origin {
        Origin {
            own: self.own || other.own,
            partial: self.partial || other.partial,
            replicated: self.replicated || other.replicated,
        }
    }

    /// Whether the value may have a layout.
    fn gives(self, layout: AxisLayout) -> bool {
        match layout {
            AxisLayout::Replicated => !self.own && !self.partial,
            AxisLayout::Own => true,
            AxisLayout::Partial => self.own || self.partial && !self.replicated,
            AxisLayout::Split(_) | AxisLayout::First => false,
        }
    }
}

/// Whether a formula may take these inputs and give these outputs.
pub(super) fn allows(formula: &Formula, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> bool {
    if formula.is_update() {
        // All ranks clip by the same norm.
        let (norms, gradients): (Vec<_>, Vec<_>) = inputs.iter().partition(|(tensor, _)| *tensor == Tensor::SquareSum);
        return norms.iter().all(|(_, layout)| *layout == AxisLayout::Replicated)
            && gradients.iter().all(|(_, layout)| is_part_of_model(*layout))
            && are_alike(&gradients, outputs);
    }
    let mut layouts = inputs.iter().chain(outputs).map(|(_, layout)| *layout);
    let is_part = |layout: &AxisLayout| *layout != AxisLayout::Replicated && is_part_of_model(*layout);
    if layouts.next().filter(is_part).is_some_and(|first| layouts.all(|layout| layout == first)) {
        return true;
    }
    // The first rank may compute alone, from what it has alone and what all ranks have.
    let on_first = |layout: &AxisLayout| matches!(layout, AxisLayout::First | AxisLayout::Replicated);
    let alone = !outputs.is_empty() && outputs.iter().all(|(_, layout)| *layout == AxisLayout::First);
    if alone && inputs.iter().all(|(_, layout)| on_first(layout)) {
        return true;
    }
    // Tensors that it does not read only order tasks, so their layout does not matter unless all ranks hold the same.
    let read = |item: &&TensorLayout| item.0.buffer().is_some_and(|buffer| formula.reads(buffer));
    if inputs.iter().filter(|item| !read(item)).any(|(_, layout)| *layout != AxisLayout::Replicated) {
        return false;
    }
    // A buffer without an input holds what the previous step left there: its layout is the one that the node gives it.
    let given = |operand| {
        let of = |item: &&TensorLayout| item.0.buffer().map(Operand::Buffer) == Some(operand);
        inputs.iter().find(of).or_else(|| outputs.iter().find(of)).map(|(_, layout)| *layout)
    };
    let mut values: Vec<(Operand, Origin)> = Vec::new();
    // Twice: a buffer that only this node sees depends on the previous step.
    for _ in 0..2 {
        for buffer in formula.buffers() {
            let operand = Operand::Buffer(buffer);
            let Some(layout) = given(operand) else { continue };
            let Some(origin) = Origin::of(layout) else { return false };
            set(&mut values, operand, origin);
        }
        for term in formula.terms() {
            let of = |operand| values.iter().find(|(other, _)| *other == operand).map_or(Origin::default(), |of| of.1);
            let origin = of(term.right).and(term.left.map_or(Origin::default(), of));
            if origin.partial && !term.arithmetic.is_linear() {
                return false;
            }
            set(&mut values, term.to, origin);
        }
    }
    outputs.iter().all(|(tensor, layout)| {
        let operand = tensor.buffer().map(Operand::Buffer);
        values.iter().any(|(other, origin)| Some(*other) == operand && origin.gives(*layout))
    })
}

fn set(values: &mut Vec<(Operand, Origin)>, operand: Operand, origin: Origin) {
    values.retain(|(other, _)| *other != operand);
    values.push((operand, origin));
}
