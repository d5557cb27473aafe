//! Lowers layer normalisation over channels.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients, own};
use super::script::Script;
use crate::kernel::{KernelSource, kernels, product, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: KernelSource = source!("layer_norm.cu");

kernels! {
    /// The normalised tensor, and the mean and inverse deviation of each place.
    LayerNormForward<A> = SOURCE::layer_norm_forward on Geometry::threads(u64::from(places)),
        all = product([places, channels]); {
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        y: ViewMut<A>[all],
        kept: ViewMut<f32>[product([places, 2])],
        places: u32,
        channels: u32,
        plane: u32,
        epsilon: f32,
    }

    /// The gradient of the input.
    LayerNormBackward<A> = SOURCE::layer_norm_backward on Geometry::threads(u64::from(places)),
        all = product([places, channels]); {
        d_y: View<A>[all],
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        kept: View<f32>[product([places, 2])],
        d_x: ViewMut<A>[all],
        places: u32,
        channels: u32,
        plane: u32,
        accumulate: bool,
    }

    /// The gradients of factors and biases.
    LayerNormParameters<A> = SOURCE::layer_norm_parameters on Geometry::blocks(channels),
        all = product([places, channels]); {
        d_y: View<A>[all],
        x: View<A>[all],
        kept: View<f32>[product([places, 2])],
        d_gammas: ViewMut<f32>[channels.into()],
        d_betas: ViewMut<f32>[channels.into()],
        places: u32,
        channels: u32,
        plane: u32,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::LayerNorm(layer) = of.layer else { return None };
    let image = of.image();
    let kept = own(of.space, 2 * product([of.samples, image.plane]));
    Some(Box::new(LayerNorm { image, epsilon: layer.epsilon, kept }))
}

/// The layer, and the mean and inverse deviation of each place.
struct LayerNorm {
    image: Image,
    epsilon: f32,
    kept: ViewMut<f32>,
}

impl<A: Activation> Head<A> for LayerNorm {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (batch, channels, plane) = self.image.batch(samples);
        let (x, y, places) = (of.inputs[0], of.output, batch * plane);
        let parts = u64::from(channels);
        let (gammas, betas) = (of.parameters.part(0..parts), of.parameters.part(parts..2 * parts));
        let (kept, epsilon) = (self.kept.part(0..product([places, 2])), self.epsilon);
        script.launch(&LayerNormForward { x, gammas, betas, y, kept, places, channels, plane, epsilon });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (batch, channels, plane) = self.image.batch(samples);
        let (d_y, x, places, parts) = (of.d_output, of.inputs[0], batch * plane, u64::from(channels));
        let kept = self.kept.part(0..product([places, 2])).view();
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (d_gammas, d_betas) = (d_parameters.part(0..parts), d_parameters.part(parts..2 * parts));
            script.launch(&LayerNormParameters {
                d_y,
                x,
                kept,
                d_gammas,
                d_betas,
                places,
                channels,
                plane,
                accumulate,
            });
        }
        if let Some((d_x, accumulate)) = of.d_input() {
            let gammas = of.parameters.part(0..parts);
            script.launch(&LayerNormBackward { d_y, x, gammas, kept, d_x, places, channels, plane, accumulate });
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (2 * u64::from(self.image.channels), 0)
    }
}
