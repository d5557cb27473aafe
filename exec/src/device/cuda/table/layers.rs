//! Layers element by element and channel by channel: `elementwise.cu`, `channels.cu` and `batch_norm.cu`.
//!
//! Tensors are `[samples, channels, plane]` and have at most 2³² − 1 elements.

use super::{Call, Entry, Launch, kernels, product};
use crate::device::cuda::{Geometry, Parameter, Parts, Source, View, ViewMut};

kernels! {
    /// `y ← a + b`, rectified or not; `y` may be an input.
    Add = Elementwise::add on Geometry::groups(all), all = u64::from(elements); {
        a: View<f32>[all],
        b: View<f32>[all],
        y: ViewMut<f32>[all],
        elements: u32,
        rectified: bool,
    }

    /// `y ← max(x, 0)`; `y` may be `x`.
    ReluForward = Elementwise::relu_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<f32>[all],
        y: ViewMut<f32>[all],
        elements: u32,
    }

    /// The gradient before a ReLU from its output; also that of each input of an addition with a ReLU.
    ReluBackward = Elementwise::relu_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<f32>[all],
        y: View<f32>[all],
        d_x: ViewMut<f32>[all],
        elements: u32,
        accumulate: bool,
    }

    /// Sigmoid, or tanh.
    CurveForward = Elementwise::curve_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<f32>[all],
        y: ViewMut<f32>[all],
        elements: u32,
        hyperbolic: bool,
    }

    /// The gradient before a sigmoid or tanh from its output.
    CurveBackward = Elementwise::curve_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<f32>[all],
        y: View<f32>[all],
        d_x: ViewMut<f32>[all],
        elements: u32,
        hyperbolic: bool,
        accumulate: bool,
    }

    /// Rows of `length` elements, `stride` apart, from one tensor to another.
    MoveRows = Elementwise::move_rows on Geometry::threads(product([rows, length])); {
        from: View<f32>[reach(rows, length, from_first, from_stride)],
        from_first: u64,
        from_stride: u64,
        to: ViewMut<f32>[reach(rows, length, to_first, to_stride)],
        to_first: u64,
        to_stride: u64,
        rows: u32,
        length: u32,
        accumulate: bool,
    }

    /// `y ← f·x + s` per channel, rectified or not: a bias, a scale layer, its gradient towards `x`.
    ChannelAffine = Channels::channel_affine on Geometry::groups(all), all = product([samples, channels, plane]); {
        x: View<f32>[all],
        factors: Option<View<f32>>[channels.into()],
        summands: Option<View<f32>>[channels.into()],
        y: ViewMut<f32>[all],
        samples: u32,
        channels: u32,
        plane: u32,
        rectified: bool,
        accumulate: bool,
    }

    /// Sums of each part of each channel, of which the gradients of factors and summands are made: `partials` is
    /// `[channels, parts, 2]`.
    ///
    /// With `rectified` the output is `y` or, where that is missing, made of `x`, `inverses`, `gammas` and `betas`.
    ChannelSlopes = Channels::channel_slopes on Geometry::blocks(channels * parts.parts()),
        all = product([channels, parts.count()]); {
        d_y: View<f32>[all],
        x: Option<View<f32>>[all],
        y: Option<View<f32>>[all],
        means: Option<View<f32>>[channels.into()],
        inverses: Option<View<f32>>[channels.into()],
        gammas: Option<View<f32>>[channels.into()],
        betas: Option<View<f32>>[channels.into()],
        masked: Option<ViewMut<f32>>[all],
        partials: ViewMut<f64>[product([channels, parts.parts(), 2])],
        channels: u32,
        plane: u32,
        parts: Parts,
        rectified: bool,
    }

    /// The gradients of factors and summands, and what batch normalisation's gradient wants of them.
    ChannelSlopesFinish = Channels::channel_slopes_finish on Geometry::warps(channels); {
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
    BatchNormMoments = BatchNorm::batch_norm_moments on Geometry::blocks(channels * parts.parts()); {
        x: View<f32>[product([channels, parts.count()])],
        partials: ViewMut<f64>[product([channels, parts.parts(), 2])],
        channels: u32,
        plane: u32,
        parts: Parts,
    }

    /// The batch's statistics, and the running ones moved towards them; `keep` is what is kept of those.
    BatchNormStatistics = BatchNorm::batch_norm_statistics on Geometry::warps(channels); {
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
    BatchNormInverses = BatchNorm::batch_norm_inverses on Geometry::each(channels); {
        running_variances: View<f32>[channels.into()],
        inverses: ViewMut<f32>[channels.into()],
        channels: u32,
        epsilon: f32,
    }

    /// The normalised batch, an addition and a ReLU behind it where wanted.
    BatchNormForward = BatchNorm::batch_norm_forward on Geometry::groups(all),
        all = product([samples, channels, plane]); {
        x: View<f32>[all],
        means: View<f32>[channels.into()],
        inverses: View<f32>[channels.into()],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        addend: Option<View<f32>>[all],
        y: ViewMut<f32>[all],
        samples: u32,
        channels: u32,
        plane: u32,
        rectified: bool,
    }

    /// The gradients towards the input and the addend; `y` is wanted where an addition stands before a ReLU.
    BatchNormBackward = BatchNorm::batch_norm_backward on Geometry::groups(all),
        all = product([samples, channels, plane]); {
        d_y: View<f32>[all],
        x: View<f32>[all],
        y: Option<View<f32>>[all],
        means: View<f32>[channels.into()],
        inverses: View<f32>[channels.into()],
        gammas: View<f32>[channels.into()],
        betas: View<f32>[channels.into()],
        along: View<f32>[channels.into()],
        level: View<f32>[channels.into()],
        d_x: ViewMut<f32>[all],
        d_addend: Option<ViewMut<f32>>[all],
        samples: u32,
        channels: u32,
        plane: u32,
        rectified: bool,
        accumulate: bool,
        accumulate_addend: bool,
    }
}

/// The elements up to the end of the last of `rows`.
fn reach(rows: u32, length: u32, first: u64, stride: u64) -> u64 {
    if rows == 0 { 0 } else { first + u64::from(rows - 1) * stride + u64::from(length) }
}
