//! Sums over a channel of a gradient: what the gradients of factors, summands and biases are made of.

use super::script::Script;
use crate::device::cuda::table::{ChannelSlopes, ChannelSlopesFinish};
use crate::device::cuda::{Parts, View, ViewMut};

/// The sums of `d_y`, `[samples, channels, plane]`, in parts; more fields make them those of a product or behind a ReLU.
pub(super) fn sums(script: &mut Script<'_>, d_y: View<f32>, channels: u32, plane: u32) -> ChannelSlopes<f32> {
    let parts = Parts::of((d_y.elements() / u64::from(channels)) as u32);
    ChannelSlopes {
        d_y,
        x: None,
        y: None,
        means: None,
        inverses: None,
        gammas: None,
        betas: None,
        masked: None,
        partials: script.take(2 * u64::from(channels) * u64::from(parts.parts())),
        channels,
        plane,
        parts,
        rectified: false,
    }
}

/// What the parts of `sums` come to; more fields say where it goes.
pub(super) fn finish(sums: &ChannelSlopes<f32>) -> ChannelSlopesFinish {
    ChannelSlopesFinish {
        partials: sums.partials.view(),
        inverses: None,
        d_factors: None,
        d_summands: None,
        along: None,
        level: None,
        channels: sums.channels,
        parts: sums.parts,
        accumulate: false,
    }
}

/// The gradient of a bias.
pub(super) fn of_bias(script: &mut Script<'_>, sums: &ChannelSlopes<f32>, (target, accumulate): (ViewMut<f32>, bool)) {
    script.launch(sums);
    script.launch(&ChannelSlopesFinish { d_summands: Some(target), accumulate, ..finish(sums) });
}
