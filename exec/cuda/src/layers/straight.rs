//! Lowers layers of straight lines: a constant factor and shift, and the leaky ReLU.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::script::{Script, count};
use crate::kernel::{KernelSource, kernels, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: KernelSource = source!("straight.cu");

kernels! {
    /// The line's value.
    StraightForward<A> = SOURCE::straight_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        above: f32,
        below: f32,
        shift: f32,
    }

    /// The gradient before it.
    StraightBackward<A> = SOURCE::straight_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        y: Option<View<A>>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        above: f32,
        below: f32,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let (above, below, shift, bent) = match of.layer {
        Layer::Affine(affine) => (affine.factor, affine.factor, affine.shift, false),
        Layer::LeakyRelu(leaky) => (1.0, leaky.slope, 0.0, true),
        _ => return None,
    };
    Some(Box::new(Straight { above, below, shift, bent }))
}

/// `y = above · x + shift`; with a bend at 0 `below · x` where x is not positive.
struct Straight {
    above: f32,
    below: f32,
    shift: f32,
    bent: bool,
}

impl<A: Activation> Head<A> for Straight {
    fn forward(&self, of: &ForwardPass<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements) = (of.inputs[0], of.output, count(of.output.elements()));
        let Straight { above, below, shift, .. } = *self;
        script.launch(&StraightForward { x, y, elements, above, below, shift });
    }

    fn backward(&self, of: &PassGradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, y, elements) = (of.d_output, self.bent.then_some(of.output), count(d_x.elements()));
        let Straight { above, below, .. } = *self;
        script.launch(&StraightBackward { d_y, y, d_x, elements, above, below, accumulate });
    }
}
