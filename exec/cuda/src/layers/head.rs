//! Defines the head of a chain: its first computing layer, which also applies the rest of the chain.

use lockstep_exec::device::{ChainLayer, Draw};
use lockstep_models::{Layer, Shape};

use super::image::Image;
use super::pass::{Allocator, ForwardPass, PassGradients, TensorForm};
use super::script::Script;
use crate::table::BatchNormForward;
use crate::{Activation, View};

/// What a head is made from.
pub(super) struct Wanted<'a> {
    pub(super) layer: &'a Layer,
    pub(super) inputs: &'a [Shape],
    pub(super) output: Shape,
    /// The layers after it.
    pub(super) rest: &'a [&'a ChainLayer<'a>],
    /// Samples of the largest batch.
    pub(super) samples: u32,
    pub(super) form: TensorForm,
    pub(super) space: &'a mut dyn Allocator,
}

impl Wanted<'_> {
    /// The first input, with its layout.
    pub(super) fn image(&self) -> Image {
        Image::new(self.inputs[0], self.form.channels_last)
    }

    /// Whether the layer is followed by a ReLU, the only layer that may follow it.
    pub(super) fn is_rectified(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// The layer with the ReLU and the pooling that follow it.
pub(super) trait Head<A: Activation>: Send {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>);

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>);

    /// Number of learnable parameters, and of running statistics.
    fn parameters(&self) -> (u64, u64) {
        (0, 0)
    }

    /// As `Kernel::draw`.
    fn draw(&mut self, _: Draw, _: View<u64>) {}

    /// As `Kernel::take_integers`.
    fn take_integers(&mut self, _: View<u8>) {}

    /// Whether it draws random numbers in training.
    fn draws(&self) -> bool {
        false
    }

    /// A forward pass without the normalisation that ends it; `None`, with nothing done, if it does not end in one.
    fn begin(&self, _: &ForwardPass<'_, A>, _: u32, _: &mut Script<'_>) -> Option<BatchNormForward<A>> {
        None
    }

    /// For a sum, whether it is rectified.
    fn rectified_sum(&self) -> Option<bool> {
        None
    }
}
