//! Defines the arguments of layers' passes, and where layers allocate what they keep between passes.

use lockstep_exec::device::Mode;
use lockstep_models::{Precision, Shape};

use crate::{Activation, Scalar, View, ViewMut};

/// Allocates the tensors that a layer keeps from forward to backward passes.
pub trait Allocator {
    /// Allocates `bytes` bytes; returns the device address, a multiple of 256.
    fn take(&mut self, bytes: u64) -> u64;
}

/// The memory layout of activations, and the precision of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TensorForm {
    /// Precision of the products' factors.
    pub precision: Precision,
    /// Whether a pixel's channels are adjacent: images are `[samples, height, width, channels]`, for activations and
    /// their gradients alone. Rows of features, and parameters, always have the usual layout.
    pub channels_last: bool,
}

impl TensorForm {
    /// Whether samples of `shape` have the host's layout: fp32, channels first.
    pub fn is_plain(self, shape: Shape) -> bool {
        Scalar::of(self.precision) == Scalar::F32 && !(self.channels_last && is_image(shape))
    }
}

/// The inputs and outputs of a forward pass; tensors are `[samples, elements of the shape]`.
#[derive(Debug, Clone, Copy)]
pub struct ForwardPass<'a, A> {
    /// Training or inference.
    pub mode: Mode,
    /// The chain's inputs. An input of an addition (of two, else the first), a ReLU, sigmoid, tanh, dropout or flatten
    /// may be the output tensor itself.
    pub inputs: &'a [View<A>],
    /// The chain's learnable parameters in layer order, as the CPU's kernel takes them.
    pub parameters: View<f32>,
    /// Batch normalisation's running means, then running variances.
    pub statistics: ViewMut<f32>,
    /// The chain's output.
    pub output: ViewMut<A>,
}

/// The inputs and outputs of a backward pass; gradients that are not requested are not computed.
#[derive(Debug, Clone, Copy)]
pub struct PassGradients<'a, A> {
    /// Those of the last forward pass; arbitrary where [`lockstep_models::memory::Reads`] says that no kernel reads
    /// them.
    pub inputs: &'a [View<A>],
    /// That of the last forward pass; as `inputs`.
    pub output: View<A>,
    /// The chain's learnable parameters.
    pub parameters: View<f32>,
    /// The gradient of the output.
    pub d_output: View<A>,
    /// The gradient of each input for which it is requested, and whether it is added to existing values. Empty if none
    /// is.
    pub d_inputs: &'a [Option<(ViewMut<A>, bool)>],
    /// The gradient of the parameters. Adding adds the gradient that would have been written, with one rounded addition
    /// per element, so that k accumulated micro-batches equal the sum of k ranks to the bit.
    pub d_parameters: Option<(ViewMut<f32>, bool)>,
}

impl<A: Activation> PassGradients<'_, A> {
    /// The gradient of the only input.
    pub(super) fn d_input(&self) -> Option<(ViewMut<A>, bool)> {
        self.d_inputs.first().copied().flatten()
    }
}

/// Allocates a tensor that is kept.
pub(super) fn own<T>(space: &mut dyn Allocator, elements: u64) -> ViewMut<T> {
    ViewMut::new(space.take(elements * size_of::<T>() as u64), elements)
}

/// Whether the order of its elements depends on the position of channels.
pub(super) fn is_image(shape: Shape) -> bool {
    shape.features() > 1 && shape.places() > 1
}
