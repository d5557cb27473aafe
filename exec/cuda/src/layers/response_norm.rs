//! Lowers global response normalisation: each channel scaled by its norm among all channels' norms.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients, own};
use super::script::Script;
use crate::kernel::{KernelSource, kernels, product, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: KernelSource = source!("sets.cu");
const SHARES: KernelSource = source!("shares.cu");

kernels! {
    /// The norm of each channel of a sample.
    ResponseNorms<A> = SOURCE::response_norms on Geometry::blocks(sets); {
        x: View<A>[product([sets, plane])],
        norms: ViewMut<f32>[sets.into()],
        sets: u32,
        channels: u32,
        plane: u32,
        last: bool,
    }

    /// The mean of each sample's norms plus ε.
    ResponseMeans = SHARES::response_means on Geometry::blocks(samples); {
        norms: View<f32>[product([samples, channels])],
        means: ViewMut<f32>[samples.into()],
        samples: u32,
        channels: u32,
        epsilon: f32,
    }

    /// The scaled tensor.
    ResponseForward<A> = SOURCE::response_forward on Geometry::blocks(sets), all = product([sets, plane]); {
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        norms: View<f32>[sets.into()],
        means: View<f32>[u64::from(sets / channels)],
        y: ViewMut<A>[all],
        sets: u32,
        channels: u32,
        plane: u32,
        last: bool,
    }

    /// The gradient towards each norm's share.
    ResponseGradients<A> = SOURCE::response_gradients on Geometry::blocks(sets), all = product([sets, plane]); {
        d_y: View<A>[all],
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        gradients: ViewMut<f32>[sets.into()],
        sets: u32,
        channels: u32,
        plane: u32,
        last: bool,
    }

    /// What the mean of a sample's norms takes from these gradients.
    ResponseShares = SHARES::response_shares on Geometry::blocks(samples), sets = product([samples, channels]); {
        gradients: View<f32>[sets],
        norms: View<f32>[sets],
        means: View<f32>[samples.into()],
        shares: ViewMut<f32>[samples.into()],
        samples: u32,
        channels: u32,
    }

    /// The gradient of the input.
    ResponseBackward<A> = SOURCE::response_backward on Geometry::blocks(sets), all = product([sets, plane]); {
        d_y: View<A>[all],
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        norms: View<f32>[sets.into()],
        means: View<f32>[u64::from(sets / channels)],
        gradients: View<f32>[sets.into()],
        shares: View<f32>[u64::from(sets / channels)],
        d_x: ViewMut<A>[all],
        sets: u32,
        channels: u32,
        plane: u32,
        last: bool,
        accumulate: bool,
    }

    /// The gradients of factors and biases.
    ResponseParameters<A> = SOURCE::response_parameters on Geometry::blocks(channels),
        all = product([samples, channels, plane]); {
        d_y: View<A>[all],
        x: View<A>[all],
        norms: View<f32>[product([samples, channels])],
        means: View<f32>[samples.into()],
        d_gammas: ViewMut<f32>[channels.into()],
        d_betas: ViewMut<f32>[channels.into()],
        samples: u32,
        channels: u32,
        plane: u32,
        last: bool,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::ResponseNorm(layer) = of.layer else { return None };
    let image = of.image();
    let (norms, means) = (own(of.space, product([of.samples, image.channels])), own(of.space, of.samples.into()));
    let (channels, plane, last) = (image.channels, image.plane, of.form.channels_last);
    Some(Box::new(ResponseNorm { channels, plane, last, epsilon: layer.epsilon, norms, means }))
}

/// The layer, the norm of each channel of a sample, and the mean of a sample's norms.
struct ResponseNorm {
    channels: u32,
    plane: u32,
    last: bool,
    epsilon: f32,
    norms: ViewMut<f32>,
    means: ViewMut<f32>,
}

impl<A: Activation> Head<A> for ResponseNorm {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let ResponseNorm { channels, plane, last, epsilon, .. } = *self;
        let (x, y, sets, parts) = (of.inputs[0], of.output, samples * channels, u64::from(channels));
        let (norms, means) = (self.norms.part(0..sets.into()), self.means.part(0..samples.into()));
        script.launch(&ResponseNorms { x, norms, sets, channels, plane, last });
        let norms = norms.view();
        script.launch(&ResponseMeans { norms, means, samples, channels, epsilon });
        let (gammas, betas) = (of.parameters.part(0..parts), of.parameters.part(parts..2 * parts));
        let means = means.view();
        script.launch(&ResponseForward { x, gammas, betas, norms, means, y, sets, channels, plane, last });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let ResponseNorm { channels, plane, last, .. } = *self;
        let (d_y, x, sets, parts) = (of.d_output, of.inputs[0], samples * channels, u64::from(channels));
        let (norms, means) = (self.norms.part(0..sets.into()).view(), self.means.part(0..samples.into()).view());
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (d_gammas, d_betas) = (d_parameters.part(0..parts), d_parameters.part(parts..2 * parts));
            script.launch(&ResponseParameters {
                d_y,
                x,
                norms,
                means,
                d_gammas,
                d_betas,
                samples,
                channels,
                plane,
                last,
                accumulate,
            });
        }
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let gammas = of.parameters.part(0..parts);
        let (gradients, shares) = (script.take::<f32>(sets.into()), script.take::<f32>(samples.into()));
        script.launch(&ResponseGradients { d_y, x, gammas, gradients, sets, channels, plane, last });
        let gradients = gradients.view();
        script.launch(&ResponseShares { gradients, norms, means, shares, samples, channels });
        let shares = shares.view();
        script.launch(&ResponseBackward {
            d_y,
            x,
            gammas,
            norms,
            means,
            gradients,
            shares,
            d_x,
            sets,
            channels,
            plane,
            last,
            accumulate,
        });
    }

    fn parameters(&self) -> (u64, u64) {
        (2 * u64::from(self.channels), 0)
    }
}
