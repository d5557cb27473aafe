//! Lowers layers that mix rows and columns of each channel with fixed weights: reflected borders, blurring, resizing.

use lockstep_models::{Layer, Shape};

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::product::{SOURCE, Sides};
use super::script::Script;
use crate::kernel::kernels;
use crate::{Activation, Argument, Geometry, ToArgument, View, ViewMut};

/// A blurring filter: its taps, steps and zeros above and left; in the kernels `struct Blur`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blur {
    taps: u32,
    stride: (u32, u32),
    padding: (u32, u32),
}

impl ToArgument for Blur {
    const TYPE: &'static str = "Blur";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let numbers = [self.taps, self.stride.0, self.stride.1, self.padding.0, self.padding.1];
        Argument { name, value: numbers.into_iter().flat_map(u32::to_le_bytes).collect(), tensor: None }
    }
}

kernels! {
    /// The image with its reflection around it.
    ReflectedForward<A> = SOURCE::reflected_forward on Geometry::threads(all), all = u64::from(elements); {
        x: View<A>[input.batch_of(elements, output)],
        y: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        above: u32,
        left: u32,
    }

    /// The gradient of the image, summed over its reflections.
    ReflectedBackward<A> = SOURCE::reflected_backward on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[output.batch_of(elements, input)],
        d_x: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        above: u32,
        left: u32,
        accumulate: bool,
    }

    /// The image in another size.
    ResizeForward<A> = SOURCE::resize_forward on Geometry::threads(all), all = u64::from(elements); {
        x: View<A>[input.batch_of(elements, output)],
        y: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
    }

    /// The gradient of the image, summed over its repetitions.
    ResizeBackward<A> = SOURCE::resize_backward on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[output.batch_of(elements, input)],
        d_x: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        accumulate: bool,
    }

    /// The blurred image.
    BlurForward<A> = SOURCE::blur_forward on Geometry::threads(all), all = u64::from(elements); {
        x: View<A>[input.batch_of(elements, output)],
        y: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        blur: Blur,
    }

    /// The gradient of the image before blurring.
    BlurBackward<A> = SOURCE::blur_backward on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[output.batch_of(elements, input)],
        d_x: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        blur: Blur,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let sides = |shape: Shape| Sides::new(shape, of.form.channels_last);
    let (input, output) = (sides(of.inputs[0]), sides(of.output));
    let how = match of.layer {
        Layer::Border(border) if border.reflect => How::Reflected { above: border.before.0, left: border.before.1 },
        Layer::Resize(_) => How::Resized,
        Layer::BlurPool(blur) => How::Blurred(Blur { taps: blur.kernel, stride: blur.stride, padding: blur.padding }),
        _ => return None,
    };
    Some(Box::new(Resampled { input, output, how }))
}

/// What is done to an image.
#[derive(Clone, Copy)]
enum How {
    Reflected { above: u32, left: u32 },
    Resized,
    Blurred(Blur),
}

/// The layer.
struct Resampled {
    input: Sides,
    output: Sides,
    how: How,
}

impl<A: Activation> Head<A> for Resampled {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Resampled { input, output, how } = *self;
        let (x, y, elements) = (of.inputs[0], of.output, output.elements(samples));
        match how {
            How::Reflected { above, left } => {
                script.launch(&ReflectedForward { x, y, elements, input, output, above, left });
            }
            How::Resized => script.launch(&ResizeForward { x, y, elements, input, output }),
            How::Blurred(blur) => script.launch(&BlurForward { x, y, elements, input, output, blur }),
        }
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let Resampled { input, output, how } = *self;
        let (d_y, elements) = (of.d_output, input.elements(samples));
        match how {
            How::Reflected { above, left } => {
                script.launch(&ReflectedBackward { d_y, d_x, elements, input, output, above, left, accumulate });
            }
            How::Resized => script.launch(&ResizeBackward { d_y, d_x, elements, input, output, accumulate }),
            How::Blurred(blur) => {
                script.launch(&BlurBackward { d_y, d_x, elements, input, output, blur, accumulate });
            }
        }
    }
}
