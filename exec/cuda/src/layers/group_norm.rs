//! Lowers normalisation of each sample over groups of its channels.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients, own};
use super::script::Script;
use crate::kernel::{KernelSource, kernels, product, source};
use crate::{Activation, Geometry, View, ViewMut};

const SOURCE: KernelSource = source!("sets.cu");

kernels! {
    /// The normalised tensor, and the mean and inverse deviation of each group of a sample.
    GroupNormForward<A> = SOURCE::group_norm_forward on Geometry::blocks(sets),
        all = product([sets, channels / groups, plane]); {
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        y: ViewMut<A>[all],
        kept: ViewMut<f32>[product([sets, 2])],
        sets: u32,
        groups: u32,
        channels: u32,
        plane: u32,
        last: bool,
        epsilon: f32,
    }

    /// The gradient of the input.
    GroupNormBackward<A> = SOURCE::group_norm_backward on Geometry::blocks(sets),
        all = product([sets, channels / groups, plane]); {
        d_y: View<A>[all],
        x: View<A>[all],
        gammas: View<f32>[channels.into()],
        kept: View<f32>[product([sets, 2])],
        d_x: ViewMut<A>[all],
        sets: u32,
        groups: u32,
        channels: u32,
        plane: u32,
        last: bool,
        accumulate: bool,
    }

    /// The gradients of factors and biases.
    GroupNormParameters<A> = SOURCE::group_norm_parameters on Geometry::blocks(channels),
        all = product([samples, channels, plane]); {
        d_y: View<A>[all],
        x: View<A>[all],
        kept: View<f32>[product([samples, groups, 2])],
        d_gammas: ViewMut<f32>[channels.into()],
        d_betas: ViewMut<f32>[channels.into()],
        samples: u32,
        groups: u32,
        channels: u32,
        plane: u32,
        last: bool,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::GroupNorm(layer) = of.layer else { return None };
    let image = of.image();
    let kept = own(of.space, 2 * product([of.samples, layer.groups]));
    let (channels, plane, last) = (image.channels, image.plane, of.form.channels_last);
    Some(Box::new(GroupNorm { groups: layer.groups, channels, plane, last, epsilon: layer.epsilon, kept }))
}

/// The layer, and the mean and inverse deviation of each group of a sample.
struct GroupNorm {
    groups: u32,
    channels: u32,
    plane: u32,
    last: bool,
    epsilon: f32,
    kept: ViewMut<f32>,
}

impl<A: Activation> Head<A> for GroupNorm {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let GroupNorm { groups, channels, plane, last, epsilon, .. } = *self;
        let (x, y, sets, parts) = (of.inputs[0], of.output, samples * groups, u64::from(channels));
        let (gammas, betas) = (of.parameters.part(0..parts), of.parameters.part(parts..2 * parts));
        let kept = self.kept.part(0..product([sets, 2]));
        let launch = GroupNormForward { x, gammas, betas, y, kept, sets, groups, channels, plane, last, epsilon };
        script.launch(&launch);
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let GroupNorm { groups, channels, plane, last, .. } = *self;
        let (d_y, x, sets, parts) = (of.d_output, of.inputs[0], samples * groups, u64::from(channels));
        let kept = self.kept.part(0..product([sets, 2])).view();
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (d_gammas, d_betas) = (d_parameters.part(0..parts), d_parameters.part(parts..2 * parts));
            script.launch(&GroupNormParameters {
                d_y,
                x,
                kept,
                d_gammas,
                d_betas,
                samples,
                groups,
                channels,
                plane,
                last,
                accumulate,
            });
        }
        if let Some((d_x, accumulate)) = of.d_input() {
            let gammas = of.parameters.part(0..parts);
            script.launch(&GroupNormBackward {
                d_y,
                x,
                gammas,
                kept,
                d_x,
                sets,
                groups,
                channels,
                plane,
                last,
                accumulate,
            });
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (2 * u64::from(self.channels), 0)
    }
}
