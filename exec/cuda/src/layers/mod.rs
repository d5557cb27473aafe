//! A fused chain of layers as lists of commands for a GPU: data, made without one.
//!
//! [`Kernel`] is the twin of the CPU's kernel: it takes the same chains, and the tensors of its passes hold the same values
//! within rounding. What is kept from a forward to a backward pass (places of maxima, a dropout's mask, a batch's statistics)
//! lies in memory of its own, which a [`Space`] gives once; what lives during a pass alone lies in scratch, which all kernels
//! of a stream share.
//!
//! ```
//! use lockstep_exec::device::cpu::{ChainLayer, Mode};
//! use lockstep_cuda::layers::{Form, Forward, Gradients, Kernel, Space};
//! use lockstep_cuda::{Command, View, ViewMut};
//! use lockstep_models::{Dense, Layer, Shape};
//!
//! struct Bump(u64);
//! impl Space for Bump {
//!     fn take(&mut self, bytes: u64) -> u64 {
//!         let address = self.0;
//!         self.0 += bytes.next_multiple_of(256);
//!         address
//!     }
//! }
//!
//! // Two samples of three features, a dense layer to four with a ReLU.
//! let dense = Layer::Dense(Dense { out_features: 4, bias: true });
//! let (three, four) = ([Shape::flat(3)], [Shape::flat(4)]);
//! let chain = [ChainLayer { layer: &dense, inputs: &three }, ChainLayer { layer: &Layer::Relu, inputs: &four }];
//! let kernel = Kernel::<f32>::new(&chain, 2, Form::default(), &mut Bump(0x10_0000));
//! let (x, w, y, d_y) = (View::new(0x1000, 6), View::new(0x2000, 16), ViewMut::new(0x3000, 8), View::new(0x4000, 8));
//! let mut commands = Vec::new();
//! let (mode, statistics) = (Mode::Train, ViewMut::new(0, 0));
//! kernel.forward(&Forward { mode, inputs: &[x], parameters: w, statistics, output: y }, 0x9000, &mut commands);
//! // cuBLASLt adds the bias and rectifies.
//! assert!(matches!(&commands[..], [Command::Multiply(product)] if product.rectified && product.a == 0x1000));
//! let d_parameters = Some((ViewMut::new(0x5000, 16), false));
//! let of = Gradients { inputs: &[x], output: y.view(), parameters: w, d_output: d_y, d_inputs: &[None], d_parameters };
//! kernel.backward(&of, 0x9000, &mut commands);
//! assert_eq!(commands.len(), 5); // the ReLU, dW, two kernels for the bias
//! ```

mod batch_norm;
mod convolution;
mod dense;
mod dropout;
mod elementwise;
mod gelu;
mod head;
mod image;
mod joining;
mod local_response;
mod loss;
mod pooling;
mod scale;
mod script;
mod slopes;
mod turning;
mod weights;

use lockstep_exec::device::{ChainLayer, Draw, Mode, cpu, output_of};
use lockstep_models::{Layer, Precision, Shape};

use super::{Activation, Command, Scalar, View, ViewMut};
use head::{Head, made};
use script::Script;
use turning::Turning;

pub use joining::Pending;
pub use loss::CrossEntropy;

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
        Scalar::of(self.precision) == Scalar::F32 && !(self.channels_last && turning::is_image(shape))
    }
}

/// Puts the command that makes activations of samples which the host gave behind those of `into`.
pub fn arrange<A: Activation>(
    given: View<f32>,
    activations: ViewMut<A>,
    shape: Shape,
    form: Form,
    into: &mut Vec<Command>,
) {
    let mut script = Script::new(into, 0);
    if form.channels_last && turning::is_image(shape) {
        let samples = script::count(given.elements() / shape.elements());
        script.turn(given, activations, (samples, shape.channels, shape.height * shape.width), false);
    } else {
        script.merge(given, activations, false);
    }
}

/// A fused chain of layers for batches of up to a fixed number of samples, whose activations are of type `A`.
pub struct Kernel<A> {
    head: Box<dyn Head<A>>,
    turning: Turning,
    /// Elements of a sample: of each input, and of the output.
    inputs: Vec<u64>,
    output: u64,
    samples: u32,
    scratch_bytes: u64,
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
    /// Those of the last forward pass; anything where [`lockstep_models::memory::Reads`] says that nobody reads them.
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
    fn d_input(&self) -> Option<(ViewMut<A>, bool)> {
        self.d_inputs.first().copied().flatten()
    }
}

impl<A: Activation> Kernel<A> {
    /// Whether kernels can number the elements of a batch's tensors, each of which must be below 2³²: else it must be smaller.
    pub fn fits(chain: &[ChainLayer<'_>], samples: u32) -> bool {
        let tensors = chain.iter().flat_map(|member| member.inputs.iter().copied().chain([output_of(member)]));
        tensors.map(size).all(|elements| elements.saturating_mul(samples.into()) < 1 << 32)
    }

    /// A kernel for `chain`, which must be one that [`cpu::Kernel::fuses`] and whose shapes fit, and batches of up to `samples`.
    ///
    /// # Panics
    /// When the chain is none, [`Kernel::fits`] says no, or the products' factors are of another type.
    pub fn new(chain: &[ChainLayer<'_>], samples: u32, form: Form, space: &mut dyn Space) -> Kernel<A> {
        let layers: Vec<&Layer> = chain.iter().map(|member| member.layer).collect();
        assert!(cpu::Kernel::fuses(&layers), "no kernel for the chain {layers:?}");
        assert!(Self::fits(chain, samples), "a batch of {samples} is too large for the chain {layers:?}");
        assert_eq!(Scalar::of(form.precision), A::SCALAR, "factors are activations");
        let computing: Vec<&ChainLayer<'_>> =
            chain.iter().filter(|member| !member.layer.rule().kind().is_view).collect();
        let head = made(&computing, samples, form, space);
        let mut kernel = Kernel {
            turning: Turning::of(chain, &computing, form, head.draws()),
            head,
            inputs: chain[0].inputs.iter().copied().map(size).collect(),
            output: size(output_of(&chain[chain.len() - 1])),
            samples,
            scratch_bytes: 0,
        };
        kernel.scratch_bytes = kernel.measured();
        kernel
    }

    /// Bytes of scratch that a pass may take, from an address on that is a multiple of 256.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// Tells a dropout layer which random numbers its next training passes get; other layers need none. `places` are those of
    /// the samples among all since training began; they must be there when the pass runs.
    pub fn draw(&mut self, draw: Draw, places: View<u64>) {
        self.head.draw(draw, places);
    }

    /// Puts the commands that make the chain's output from its inputs behind those of `into`.
    pub fn forward(&self, of: &Forward<'_, A>, scratch: u64, into: &mut Vec<Command>) {
        let mut script = Script::new(into, scratch);
        self.write_forward(of, &mut script);
        assert!(script.taken() <= self.scratch_bytes, "a forward pass takes {} bytes of scratch", script.taken());
    }

    /// Puts the commands that make the wanted gradients from that of the output behind those of `into`.
    pub fn backward(&self, of: &Gradients<'_, A>, scratch: u64, into: &mut Vec<Command>) {
        let mut script = Script::new(into, scratch);
        self.write_backward(of, &mut script);
        assert!(script.taken() <= self.scratch_bytes, "a backward pass takes {} bytes of scratch", script.taken());
    }

    /// Samples of a batch whose output has so many elements.
    fn batch(&self, elements: u64) -> u32 {
        let samples = elements / self.output;
        assert!(
            samples * self.output == elements && samples <= self.samples.into(),
            "{elements} elements are no batch"
        );
        samples as u32
    }

    fn write_forward(&self, of: &Forward<'_, A>, script: &mut Script<'_>) {
        let samples = self.batch(of.output.elements());
        self.turning.forward(of, samples, script, |of, script| self.head.forward(of, samples, script));
    }

    fn write_backward(&self, of: &Gradients<'_, A>, script: &mut Script<'_>) {
        let samples = self.batch(of.d_output.elements());
        self.turning.backward(of, samples, script, |of, script| self.head.backward(of, samples, script));
    }

    /// What the neediest pass takes, found by writing it down: training, all gradients, each added to what is there. Dropout,
    /// which takes nothing, has no places to draw by yet, and passes everything on.
    fn measured(&self) -> u64 {
        let mode = if self.head.draws() { Mode::Evaluate } else { Mode::Train };
        // Tensors at addresses of their own, an element before an aligned one, so that what must lie as they do takes most.
        let mut next = 256;
        let mut tensor = |elements: u64, bytes: u64| {
            let address = next - bytes;
            next += (elements * bytes).next_multiple_of(256);
            address
        };
        let mut activations = |elements: u64| ViewMut::<A>::new(tensor(elements, size_of::<A>() as u64), elements);
        let samples = u64::from(self.samples);
        let inputs: Vec<ViewMut<A>> = self.inputs.iter().map(|elements| activations(samples * elements)).collect();
        let output = activations(samples * self.output);
        let (parameters, statistics) = self.head.parameters();
        let [weights, statistics] = [parameters, statistics].map(|count| ViewMut::<f32>::new(tensor(count, 4), count));
        let views: Vec<View<A>> = inputs.iter().map(|input| input.view()).collect();
        let d_inputs: Vec<_> = inputs.iter().map(|input| Some((*input, true))).collect();
        let parameters = weights.view();
        let mut commands = Vec::new();
        let mut forward = Script::new(&mut commands, 0);
        self.write_forward(&Forward { mode, inputs: &views, parameters, statistics, output }, &mut forward);
        let taken = forward.taken();
        let mut backward = Script::new(&mut commands, 0);
        let (output, d_output, d_parameters) = (output.view(), output.view(), Some((weights, true)));
        let gradients = Gradients { inputs: &views, output, parameters, d_output, d_inputs: &d_inputs, d_parameters };
        self.write_backward(&gradients, &mut backward);
        taken.max(backward.taken())
    }
}

/// A tensor that is kept.
fn own<T>(space: &mut dyn Space, elements: u64) -> ViewMut<T> {
    ViewMut::new(space.take(elements * size_of::<T>() as u64), elements)
}

/// Elements of a sample.
fn size(shape: Shape) -> u64 {
    shape.elements()
}
