//! Lowers maximum, average and global pooling: `pooling.cu`, `global_pooling.cu`.
//!
//! Kernels see tensors as `[images, height, width, inner]`: with channels first an image is a channel of a sample and `inner` is
//! 1, with channels last an image is a sample and `inner` its channels.

use lockstep_models::{Layer, Pool2d, PoolKind, Shape};

use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients, own};
use super::script::Script;
use crate::kernel::{KernelSource, kernels, product, source};
use crate::{Activation, Argument, Geometry, ToArgument, View, ViewMut};

const POOLING: KernelSource = source!("pooling.cu");
const GLOBAL_POOLING: KernelSource = source!("global_pooling.cu");

/// Pooling windows on a plane; in the kernels `struct Window`. Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolingWindow {
    input: (u32, u32),
    output: (u32, u32),
    kernel: (u32, u32),
    stride: (u32, u32),
    padding: (u32, u32),
    inner: u32,
    /// 1 where a mean counts the padding's places, else 0.
    counted: u32,
}

impl PoolingWindow {
    /// The windows of a layer on planes of `input`, one for each place of `output`; channels first.
    pub fn of(layer: &Pool2d, input: Shape, output: Shape) -> PoolingWindow {
        PoolingWindow {
            input: input.image().sides(),
            output: output.image().sides(),
            kernel: layer.kernel,
            stride: layer.stride,
            padding: layer.padding,
            inner: 1,
            counted: layer.count_padding.into(),
        }
    }

    /// The same windows on images whose places have `channels` elements each: channels last.
    pub fn inner(self, channels: u32) -> PoolingWindow {
        PoolingWindow { inner: channels, ..self }
    }

    fn inputs(self) -> u64 {
        product([self.input.0, self.input.1, self.inner])
    }

    fn outputs(self) -> u64 {
        product([self.output.0, self.output.1, self.inner])
    }

    /// Elements per thread.
    fn width(self) -> u64 {
        neighbours(self.inner)
    }
}

impl ToArgument for PoolingWindow {
    const TYPE: &'static str = "Window";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let pairs = [self.input, self.output, self.kernel, self.stride, self.padding];
        let numbers = pairs.iter().flat_map(|(down, along)| [*down, *along]).chain([self.inner, self.counted]);
        Argument { name, value: numbers.flat_map(u32::to_le_bytes).collect(), tensor: None }
    }
}

kernels! {
    /// The maximum of each window plus its channel's bias, rectified or not, and its place in the plane.
    MaxPoolForward<A> = POOLING::max_pool_forward on Geometry::threads(outputs / window.width()),
        outputs = u64::from(images) * window.outputs(); {
        x: View<A>[u64::from(images) * window.inputs()],
        biases: Option<View<f32>>[channels.into()],
        y: ViewMut<A>[outputs],
        best: ViewMut<u32>[outputs],
        images: u32,
        channels: u32,
        window: PoolingWindow,
        rectified: bool,
    }

    /// The gradient of the input of a maximum; `y` is needed with a ReLU.
    MaxPoolBackward<A> = POOLING::max_pool_backward on Geometry::threads(inputs / window.width()),
        inputs = u64::from(images) * window.inputs(), outputs = u64::from(images) * window.outputs(); {
        d_y: View<A>[outputs],
        y: Option<View<A>>[outputs],
        best: View<u32>[outputs],
        d_x: ViewMut<A>[inputs],
        images: u32,
        window: PoolingWindow,
        rectified: bool,
        accumulate: bool,
    }

    /// The mean of each window.
    MeanPoolForward<A> = POOLING::mean_pool_forward on Geometry::threads(outputs / window.width()),
        outputs = u64::from(images) * window.outputs(); {
        x: View<A>[u64::from(images) * window.inputs()],
        y: ViewMut<A>[outputs],
        images: u32,
        window: PoolingWindow,
    }

    /// The gradient of the input of means.
    MeanPoolBackward<A> = POOLING::mean_pool_backward on Geometry::threads(inputs / window.width()),
        inputs = u64::from(images) * window.inputs(); {
        d_y: View<A>[u64::from(images) * window.outputs()],
        d_x: ViewMut<A>[inputs],
        images: u32,
        window: PoolingWindow,
        accumulate: bool,
    }

    /// The mean of each plane of `[images, plane, inner]`.
    GlobalPoolForward<A> = GLOBAL_POOLING::global_pool_forward on planes(images, inner); {
        x: View<A>[product([images, plane, inner])],
        y: ViewMut<A>[product([images, inner])],
        images: u32,
        plane: u32,
        inner: u32,
    }

    /// The gradient of the input of global means.
    GlobalPoolBackward<A> = GLOBAL_POOLING::global_pool_backward on Geometry::groups(all),
        all = product([images, plane, inner]); {
        d_y: View<A>[product([images, inner])],
        d_x: ViewMut<A>[all],
        images: u32,
        plane: u32,
        inner: u32,
        accumulate: bool,
    }
}

/// A warp for each contiguous plane, or a thread for neighbours of interleaved ones.
fn planes(images: u32, inner: u32) -> Geometry {
    if inner == 1 { Geometry::warps(images) } else { Geometry::threads(product([images, inner]) / neighbours(inner)) }
}

/// Neighbours of `inner` per thread, as alignment allows.
fn neighbours(inner: u32) -> u64 {
    if inner.is_multiple_of(4) { 4 } else { 1 }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let kind = match of.layer {
        Layer::GlobalPool => Kind::Global,
        Layer::Pool2d(layer) => {
            let window = PoolingWindow::of(layer, of.inputs[0], of.output).inner(of.image().planes(1).1);
            match layer.kind {
                PoolKind::Max => Kind::Max(window, own(of.space, u64::from(of.samples) * of.output.elements())),
                PoolKind::Average => Kind::Average(window),
            }
        }
        _ => return None,
    };
    Some(Box::new(Pooling { input: of.image(), kind }))
}

/// A pooling layer.
struct Pooling {
    input: Image,
    kind: Kind,
}

enum Kind {
    /// With the places of the maxima, in the output's layout.
    Max(PoolingWindow, ViewMut<u32>),
    Average(PoolingWindow),
    /// Over whole planes.
    Global,
}

impl<A: Activation> Head<A> for Pooling {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (x, y, channels) = (of.inputs[0], of.output, self.input.channels);
        let (images, inner) = self.input.planes(samples);
        match self.kind {
            Kind::Max(window, best) => {
                let (biases, rectified) = (None, false);
                script.launch(&MaxPoolForward { x, biases, y, best, images, channels, window, rectified });
            }
            Kind::Average(window) => script.launch(&MeanPoolForward { x, y, images, window }),
            Kind::Global => script.launch(&GlobalPoolForward { x, y, images, plane: self.input.plane, inner }),
        }
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, (images, inner)) = (of.d_output, self.input.planes(samples));
        match self.kind {
            Kind::Max(window, best) => {
                let best = best.view();
                let (y, rectified) = (None, false);
                script.launch(&MaxPoolBackward { d_y, y, best, d_x, images, window, rectified, accumulate });
            }
            Kind::Average(window) => script.launch(&MeanPoolBackward { d_y, d_x, images, window, accumulate }),
            Kind::Global => {
                let plane = self.input.plane;
                script.launch(&GlobalPoolBackward { d_y, d_x, images, plane, inner, accumulate });
            }
        }
    }
}
