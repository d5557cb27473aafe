//! Declares the kernels of batch normalisation: `batch_norm.cu`, and its parts of `columns.cu` and `statistics.cu`.
//!
//! Tensors, parts and partials are as in `channels`.

use super::{BATCH_NORM, COLUMNS, STATISTICS};
use crate::kernel::{kernels, product};
use crate::{BlockParts, Geometry, View, ViewMut};

kernels! {
    /// The normalised batch, optionally followed by an addition and a ReLU.
    BatchNormForward<A> = BATCH_NORM::batch_norm_forward on Geometry::groups(all),
        all = product([samples, channels, plane]); {
        x: View<A>[all],
        means: View<f32>[channels.into()],
        inverses: View<f32>[channels.into()],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        addend: Option<View<A>>[all],
        y: ViewMut<A>[all],
        samples: u32,
        channels: u32,
        plane: u32,
        rectified: bool,
    }

    /// The gradients of the input and the addend; `y` is needed where an addition precedes a ReLU.
    BatchNormBackward<A> = BATCH_NORM::batch_norm_backward on Geometry::groups(all),
        all = product([samples, channels, plane]); {
        d_y: View<A>[all],
        x: View<A>[all],
        y: Option<View<A>>[all],
        means: View<f32>[channels.into()],
        inverses: View<f32>[channels.into()],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        along: View<f32>[channels.into()],
        level: View<f32>[channels.into()],
        d_x: ViewMut<A>[all],
        d_addend: Option<ViewMut<A>>[all],
        samples: u32,
        channels: u32,
        plane: u32,
        rectified: bool,
        accumulate: bool,
        accumulate_addend: bool,
    }

    /// Means and squares of each part of each channel: `partials` is `[channels, parts, 2]`.
    BatchNormMoments<A> = BATCH_NORM::batch_norm_moments on Geometry::blocks(channels * parts.parts); {
        x: View<A>[product([channels, parts.count])],
        partials: ViewMut<f64>[product([channels, parts.parts, 2])],
        channels: u32,
        plane: u32,
        parts: BlockParts,
    }

    /// [`BatchNormMoments`] of `[rows, channels]`, by parts of the rows: [`BlockParts::of_rows`].
    ColumnMoments<A> = COLUMNS::column_moments on Geometry::columns(channels, parts); {
        x: View<A>[product([channels, parts.count])],
        partials: ViewMut<f64>[product([channels, parts.parts, 2])],
        channels: u32,
        parts: BlockParts,
    }

    /// The batch's statistics, and an update of the running ones; `keep` is the weight of their old values.
    BatchNormStatistics = STATISTICS::batch_norm_statistics on Geometry::warps(channels); {
        partials: View<f64>[product([channels, parts.parts, 2])],
        means: ViewMut<f32>[channels.into()],
        inverses: ViewMut<f32>[channels.into()],
        running_means: ViewMut<f32>[channels.into()],
        running_variances: ViewMut<f32>[channels.into()],
        channels: u32,
        parts: BlockParts,
        epsilon: f32,
        keep: f32,
    }

    /// The factors of inference, from the running variances.
    BatchNormInverses = STATISTICS::batch_norm_inverses on Geometry::each(channels); {
        running_variances: View<f32>[channels.into()],
        inverses: ViewMut<f32>[channels.into()],
        channels: u32,
        epsilon: f32,
    }
}
