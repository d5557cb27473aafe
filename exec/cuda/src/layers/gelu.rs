//! GELU by its tanh approximation.

use super::head::Head;
use super::script::{Script, count};
use super::{Forward, Gradients};
use crate::Activation;
use crate::table::{GeluBackward, GeluForward};

/// The layer.
pub(super) struct Gelu;

impl<A: Activation> Head<A> for Gelu {
    fn forward(&self, of: &Forward<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements) = (of.inputs[0], of.output, count(of.output.elements()));
        script.launch(&GeluForward { x, y, elements });
    }

    fn backward(&self, of: &Gradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, x, elements) = (of.d_output, of.inputs[0], count(d_x.elements()));
        script.launch(&GeluBackward { d_y, x, d_x, elements, accumulate });
    }
}
