//! Declares the kernels for factors and biases of channels, and sums over channels: `channels.cu`,
//! `columns.cu` and `statistics.cu`.
//!
//! Tensors are `[samples, channels, plane]` and have at most 2³² − 1 elements. With channels last they are
//! `[samples · plane, channels, 1]`, or `[rows, channels]`. A block sums a part of a channel, or of the rows of some
//! channels, into `partials`, `[channels, parts, 2]`; a second kernel finishes the sums.

use super::{CHANNELS, COLUMNS, STATISTICS};
use crate::kernel::{kernels, product};
use crate::{BlockParts, Geometry, View, ViewMut};

kernels! {
    /// `y ← f·x + s` per channel, rectified or not: a bias, a scale layer, its gradient with respect to `x`.
    ChannelAffine<A> = CHANNELS::channel_affine on Geometry::groups(all), all = product([samples, channels, plane]); {
        x: View<A>[all],
        factors: Option<View<f32>>[channels.into()],
        biases: Option<View<f32>>[channels.into()],
        y: ViewMut<A>[all],
        samples: u32,
        channels: u32,
        plane: u32,
        rectified: bool,
        accumulate: bool,
    }

    /// Sums of each part of each channel, for the gradients of factors and biases: `partials` is
    /// `[channels, parts, 2]`.
    ///
    /// With `rectified` the output is `y` or, if that is missing, recomputed from `x`, `inverses`, `gammas` and
    /// `betas`.
    ChannelGradients<A> = CHANNELS::channel_gradients on Geometry::blocks(channels * parts.parts),
        all = product([channels, parts.count]); {
        d_y: View<A>[all],
        x: Option<View<A>>[all],
        y: Option<View<A>>[all],
        means: Option<View<f32>>[channels.into()],
        inverses: Option<View<f32>>[channels.into()],
        gammas: Option<View<f32>>[channels.into()],
        betas: Option<View<f32>>[channels.into()],
        masked: Option<ViewMut<A>>[all],
        partials: ViewMut<f64>[product([channels, parts.parts, 2])],
        channels: u32,
        plane: u32,
        parts: BlockParts,
        rectified: bool,
    }

    /// [`ChannelGradients`] of `[rows, channels]`, by parts of the rows: [`BlockParts::of_rows`].
    ColumnGradients<A> = COLUMNS::column_gradients on Geometry::columns(channels, parts),
        all = product([channels, parts.count]); {
        d_y: View<A>[all],
        x: Option<View<A>>[all],
        y: Option<View<A>>[all],
        means: Option<View<f32>>[channels.into()],
        inverses: Option<View<f32>>[channels.into()],
        gammas: Option<View<f32>>[channels.into()],
        betas: Option<View<f32>>[channels.into()],
        masked: Option<ViewMut<A>>[all],
        partials: ViewMut<f64>[product([channels, parts.parts, 2])],
        channels: u32,
        parts: BlockParts,
        rectified: bool,
    }

    /// The gradients of factors and biases, and the sums for batch normalisation's gradient.
    ChannelGradientsFinish = STATISTICS::channel_gradients_finish on Geometry::warps(channels); {
        partials: View<f64>[product([channels, parts.parts, 2])],
        inverses: Option<View<f32>>[channels.into()],
        d_factors: Option<ViewMut<f32>>[channels.into()],
        d_biases: Option<ViewMut<f32>>[channels.into()],
        along: Option<ViewMut<f32>>[channels.into()],
        level: Option<ViewMut<f32>>[channels.into()],
        channels: u32,
        parts: BlockParts,
        accumulate: bool,
    }
}
