//! Maximum, average and global pooling.

use lockstep_models::{Pool2d, PoolKind, Shape};

use super::script::Script;
use super::{Forward, Gradients, Space, own, plane, size};
use crate::device::cuda::ViewMut;
use crate::device::cuda::table::{
    GlobalPoolBackward, GlobalPoolForward, MaxPoolBackward, MaxPoolForward, MeanPoolBackward, MeanPoolForward, Window,
};

/// A pooling layer.
pub(super) struct Pooling {
    channels: u32,
    kind: Kind,
}

enum Kind {
    /// With the places of the largest, `[samples, output]`.
    Max(Window, ViewMut<u32>),
    Average(Window),
    /// Over planes of so many elements.
    Global(u32),
}

impl Pooling {
    pub(super) fn new(layer: &Pool2d, input: Shape, output: Shape, samples: u32, space: &mut dyn Space) -> Pooling {
        let window = Window::of(layer, input, output);
        let kind = match layer.kind {
            PoolKind::Max => Kind::Max(window, own(space, u64::from(samples) * size(output))),
            PoolKind::Average => Kind::Average(window),
        };
        Pooling { channels: input.channels, kind }
    }

    pub(super) fn global(input: Shape) -> Pooling {
        Pooling { channels: input.channels, kind: Kind::Global(plane(input)) }
    }

    pub(super) fn forward(&self, of: &Forward<'_>, samples: u32, script: &mut Script<'_>) {
        let (x, y, channels, images) = (of.inputs[0], of.output, self.channels, samples * self.channels);
        match self.kind {
            Kind::Max(window, best) => {
                script.launch(&MaxPoolForward { x, biases: None, y, best, images, channels, window, rectified: false });
            }
            Kind::Average(window) => script.launch(&MeanPoolForward { x, y, images, window }),
            Kind::Global(plane) => script.launch(&GlobalPoolForward { x, y, images, plane, inner: 1 }),
        }
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, samples: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, images) = (of.d_output, samples * self.channels);
        match self.kind {
            Kind::Max(window, best) => {
                let best = best.view();
                let (y, rectified) = (None, false);
                script.launch(&MaxPoolBackward { d_y, y, best, d_x, images, window, rectified, accumulate });
            }
            Kind::Average(window) => script.launch(&MeanPoolBackward { d_y, d_x, images, window, accumulate }),
            Kind::Global(plane) => script.launch(&GlobalPoolBackward { d_y, d_x, images, plane, inner: 1, accumulate }),
        }
    }
}
