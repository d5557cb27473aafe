//! Layers element by element and channel by channel: `elementwise.cu`, `channels.cu` and `batch_norm.cu`. What they sum over
//! channels stands in `sums`.
//!
//! Tensors are `[samples, channels, plane]` and have at most 2³² − 1 elements. With channels last they are
//! `[samples · plane, channels, 1]`.

use super::{Call, Entry, Launch, instances, kernels, product, symbol};
use crate::{Activation, Bf16, Geometry, Parameter, Scalar, Source, Unit, View, ViewMut};

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

    /// The gradient before a ReLU from its output; those of both inputs of an addition with a ReLU, to two tensors.
    ReluBackward<A> = Elementwise::relu_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        y: View<A>[all],
        d_x: ViewMut<A>[all],
        d_other: Option<ViewMut<A>>[all],
        elements: u32,
        accumulate: bool,
        accumulate_other: bool,
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

    /// GELU by its tanh approximation.
    GeluForward<A> = Elementwise::gelu_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
    }

    /// The gradient before a GELU from its input.
    GeluBackward<A> = Elementwise::gelu_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        x: View<A>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
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
