//! Sums over channels and what they come to: `channels.cu`, `columns.cu`, `batch_norm.cu` and `statistics.cu`.
//!
//! Tensors are `[samples, channels, plane]`, or `[rows, channels]` where channels lie last. A block sums a part of a channel, or of
//! the rows of some channels, into `partials`, `[channels, parts, 2]`; a second kernel makes of the parts what is wanted.

use super::{Call, Entry, Launch, instances, kernels, product, symbol};
use crate::{Activation, Bf16, Geometry, Parameter, Parts, Scalar, Source, Unit, View, ViewMut};

kernels! {
    /// Sums of each part of each channel, of which the gradients of factors and summands are made: `partials` is
    /// `[channels, parts, 2]`.
    ///
    /// With `rectified` the output is `y` or, where that is missing, made of `x`, `inverses`, `gammas` and `betas`.
    ChannelSlopes<A> = Channels::channel_slopes on Geometry::blocks(channels * parts.parts()),
        all = product([channels, parts.count()]); {
        d_y: View<A>[all],
        x: Option<View<A>>[all],
        y: Option<View<A>>[all],
        means: Option<View<f32>>[channels.into()],
        inverses: Option<View<f32>>[channels.into()],
        gammas: Option<View<f32>>[channels.into()],
        betas: Option<View<f32>>[channels.into()],
        masked: Option<ViewMut<A>>[all],
        partials: ViewMut<f64>[product([channels, parts.parts(), 2])],
        channels: u32,
        plane: u32,
        parts: Parts,
        rectified: bool,
    }

    /// [`ChannelSlopes`] of `[rows, channels]`, by parts of the rows: [`Parts::of_rows`].
    ColumnSlopes<A> = Columns::column_slopes on Geometry::columns(channels, parts),
        all = product([channels, parts.count()]); {
        d_y: View<A>[all],
        x: Option<View<A>>[all],
        y: Option<View<A>>[all],
        means: Option<View<f32>>[channels.into()],
        inverses: Option<View<f32>>[channels.into()],
        gammas: Option<View<f32>>[channels.into()],
        betas: Option<View<f32>>[channels.into()],
        masked: Option<ViewMut<A>>[all],
        partials: ViewMut<f64>[product([channels, parts.parts(), 2])],
        channels: u32,
        parts: Parts,
        rectified: bool,
    }

    /// The gradients of factors and summands, and what batch normalisation's gradient wants of them.
    ChannelSlopesFinish = Statistics::channel_slopes_finish on Geometry::warps(channels); {
        partials: View<f64>[product([channels, parts.parts(), 2])],
        inverses: Option<View<f32>>[channels.into()],
        d_factors: Option<ViewMut<f32>>[channels.into()],
        d_summands: Option<ViewMut<f32>>[channels.into()],
        along: Option<ViewMut<f32>>[channels.into()],
        level: Option<ViewMut<f32>>[channels.into()],
        channels: u32,
        parts: Parts,
        accumulate: bool,
    }

    /// Means and squares of each part of each channel: `partials` is `[channels, parts, 2]`.
    BatchNormMoments<A> = BatchNorm::batch_norm_moments on Geometry::blocks(channels * parts.parts()); {
        x: View<A>[product([channels, parts.count()])],
        partials: ViewMut<f64>[product([channels, parts.parts(), 2])],
        channels: u32,
        plane: u32,
        parts: Parts,
    }

    /// [`BatchNormMoments`] of `[rows, channels]`, by parts of the rows: [`Parts::of_rows`].
    ColumnMoments<A> = Columns::column_moments on Geometry::columns(channels, parts); {
        x: View<A>[product([channels, parts.count()])],
        partials: ViewMut<f64>[product([channels, parts.parts(), 2])],
        channels: u32,
        parts: Parts,
    }

    /// The batch's statistics, and the running ones moved towards them; `keep` is what is kept of those.
    BatchNormStatistics = Statistics::batch_norm_statistics on Geometry::warps(channels); {
        partials: View<f64>[product([channels, parts.parts(), 2])],
        means: ViewMut<f32>[channels.into()],
        inverses: ViewMut<f32>[channels.into()],
        running_means: ViewMut<f32>[channels.into()],
        running_variances: ViewMut<f32>[channels.into()],
        channels: u32,
        parts: Parts,
        epsilon: f32,
        keep: f32,
    }

    /// What inference multiplies with, from the running variances.
    BatchNormInverses = Statistics::batch_norm_inverses on Geometry::each(channels); {
        running_variances: View<f32>[channels.into()],
        inverses: ViewMut<f32>[channels.into()],
        channels: u32,
        epsilon: f32,
    }
}
