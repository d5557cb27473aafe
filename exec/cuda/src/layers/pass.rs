//! What passes of layers are given, and where layers keep what they need from one to the next.

use lockstep_exec::device::Mode;
use lockstep_models::{Precision, Shape};

use crate::{Activation, Scalar, View, ViewMut};

/// Where a layer's own tensors come from, which it keeps from forward to backward passes.
pub trait Space {
    /// The device address of `bytes` bytes, a multiple of 256.
    fn take(&mut self, bytes: u64) -> u64;
}

/// How a device keeps activations, and what it multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Form {
    /// Of products' factors.
    pub precision: Precision,
    /// Whether a pixel's channels lie side by side: images are `[samples, height, width, channels]`, in activations and their
    /// gradients alone. Rows of features, and parameters, lie as they do everywhere.
    pub channels_last: bool,
}

impl Form {
    /// Whether samples of `shape` lie as the host gives them: fp32, channels first.
    pub fn is_plain(self, shape: Shape) -> bool {
        Scalar::of(self.precision) == Scalar::F32 && !(self.channels_last && is_image(shape))
    }
}

/// What a forward pass reads and writes; tensors are `[samples, elements of the shape]`.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a, A> {
    /// Training or inference.
    pub mode: Mode,
    /// The chain's inputs. That of an addition (of two, else the first), a ReLU, sigmoid, tanh, dropout or flatten may be the
    /// output's very tensor.
    pub inputs: &'a [View<A>],
    /// The chain's learnable parameters in layer order, as the CPU's kernel takes them.
    pub parameters: View<f32>,
    /// Batch normalisation's running means, then running variances.
    pub statistics: ViewMut<f32>,
    /// The chain's output.
    pub output: ViewMut<A>,
}

/// What a backward pass reads and writes; nothing is computed for what is not wanted.
#[derive(Debug, Clone, Copy)]
pub struct Gradients<'a, A> {
    /// Those of the last forward pass; anything where [`lockstep_models::memory::Reads`] says that no kernel reads them.
    pub inputs: &'a [View<A>],
    /// That of the last forward pass; as `inputs`.
    pub output: View<A>,
    /// The chain's learnable parameters.
    pub parameters: View<f32>,
    /// The gradient towards the output.
    pub d_output: View<A>,
    /// The gradient towards each input that is wanted, and whether it is added to what is there. Empty if none is.
    pub d_inputs: &'a [Option<(ViewMut<A>, bool)>],
    /// That of the parameters. What is added is the gradient that would have been written, one rounded addition per element, so
    /// that k accumulated micro-batches equal the sum of k ranks to the bit.
    pub d_parameters: Option<(ViewMut<f32>, bool)>,
}

impl<A: Activation> Gradients<'_, A> {
    /// The gradient towards the only input.
    pub(super) fn d_input(&self) -> Option<(ViewMut<A>, bool)> {
        self.d_inputs.first().copied().flatten()
    }
}

/// A tensor that is kept.
pub(super) fn own<T>(space: &mut dyn Space, elements: u64) -> ViewMut<T> {
    ViewMut::new(space.take(elements * size_of::<T>() as u64), elements)
}

/// Whether the order of its elements depends on where channels lie.
pub(super) fn is_image(shape: Shape) -> bool {
    shape.channels > 1 && shape.height * shape.width > 1
}
