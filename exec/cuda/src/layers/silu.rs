//! SiLU.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{Forward, Gradients};
use super::script::{Script, count};
use crate::kernel::{Source, kernels, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: Source = source!("silu.cu");

kernels! {
    /// SiLU.
    SiluForward<A> = SOURCE::silu_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
    }

    /// The gradient before a SiLU from its input.
    SiluBackward<A> = SOURCE::silu_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        x: View<A>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        accumulate: bool,
    }
}

/// The head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Silu = of.layer else { return None };
    Some(Box::new(Silu))
}

/// The layer.
struct Silu;

impl<A: Activation> Head<A> for Silu {
    fn forward(&self, of: &Forward<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements) = (of.inputs[0], of.output, count(of.output.elements()));
        script.launch(&SiluForward { x, y, elements });
    }

    fn backward(&self, of: &Gradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, x, elements) = (of.d_output, of.inputs[0], count(d_x.elements()));
        script.launch(&SiluBackward { d_y, x, d_x, elements, accumulate });
    }
}
