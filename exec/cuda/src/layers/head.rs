//! A chain's first layer that computes, which holds what of the rest it does.

use lockstep_exec::device::{ChainLayer, Draw};
use lockstep_models::{Layer, Shape};

use super::image::Image;
use super::pass::{Form, Forward, Gradients, Space};
use super::script::Script;
use crate::table::BatchNormForward;
use crate::{Activation, View};

/// What a head is made of.
pub(super) struct Wanted<'a> {
    pub(super) layer: &'a Layer,
    pub(super) inputs: &'a [Shape],
    pub(super) output: Shape,
    /// The layers behind it.
    pub(super) rest: &'a [&'a ChainLayer<'a>],
    /// Those of the largest batch.
    pub(super) samples: u32,
    pub(super) form: Form,
    pub(super) space: &'a mut dyn Space,
}

impl Wanted<'_> {
    /// The first input, as it lies.
    pub(super) fn image(&self) -> Image {
        Image::new(self.inputs[0], self.form.channels_last)
    }

    /// Whether a ReLU is behind a layer behind which nothing else may be.
    pub(super) fn is_rectified(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// The layer with the ReLU and the pooling behind it.
pub(super) trait Head<A: Activation>: Send {
    fn forward(&self, of: &Forward<'_, A>, samples: u32, script: &mut Script<'_>);

    fn backward(&self, of: &Gradients<'_, A>, samples: u32, script: &mut Script<'_>);

    /// Learnable parameters, and running statistics.
    fn parameters(&self) -> (u64, u64) {
        (0, 0)
    }

    /// As `Kernel::draw`.
    fn draw(&mut self, _: Draw, _: View<u64>) {}

    /// Whether it draws random numbers in training.
    fn draws(&self) -> bool {
        false
    }

    /// A forward pass but for the normalisation that ends it; nothing was done where that is not what ends it.
    fn begin(&self, _: &Forward<'_, A>, _: u32, _: &mut Script<'_>) -> Option<BatchNormForward<A>> {
        None
    }

    /// Of a sum, whether it is rectified.
    fn rectified_sum(&self) -> Option<bool> {
        None
    }
}
