//! Sigmoid and tanh.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{Forward, Gradients};
use super::script::{Script, count};
use crate::kernel::{Source, kernels, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: Source = source!("curve.cu");

kernels! {
    /// Sigmoid, or tanh.
    CurveForward<A> = SOURCE::curve_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        hyperbolic: bool,
    }

    /// The gradient before a sigmoid or tanh from its output.
    CurveBackward<A> = SOURCE::curve_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        y: View<A>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        hyperbolic: bool,
        accumulate: bool,
    }
}

/// The head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    match of.layer {
        Layer::Sigmoid => Some(Box::new(Curve { hyperbolic: false })),
        Layer::Tanh => Some(Box::new(Curve { hyperbolic: true })),
        _ => None,
    }
}

/// Sigmoid, or tanh.
struct Curve {
    hyperbolic: bool,
}

impl<A: Activation> Head<A> for Curve {
    fn forward(&self, of: &Forward<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements, hyperbolic) = (of.inputs[0], of.output, count(of.output.elements()), self.hyperbolic);
        script.launch(&CurveForward { x, y, elements, hyperbolic });
    }

    fn backward(&self, of: &Gradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, y, elements, hyperbolic) = (of.d_output, of.output, count(d_x.elements()), self.hyperbolic);
        script.launch(&CurveBackward { d_y, y, d_x, elements, hyperbolic, accumulate });
    }
}
