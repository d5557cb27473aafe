//! Layers element by element and channel by channel: `elementwise.cu`, `moves.cu`, `channels.cu`, `batch_norm.cu` and what the
//! sums of the last two come to, of `statistics.cu`.
//!
//! Tensors are `[samples, channels, plane]` and have at most 2³² − 1 elements.

use super::{Call, Entry, Launch, instances, kernels, product, symbol};
use crate::device::cuda::{Activation, Bf16, Geometry, Parameter, Parts, Scalar, Source, Unit, View, ViewMut};

kernels! {
    /// `y ← a + b`, rectified or not; `y` may be an input.
    Add<A> = Elementwise::add on Geometry::groups(all), all = u64::from(elements); {
        a: View<A>[all],
        b: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        rectified: bool,
    }

    /// `y ← max(x, 0)`; `y` may be `x`.
    ReluForward<A> = Elementwise::relu_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
    }

    /// The gradient before a ReLU from its output; also that of each input of an addition with a ReLU.
    ReluBackward<A> = Elementwise::relu_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        y: View<A>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        accumulate: bool,
    }

    /// Sigmoid, or tanh.
    CurveForward<A> = Elementwise::curve_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        hyperbolic: bool,
    }

    /// The gradient before a sigmoid or tanh from its output.
    CurveBackward<A> = Elementwise::curve_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        y: View<A>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        hyperbolic: bool,
        accumulate: bool,
    }

    /// Rows of `length` elements, `stride` apart, from one tensor to another, which may be of another scalar.
    MoveRows<F, T> = Moves::move_rows on Geometry::threads(product([rows, length])); {
        from: View<F>[reach(rows, length, from_first, from_stride)],
        from_first: u64,
        from_stride: u64,
        to: ViewMut<T>[reach(rows, length, to_first, to_stride)],
        to_first: u64,
        to_stride: u64,
        rows: u32,
        length: u32,
        accumulate: bool,
    }

    /// `y ← f·x + s` per channel, rectified or not: a bias, a scale layer, its gradient towards `x`.
    ChannelAffine<A> = Channels::channel_affine on Geometry::groups(all), all = product([samples, channels, plane]); {
        x: View<A>[all],
        factors: Option<View<f32>>[channels.into()],
        summands: Option<View<f32>>[channels.into()],
        y: ViewMut<A>[all],
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

    /// The normalised batch, an addition and a ReLU behind it where wanted.
    BatchNormForward<A> = BatchNorm::batch_norm_forward on Geometry::groups(all),
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

    /// The gradients towards the input and the addend; `y` is wanted where an addition stands before a ReLU.
    BatchNormBackward<A> = BatchNorm::batch_norm_backward on Geometry::groups(all),
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
}

/// The elements up to the end of the last of `rows`.
fn reach(rows: u32, length: u32, first: u64, stride: u64) -> u64 {
    if rows == 0 { 0 } else { first + u64::from(rows - 1) * stride + u64::from(length) }
}
