//! Lowers sums of a gradient over a channel, for the gradients of factors and biases.

use super::image::Image;
use super::script::Script;
use crate::table::{ChannelGradients, ChannelGradientsFinish, ColumnGradients};
use crate::{Activation, BlockParts, View, ViewMut};

/// The division of each channel's `count` elements into parts, with `channels` channels in planes of `plane`.
pub(super) fn parts(count: u32, channels: u32, plane: u32) -> BlockParts {
    if plane == 1 { BlockParts::of_rows(count, channels) } else { BlockParts::of(count) }
}

/// The partial sums of `d_y`, a batch of images; further fields make them sums of a product or after a ReLU.
pub(super) fn sums<A: Activation>(script: &mut Script<'_>, d_y: View<A>, image: Image) -> ChannelGradients<A> {
    let (_, channels, plane) = image.batch(1);
    let parts = parts((d_y.elements() / u64::from(channels)) as u32, channels, plane);
    ChannelGradients {
        d_y,
        x: None,
        y: None,
        means: None,
        inverses: None,
        gammas: None,
        betas: None,
        masked: None,
        partials: script.take(2 * u64::from(channels) * u64::from(parts.parts)),
        channels,
        plane,
        parts,
        rectified: false,
    }
}

/// Issues the partial sums, with the column kernel where planes have one element.
pub(super) fn add_up<A: Activation>(script: &mut Script<'_>, of: &ChannelGradients<A>) {
    if of.plane > 1 {
        return script.launch(of);
    }
    let &ChannelGradients {
        d_y,
        x,
        y,
        means,
        inverses,
        gammas,
        betas,
        masked,
        partials,
        channels,
        parts,
        rectified,
        ..
    } = of;
    script.launch(&ColumnGradients {
        d_y,
        x,
        y,
        means,
        inverses,
        gammas,
        betas,
        masked,
        partials,
        channels,
        parts,
        rectified,
    });
}

/// The final sums of the parts of `sums`; further fields say where they go.
pub(super) fn finish<A: Activation>(sums: &ChannelGradients<A>) -> ChannelGradientsFinish {
    ChannelGradientsFinish {
        partials: sums.partials.view(),
        inverses: None,
        d_factors: None,
        d_biases: None,
        along: None,
        level: None,
        channels: sums.channels,
        parts: sums.parts,
        accumulate: false,
    }
}

/// The gradient of a bias.
pub(super) fn of_bias<A: Activation>(
    script: &mut Script<'_>,
    sums: &ChannelGradients<A>,
    (target, accumulate): (ViewMut<f32>, bool),
) {
    add_up(script, sums);
    script.launch(&ChannelGradientsFinish { d_biases: Some(target), accumulate, ..finish(sums) });
}
