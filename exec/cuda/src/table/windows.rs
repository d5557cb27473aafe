//! Pooling and local response normalisation: `pooling.cu`, `global_pooling.cu` and `local_response.cu`.
//!
//! Pooling sees tensors as `[images, height, width, inner]`: with channels first an image is a channel of a sample and `inner` is
//! 1, with channels last an image is a sample and `inner` its channels.

use lockstep_models::{LocalResponseNorm, Pool2d, Shape};

use super::{Call, Entry, Launch, instances, kernels, product, symbol};
use crate::{Activation, Argument, Bf16, Geometry, Parameter, Scalar, Source, Unit, View, ViewMut};

/// Pooling windows on a plane; in the kernels `struct Window`. Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    input: (u32, u32),
    output: (u32, u32),
    kernel: (u32, u32),
    stride: (u32, u32),
    padding: (u32, u32),
    inner: u32,
}

impl Window {
    /// The windows of a layer on planes of `input`, as many as `output` has places; channels first.
    pub fn of(layer: &Pool2d, input: Shape, output: Shape) -> Window {
        Window {
            input: (input.height, input.width),
            output: (output.height, output.width),
            kernel: layer.kernel,
            stride: layer.stride,
            padding: layer.padding,
            inner: 1,
        }
    }

    /// The same windows on images whose places have `channels` elements each: channels last.
    pub fn inner(self, channels: u32) -> Window {
        Window { inner: channels, ..self }
    }

    fn inputs(self) -> u64 {
        product([self.input.0, self.input.1, self.inner])
    }

    fn outputs(self) -> u64 {
        product([self.output.0, self.output.1, self.inner])
    }

    /// Elements that a thread has.
    fn width(self) -> u64 {
        neighbours(self.inner)
    }
}

impl Parameter for Window {
    const TYPE: &'static str = "Window";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let pairs = [self.input, self.output, self.kernel, self.stride, self.padding];
        let numbers = pairs.iter().flat_map(|(down, along)| [*down, *along]).chain([self.inner]);
        Argument { name, value: numbers.flat_map(u32::to_le_bytes).collect(), tensor: None }
    }
}

/// A local response normalisation and the shape that it works on; in the kernels `struct Response`.
#[derive(Debug, Clone, PartialEq, Copy)]
pub struct Response {
    channels: u32,
    plane: u32,
    half: u32,
    alpha: f32,
    beta: f32,
    k: f32,
}

impl Response {
    /// That of a layer; channels first.
    pub fn of(layer: &LocalResponseNorm, input: Shape) -> Response {
        let LocalResponseNorm { size, alpha, beta, k } = *layer;
        Response { channels: input.channels, plane: input.height * input.width, half: size / 2, alpha, beta, k }
    }

    /// The same on tensors with channels last.
    pub fn channels_last(self) -> Response {
        Response { plane: 1, ..self }
    }
}

impl Parameter for Response {
    const TYPE: &'static str = "Response";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let sizes = [self.channels, self.plane, self.half].map(u32::to_le_bytes);
        let numbers = [self.alpha, self.beta, self.k].map(f32::to_le_bytes);
        Argument { name, value: [sizes, numbers].concat().concat(), tensor: None }
    }
}

kernels! {
    /// The largest element of each window plus its channel's bias, rectified or not, and its place in the plane.
    MaxPoolForward<A> = Pooling::max_pool_forward on Geometry::threads(outputs / window.width()),
        outputs = u64::from(images) * window.outputs(); {
        x: View<A>[u64::from(images) * window.inputs()],
        biases: Option<View<f32>>[channels.into()],
        y: ViewMut<A>[outputs],
        best: ViewMut<u32>[outputs],
        images: u32,
        channels: u32,
        window: Window,
        rectified: bool,
    }

    /// The gradient before the largest were chosen; `y` is wanted with a ReLU.
    MaxPoolBackward<A> = Pooling::max_pool_backward on Geometry::threads(inputs / window.width()),
        inputs = u64::from(images) * window.inputs(), outputs = u64::from(images) * window.outputs(); {
        d_y: View<A>[outputs],
        y: Option<View<A>>[outputs],
        best: View<u32>[outputs],
        d_x: ViewMut<A>[inputs],
        images: u32,
        window: Window,
        rectified: bool,
        accumulate: bool,
    }

    /// The mean of each window.
    MeanPoolForward<A> = Pooling::mean_pool_forward on Geometry::threads(outputs / window.width()),
        outputs = u64::from(images) * window.outputs(); {
        x: View<A>[u64::from(images) * window.inputs()],
        y: ViewMut<A>[outputs],
        images: u32,
        window: Window,
    }

    /// The gradient before the means were taken.
    MeanPoolBackward<A> = Pooling::mean_pool_backward on Geometry::threads(inputs / window.width()),
        inputs = u64::from(images) * window.inputs(); {
        d_y: View<A>[u64::from(images) * window.outputs()],
        d_x: ViewMut<A>[inputs],
        images: u32,
        window: Window,
        accumulate: bool,
    }

    /// The mean of each plane of `[images, plane, inner]`.
    GlobalPoolForward<A> = GlobalPooling::global_pool_forward on planes(images, inner); {
        x: View<A>[product([images, plane, inner])],
        y: ViewMut<A>[product([images, inner])],
        images: u32,
        plane: u32,
        inner: u32,
    }

    /// The gradient before the means of planes were taken.
    GlobalPoolBackward<A> = GlobalPooling::global_pool_backward on Geometry::groups(all),
        all = product([images, plane, inner]); {
        d_y: View<A>[product([images, inner])],
        d_x: ViewMut<A>[all],
        images: u32,
        plane: u32,
        inner: u32,
        accumulate: bool,
    }

    /// The normalised tensor.
    LocalResponseForward<A> = LocalResponse::local_response_forward on Geometry::threads(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        of: Response,
    }

    /// What the gradient's window adds up: scratch of the tensor's size.
    LocalResponseRatios<A> = LocalResponse::local_response_ratios on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[all],
        x: View<A>[all],
        y: View<A>[all],
        ratios: ViewMut<f32>[all],
        elements: u32,
        of: Response,
    }

    /// The gradient before the normalisation.
    LocalResponseBackward<A> = LocalResponse::local_response_backward on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[all],
        x: View<A>[all],
        ratios: View<f32>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        of: Response,
        accumulate: bool,
    }
}

/// A warp for each plane whose places lie side by side, a thread for neighbours of those that lie inside each other.
fn planes(images: u32, inner: u32) -> Geometry {
    if inner == 1 { Geometry::warps(images) } else { Geometry::threads(product([images, inner]) / neighbours(inner)) }
}

/// How many neighbours of `inner` a thread has, where tensors begin so that it can.
fn neighbours(inner: u32) -> u64 {
    if inner.is_multiple_of(4) { 4 } else { 1 }
}
