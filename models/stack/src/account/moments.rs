//! The moments of a step at which a rank's memory changes: forward passes until the most micro-batches are in flight, loss, backward
//! pass layer by layer, the optimizer.

use crate::boards::Board;
use crate::decoder::Decoder;
use crate::layout::Layout;
use crate::part::{Live, Part};
use crate::saved::Activations;
use crate::stack::Stack;

use super::holding::{holding, kept, step};

/// What is there at a moment of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// `forward`, `loss`, `head`, `backward` or `optimizer`.
    pub name: &'static str,
    /// Bytes.
    pub live: Live,
}

/// Parts of micro-batches (a stage has `virtual_stages` parts) whose activations a stage holds at once, at most: those that have gone
/// forward before the first comes back (1F1B: Narayanan et al. 2021, §2.2).
fn parts_in_flight(layout: &Layout, stage: u64) -> u64 {
    let (p, v, m) = (layout.pipeline, layout.virtual_stages, layout.micro_batches);
    let most = match v {
        1 => p - stage,
        // Megatron-LM warms up with so many parts, and one more is in flight in the steady state.
        _ => 2 * (p - stage - 1) + (v - 1) * p + 1,
    };
    most.min(m * v)
}

/// The same in micro-batches.
pub(super) fn in_flight(layout: &Layout, stage: u64) -> f64 {
    parts_in_flight(layout, stage) as f64 / layout.virtual_stages as f64
}

/// The moments of a rank of a stage.
pub(super) fn of_stage(
    decoder: &Decoder,
    layout: &Layout,
    stack: &dyn Stack,
    board: &Board,
    stage: u64,
) -> Vec<Moment> {
    let holding = holding(decoder, layout, stack, stage);
    let backward = stack.backward(decoder, layout);
    let input = layout.whole_tokens() * decoder.hidden * layout.element();
    let activations = Activations::of(&stack.saved(decoder, layout), input, backward, &layout.recompute);
    let [gathered_forward, gathered_backward, gathered_head] = stack.gathered(decoder, &holding, layout);
    let gathered = |bytes| Live::of(Part::Gathered, bytes);
    let mut full = kept(&holding, layout, stack)
        + Live::of(Part::Buffers, stack.buffers(decoder, &holding, layout))
        + Live::of(Part::Workspace, stack.workspace(board.capability));
    let gradients = full[Part::Gradients];
    full[Part::Gradients] = 0;
    let grown = if stack.gradients_stay(layout) { gradients } else { 0 };
    let base = full + Live::of(Part::Gradients, grown);
    let in_part = holding.layers.div_ceil(layout.virtual_stages);
    let parts = parts_in_flight(layout, stage);
    let of_part = activations.kept_by(in_part);
    let head = (stage + 1 == layout.pipeline).then(|| stack.head(decoder, layout, stack.table(decoder, layout)));
    // The head's input and gradient of each micro-batch whose gradient of the weight waits for the end of the step.
    let deferred = |but: u64| match head {
        Some(_) => {
            let waiting = layout.deferred_heads.min(layout.micro_batches).saturating_sub(but);
            let bytes = stack.deferred_head(decoder, layout, stack.table(decoder, layout));
            Live::of(Part::Logits, waiting * bytes)
        }
        None => Live::default(),
    };
    let mut moments = Vec::new();
    let mut add = |name, live: Live| moments.push(Moment { name, live });
    // One layer's own work in a forward pass is small beside its gradients in the backward pass.
    (0..parts).for_each(|part| add("forward", base + of_part * part + gathered(gathered_forward)));
    let held = base + of_part * (parts - 1);
    (1..=in_part).for_each(|layers| add("forward", held + activations.kept_by(layers) + gathered(gathered_forward)));
    if let Some(head) = head {
        let full = held + of_part + gathered(gathered_head) + deferred(1);
        add("loss", full + Live::of(Part::Logits, head.forward));
        add("head", full + Live::of(Part::Logits, head.backward));
    }
    let temporaries = Live::of(Part::Temporaries, activations.again.saturating_add(activations.backward));
    let whole = gathered(gathered_backward);
    for layers in (1..=in_part).rev() {
        // Gradients of the layers behind are there by now.
        let made = (gradients - grown) as u128 * u128::from(in_part - layers) / u128::from(in_part);
        let made = Live::of(Part::Gradients, made as u64);
        add("backward", held + activations.kept_by(layers) + temporaries + whole + made + deferred(0));
    }
    add("optimizer", full + Live::of(Part::Gradients, gradients) + step(&holding, layout, stack));
    moments
}
