//! Transposes images with channels last to rows of features in channels-first order, for flattening, for dense layers
//! and for dropout's numbering: into scratch before such a layer, and back after it.

use lockstep_exec::device::{ChainLayer, output_of};
use lockstep_models::Shape;

use super::pass::{ForwardPass, PassGradients, TensorForm, is_image};
use super::script::{Script, count};
use crate::{Activation, Command, View, ViewMut};

/// The transpositions around a chain, as rows and columns of a sample as the layer sees it in scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Transposition {
    input: Option<(u32, u32)>,
    output: Option<(u32, u32)>,
}

/// Channels, and places of each.
fn sizes(shape: Shape) -> (u32, u32) {
    (shape.features(), shape.places() as u32)
}

impl Transposition {
    /// The transpositions for a chain, whose layers other than flattenings are `computing`; `numbers`: the first of
    /// them draws a number for each element.
    pub(super) fn of(
        chain: &[ChainLayer<'_>],
        computing: &[&ChainLayer<'_>],
        form: TensorForm,
        numbers: bool,
    ) -> Transposition {
        if !form.channels_last {
            return Transposition::default();
        }
        let from = chain[0].inputs.first().copied().filter(|shape| is_image(*shape));
        let to = output_of(&chain[chain.len() - 1]);
        // The shapes read by the first layer and produced by the last; without any layer the input is flattened.
        let [read, given] = match computing {
            [] => [to, to],
            [first, ..] => [first.inputs[0], output_of(computing[computing.len() - 1])],
        };
        let rows = !is_image(read) || computing.first().is_some_and(|first| first.layer.rule().kind().flattens);
        let (channels, places) = sizes(given);
        let output = match (is_image(given), is_image(to)) {
            (true, false) if !numbers => Some((places, channels)),
            (true, true) if numbers => Some((channels, places)),
            _ => None,
        };
        Transposition { input: from.filter(|_| rows || numbers).map(sizes), output }
    }

    /// Whether there is nothing to transpose.
    pub(super) fn is_none(self) -> bool {
        self == Transposition::default()
    }

    /// Runs a forward pass on transposed tensors.
    pub(super) fn forward<A: Activation>(
        self,
        of: &ForwardPass<'_, A>,
        samples: u32,
        script: &mut Script<'_>,
        pass: impl FnOnce(&ForwardPass<'_, A>, &mut Script<'_>),
    ) {
        let turned = self.input.map(|seen| [turned(script, of.inputs[0], samples, seen)]);
        let inputs = turned.as_ref().map_or(of.inputs, |turned| &turned[..]);
        let Some((rows, columns)) = self.output else { return pass(&ForwardPass { inputs, ..*of }, script) };
        let output = script.take(of.output.elements());
        pass(&ForwardPass { inputs, output, ..*of }, script);
        script.turn(output.view(), of.output, (samples, rows, columns), false);
    }

    /// Runs a backward pass on transposed tensors.
    pub(super) fn backward<A: Activation>(
        self,
        of: &PassGradients<'_, A>,
        samples: u32,
        script: &mut Script<'_>,
        pass: impl FnOnce(&PassGradients<'_, A>, &mut Script<'_>),
    ) {
        let mut of = *of;
        if let Some(seen) = self.output {
            let [output, d_output] = [of.output, of.d_output].map(|tensor| turned(script, tensor, samples, seen));
            (of.output, of.d_output) = (output, d_output);
        }
        let Some((rows, columns)) = self.input else { return pass(&of, script) };
        let inputs = [turned(script, of.inputs[0], samples, (rows, columns))];
        let Some((target, accumulate)) = of.d_input() else {
            return pass(&PassGradients { inputs: &inputs, ..of }, script);
        };
        let d_input: ViewMut<A> = script.take(target.elements());
        let d_inputs = [Some((d_input, false))];
        pass(&PassGradients { inputs: &inputs, d_inputs: &d_inputs, ..of }, script);
        script.turn(d_input.view(), target, (samples, rows, columns), accumulate);
    }
}

/// Transposes a tensor into scratch, where the layer sees samples with these rows and columns; a tensor without a place
/// stays without.
fn turned<A: Activation>(script: &mut Script<'_>, of: View<A>, samples: u32, (rows, columns): (u32, u32)) -> View<A> {
    if of.elements() == 0 {
        return of;
    }
    let turned = script.take(of.elements());
    script.turn(of, turned, (samples, columns, rows), false);
    turned.view()
}

/// Appends the command that makes activations from samples of the host to `into`.
pub fn arrange<A: Activation>(
    given: View<f32>,
    activations: ViewMut<A>,
    shape: Shape,
    form: TensorForm,
    into: &mut Vec<Command>,
) {
    let mut script = Script::new(into, 0);
    if form.channels_last && is_image(shape) {
        let samples = count(given.elements() / shape.elements());
        let (rows, columns) = sizes(shape);
        script.turn(given, activations, (samples, rows, columns), false);
    } else {
        script.merge(given, activations, false);
    }
}
