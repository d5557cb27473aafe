//! Maximum, average and global pooling.

use lockstep_models::{Pool2d, PoolKind, Shape};

use super::head::Head;
use super::image::Image;
use super::script::Script;
use super::{Forward, Gradients, Space, own, size};
use crate::table::{
    GlobalPoolBackward, GlobalPoolForward, MaxPoolBackward, MaxPoolForward, MeanPoolBackward, MeanPoolForward, Window,
};
use crate::{Activation, ViewMut};

/// A pooling layer.
pub(super) struct Pooling {
    input: Image,
    kind: Kind,
}

enum Kind {
    /// With the places of the largest, as the output lies.
    Max(Window, ViewMut<u32>),
    Average(Window),
    /// Over whole planes.
    Global,
}

impl Pooling {
    pub(super) fn new(
        layer: &Pool2d,
        (input, output): (Shape, Shape),
        channels_last: bool,
        samples: u32,
        space: &mut dyn Space,
    ) -> Pooling {
        let image = Image::new(input, channels_last);
        let window = Window::of(layer, input, output).inner(image.planes(1).1);
        let kind = match layer.kind {
            PoolKind::Max => Kind::Max(window, own(space, u64::from(samples) * size(output))),
            PoolKind::Average => Kind::Average(window),
        };
        Pooling { input: image, kind }
    }

    pub(super) fn global(input: Shape, channels_last: bool) -> Pooling {
        Pooling { input: Image::new(input, channels_last), kind: Kind::Global }
    }
}

impl<A: Activation> Head<A> for Pooling {
    fn forward(&self, of: &Forward<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (x, y, channels) = (of.inputs[0], of.output, self.input.channels());
        let (images, inner) = self.input.planes(samples);
        match self.kind {
            Kind::Max(window, best) => {
                let (biases, rectified) = (None, false);
                script.launch(&MaxPoolForward { x, biases, y, best, images, channels, window, rectified });
            }
            Kind::Average(window) => script.launch(&MeanPoolForward { x, y, images, window }),
            Kind::Global => script.launch(&GlobalPoolForward { x, y, images, plane: self.input.plane(), inner }),
        }
    }

    fn backward(&self, of: &Gradients<'_, A>, samples: u32, script: &mut Script<'_>) {
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
                let plane = self.input.plane();
                script.launch(&GlobalPoolBackward { d_y, d_x, images, plane, inner, accumulate });
            }
        }
    }
}
