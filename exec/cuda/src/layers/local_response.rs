//! Lowers local response normalisation across channels; its gradient uses a tensor of ratios in scratch.

use lockstep_models::{Layer, LocalResponseNorm, Shape};

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::script::{Script, count};
use crate::kernel::{KernelSource, kernels, source};
use crate::{Activation, Argument, Geometry, ToArgument, View, ViewMut};

const SOURCE: KernelSource = source!("local_response.cu");

/// A local response normalisation and the shape that it processes; in the kernels `struct Response`.
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
    /// For a layer with channels first.
    pub fn of(layer: &LocalResponseNorm, input: Shape) -> Response {
        let LocalResponseNorm { size, alpha, beta, k } = *layer;
        Response { channels: input.features(), plane: input.places() as u32, half: size / 2, alpha, beta, k }
    }

    /// The same on tensors with channels last.
    pub fn channels_last(self) -> Response {
        Response { plane: 1, ..self }
    }
}

impl ToArgument for Response {
    const TYPE: &'static str = "Response";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let sizes = [self.channels, self.plane, self.half].map(u32::to_le_bytes);
        let numbers = [self.alpha, self.beta, self.k].map(f32::to_le_bytes);
        Argument { name, value: [sizes, numbers].concat().concat(), tensor: None }
    }
}

kernels! {
    /// The normalised tensor.
    LocalResponseForward<A> = SOURCE::local_response_forward on Geometry::threads(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        of: Response,
    }

    /// The terms of the gradient's window sum: scratch of the tensor's size.
    LocalResponseRatios<A> = SOURCE::local_response_ratios on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[all],
        x: View<A>[all],
        y: View<A>[all],
        ratios: ViewMut<f32>[all],
        elements: u32,
        of: Response,
    }

    /// The gradient of the input.
    LocalResponseBackward<A> = SOURCE::local_response_backward on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[all],
        x: View<A>[all],
        ratios: View<f32>[all],
        d_x: ViewMut<A>[all],
        elements: u32,
        of: Response,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::LocalResponseNorm(layer) = of.layer else { return None };
    let response = Response::of(layer, of.inputs[0]);
    Some(Box::new(LocalResponse { of: if of.form.channels_last { response.channels_last() } else { response } }))
}

/// The layer.
struct LocalResponse {
    of: Response,
}

impl<A: Activation> Head<A> for LocalResponse {
    fn forward(&self, of: &ForwardPass<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements) = (of.inputs[0], of.output, count(of.output.elements()));
        script.launch(&LocalResponseForward { x, y, elements, of: self.of });
    }

    fn backward(&self, of: &PassGradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, x, y, elements) = (of.d_output, of.inputs[0], of.output, count(of.d_output.elements()));
        let ratios = script.take(of.d_output.elements());
        script.launch(&LocalResponseRatios { d_y, x, y, ratios, elements, of: self.of });
        let ratios = ratios.view();
        script.launch(&LocalResponseBackward { d_y, x, ratios, d_x, elements, of: self.of, accumulate });
    }
}
