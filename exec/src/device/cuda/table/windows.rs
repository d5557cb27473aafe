//! Pooling and local response normalisation: `pooling.cu` and `local_response.cu`.

use lockstep_models::{LocalResponseNorm, Pool2d, Shape};

use super::{Call, Entry, Launch, instances, kernels, product, symbol};
use crate::device::cuda::{Activation, Argument, Bf16, Geometry, Parameter, Scalar, Source, Unit, View, ViewMut};

/// Pooling windows on a plane; in the kernels `struct Window`. Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    input: (u32, u32),
    output: (u32, u32),
    kernel: (u32, u32),
    stride: (u32, u32),
    padding: (u32, u32),
}

impl Window {
    /// The windows of a layer on planes of `input`, as many as `output` has places.
    pub fn of(layer: &Pool2d, input: Shape, output: Shape) -> Window {
        Window {
            input: (input.height, input.width),
            output: (output.height, output.width),
            kernel: layer.kernel,
            stride: layer.stride,
            padding: layer.padding,
        }
    }

    fn inputs(self) -> u64 {
        product([self.input.0, self.input.1])
    }

    fn outputs(self) -> u64 {
        product([self.output.0, self.output.1])
    }
}

impl Parameter for Window {
    const TYPE: &'static str = "Window";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let pairs = [self.input, self.output, self.kernel, self.stride, self.padding];
        let value = pairs.iter().flat_map(|(down, along)| [down.to_le_bytes(), along.to_le_bytes()].concat()).collect();
        Argument { name, value, tensor: None }
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
    /// That of a layer.
    pub fn of(layer: &LocalResponseNorm, input: Shape) -> Response {
        let LocalResponseNorm { size, alpha, beta, k } = *layer;
        Response { channels: input.channels, plane: input.height * input.width, half: size / 2, alpha, beta, k }
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
    MaxPoolForward<A> = Pooling::max_pool_forward on Geometry::threads(outputs),
        planes = product([samples, channels]), outputs = planes * window.outputs(); {
        x: View<A>[planes * window.inputs()],
        biases: Option<View<f32>>[channels.into()],
        y: ViewMut<A>[outputs],
        best: ViewMut<u32>[outputs],
        samples: u32,
        channels: u32,
        window: Window,
        rectified: bool,
    }

    /// The gradient before the largest were chosen; `y` is wanted with a ReLU.
    MaxPoolBackward<A> = Pooling::max_pool_backward on Geometry::threads(inputs),
        inputs = u64::from(planes) * window.inputs(), outputs = u64::from(planes) * window.outputs(); {
        d_y: View<A>[outputs],
        y: Option<View<A>>[outputs],
        best: View<u32>[outputs],
        d_x: ViewMut<A>[inputs],
        planes: u32,
        window: Window,
        rectified: bool,
        accumulate: bool,
    }

    /// The mean of each window.
    MeanPoolForward<A> = Pooling::mean_pool_forward on Geometry::threads(outputs),
        outputs = u64::from(planes) * window.outputs(); {
        x: View<A>[u64::from(planes) * window.inputs()],
        y: ViewMut<A>[outputs],
        planes: u32,
        window: Window,
    }

    /// The gradient before the means were taken.
    MeanPoolBackward<A> = Pooling::mean_pool_backward on Geometry::threads(inputs),
        inputs = u64::from(planes) * window.inputs(); {
        d_y: View<A>[u64::from(planes) * window.outputs()],
        d_x: ViewMut<A>[inputs],
        planes: u32,
        window: Window,
        accumulate: bool,
    }

    /// The mean of each plane.
    GlobalPoolForward<A> = Pooling::global_pool_forward on Geometry::warps(planes); {
        x: View<A>[product([planes, plane])],
        y: ViewMut<A>[planes.into()],
        planes: u32,
        plane: u32,
    }

    /// The gradient before the means of planes were taken.
    GlobalPoolBackward<A> = Pooling::global_pool_backward on Geometry::groups(product([planes, plane])); {
        d_y: View<A>[planes.into()],
        d_x: ViewMut<A>[product([planes, plane])],
        planes: u32,
        plane: u32,
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
