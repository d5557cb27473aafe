//! Lowers softmax over sets of channels.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::script::Script;
use crate::kernel::{KernelSource, kernels, product, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: KernelSource = source!("sets.cu");

kernels! {
    /// The probabilities.
    SoftmaxSetsForward<A> = SOURCE::softmax_sets_forward on Geometry::threads(all / u64::from(parts)),
        all = product([samples, channels, plane]); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        samples: u32,
        parts: u32,
        channels: u32,
        plane: u32,
        last: bool,
    }

    /// The gradient before it.
    SoftmaxSetsBackward<A> = SOURCE::softmax_sets_backward on Geometry::threads(all / u64::from(parts)),
        all = product([samples, channels, plane]); {
        d_y: View<A>[all],
        y: View<A>[all],
        d_x: ViewMut<A>[all],
        samples: u32,
        parts: u32,
        channels: u32,
        plane: u32,
        last: bool,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Softmax(layer) = of.layer else { return None };
    let image = of.image();
    let (channels, plane, last) = (image.channels, image.plane, of.form.channels_last);
    Some(Box::new(Softmax { parts: layer.parts, channels, plane, last }))
}

/// The layer.
struct Softmax {
    parts: u32,
    channels: u32,
    plane: u32,
    last: bool,
}

impl<A: Activation> Head<A> for Softmax {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Softmax { parts, channels, plane, last } = *self;
        script.launch(&SoftmaxSetsForward { x: of.inputs[0], y: of.output, samples, parts, channels, plane, last });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let Softmax { parts, channels, plane, last } = *self;
        let (d_y, y) = (of.d_output, of.output);
        script.launch(&SoftmaxSetsBackward { d_y, y, d_x, samples, parts, channels, plane, last, accumulate });
    }
}
