//! A fused chain of layers as lists of commands for a GPU: data, made without one.
//!
//! [`Kernel`] is the twin of the CPU's kernel: it takes the same chains, and the tensors of its passes hold the same values
//! within rounding. What is kept from a forward to a backward pass (places of maxima, a dropout's mask, a batch's statistics)
//! lies in memory of its own, which a [`Space`] gives once; what lives during a pass alone lies in scratch, which all kernels
//! of a stream share.
//!
//! ```
//! use lockstep_exec::device::cpu::{ChainLayer, Mode};
//! use lockstep_exec::device::cuda::layers::{Forward, Gradients, Kernel, Space};
//! use lockstep_exec::device::cuda::{Command, Precision, View, ViewMut};
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
//! let kernel = Kernel::new(&chain, 2, Precision::F32, &mut Bump(0x10_0000));
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
mod local_response;
mod loss;
mod pooling;
mod scale;
mod script;
mod slopes;

use lockstep_models::{Layer, Shape};

use super::{Command, Precision, View, ViewMut};
use crate::device::{ChainLayer, Draw, Mode, cpu, output_of};
use batch_norm::BatchNorm;
use convolution::Convolution;
use dense::Dense;
use dropout::Dropout;
use elementwise::{Concat, Curve, Sum};
use local_response::LocalResponse;
pub use loss::CrossEntropy;
use pooling::Pooling;
use scale::Scale;
use script::Script;

/// Where a layer's own tensors come from, which it keeps from forward to backward passes.
pub trait Space {
    /// The device address of `bytes` bytes, a multiple of 256.
    fn take(&mut self, bytes: u64) -> u64;
}

/// A fused chain of layers for batches of up to a fixed number of samples.
pub struct Kernel {
    head: Head,
    /// Elements of a sample: of each input, and of the output.
    inputs: Vec<u64>,
    output: u64,
    samples: u32,
    scratch_bytes: u64,
}

/// The chain's first layer, which holds what of the rest it does.
enum Head {
    Convolution(Box<Convolution>),
    Dense(Dense),
    BatchNorm(BatchNorm),
    Pooling(Pooling),
    LocalResponse(LocalResponse),
    Dropout(Box<Dropout>),
    Curve(Curve),
    Scale(Scale),
    Sum(Sum),
    Concat(Concat),
}

/// What a forward pass reads and writes; tensors are `[samples, elements of the shape]`.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// Training or inference.
    pub mode: Mode,
    /// The chain's inputs. That of an addition (of two, else the first), a ReLU, sigmoid, tanh, dropout or flatten may be the
    /// output's very tensor.
    pub inputs: &'a [View<f32>],
    /// The chain's learnable parameters in layer order, as the CPU's kernel takes them.
    pub parameters: View<f32>,
    /// Batch normalisation's running means, then running variances.
    pub statistics: ViewMut<f32>,
    /// The chain's output.
    pub output: ViewMut<f32>,
}

/// What a backward pass reads and writes; nothing is computed for what is not wanted.
#[derive(Debug, Clone, Copy)]
pub struct Gradients<'a> {
    /// Those of the last forward pass; anything where [`lockstep_models::memory::Reads`] says that nobody reads them.
    pub inputs: &'a [View<f32>],
    /// That of the last forward pass; as `inputs`.
    pub output: View<f32>,
    /// The chain's learnable parameters.
    pub parameters: View<f32>,
    /// The gradient towards the output.
    pub d_output: View<f32>,
    /// The gradient towards each input that is wanted, and whether it is added to what is there. Empty if none is.
    pub d_inputs: &'a [Option<(ViewMut<f32>, bool)>],
    /// That of the parameters. What is added is the gradient that would have been written, one rounded addition per element, so
    /// that k accumulated micro-batches equal the sum of k ranks to the bit.
    pub d_parameters: Option<(ViewMut<f32>, bool)>,
}

impl Gradients<'_> {
    /// The gradient towards the only input.
    fn d_input(&self) -> Option<(ViewMut<f32>, bool)> {
        self.d_inputs.first().copied().flatten()
    }
}

impl Kernel {
    /// Whether kernels can number the elements of a batch's tensors, each of which must be below 2³²: else it must be smaller.
    pub fn fits(chain: &[ChainLayer<'_>], samples: u32) -> bool {
        let tensors = chain.iter().flat_map(|member| member.inputs.iter().copied().chain([output_of(member)]));
        tensors.map(size).all(|elements| elements.saturating_mul(samples.into()) < 1 << 32)
    }

    /// A kernel for `chain`, which must be one that [`cpu::Kernel::fuses`] and whose shapes fit, and batches of up to `samples`.
    ///
    /// # Panics
    /// When the chain is none, or [`Kernel::fits`] says no.
    pub fn new(chain: &[ChainLayer<'_>], samples: u32, precision: Precision, space: &mut dyn Space) -> Kernel {
        let layers: Vec<&Layer> = chain.iter().map(|member| member.layer).collect();
        assert!(cpu::Kernel::fuses(&layers), "no kernel for the chain {layers:?}");
        assert!(Kernel::fits(chain, samples), "a batch of {samples} is too large for the chain {layers:?}");
        let computing = || chain.iter().filter(|member| *member.layer != Layer::Flatten);
        let relu = computing().skip(1).any(|member| *member.layer == Layer::Relu);
        let head = computing().next().map_or(Head::Sum(Sum { relu: false }), |first| {
            let pool = computing().nth(1 + usize::from(relu));
            head(first, relu, pool, samples, precision, space)
        });
        let inputs = chain[0].inputs.iter().copied().map(size).collect();
        let mut kernel =
            Kernel { head, inputs, output: size(output_of(&chain[chain.len() - 1])), samples, scratch_bytes: 0 };
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
        if let Head::Dropout(head) = &mut self.head {
            head.draw(draw, places);
        }
    }

    /// Puts the commands that make the chain's output from its inputs behind those of `into`.
    pub fn forward(&self, of: &Forward<'_>, scratch: u64, into: &mut Vec<Command>) {
        let mut script = Script::new(into, scratch);
        self.write_forward(of, &mut script);
        assert!(script.taken() <= self.scratch_bytes, "a forward pass takes {} bytes of scratch", script.taken());
    }

    /// Puts the commands that make the wanted gradients from that of the output behind those of `into`.
    pub fn backward(&self, of: &Gradients<'_>, scratch: u64, into: &mut Vec<Command>) {
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

    fn write_forward(&self, of: &Forward<'_>, script: &mut Script<'_>) {
        let samples = self.batch(of.output.elements());
        match &self.head {
            Head::Convolution(head) => head.forward(of, samples, script),
            Head::Dense(head) => head.forward(of, samples, script),
            Head::BatchNorm(head) => head.forward(of, samples, script),
            Head::Pooling(head) => head.forward(of, samples, script),
            Head::LocalResponse(head) => head.forward(of, script),
            Head::Dropout(head) => head.forward(of, samples, script),
            Head::Curve(head) => head.forward(of, script),
            Head::Scale(head) => head.forward(of, samples, script),
            Head::Sum(head) => head.forward(of, script),
            Head::Concat(head) => head.forward(of, samples, script),
        }
    }

    fn write_backward(&self, of: &Gradients<'_>, script: &mut Script<'_>) {
        let samples = self.batch(of.d_output.elements());
        match &self.head {
            Head::Convolution(head) => head.backward(of, samples, script),
            Head::Dense(head) => head.backward(of, samples, script),
            Head::BatchNorm(head) => head.backward(of, samples, script),
            Head::Pooling(head) => head.backward(of, samples, script),
            Head::LocalResponse(head) => head.backward(of, script),
            Head::Dropout(head) => head.backward(of, samples, script),
            Head::Curve(head) => head.backward(of, script),
            Head::Scale(head) => head.backward(of, samples, script),
            Head::Sum(head) => head.backward(of, script),
            Head::Concat(head) => head.backward(of, samples, script),
        }
    }

    /// Learnable parameters, and running statistics.
    fn parameters(&self) -> (u64, u64) {
        match &self.head {
            Head::Convolution(head) => (head.parameters(), 0),
            Head::Dense(head) => (head.parameters(), 0),
            Head::BatchNorm(head) => (head.parameters(), head.parameters()),
            Head::Scale(head) => (head.parameters(), 0),
            _ => (0, 0),
        }
    }

    /// What the neediest pass takes, found by writing it down: training, all gradients, each added to what is there. Dropout,
    /// which takes nothing, has no places to draw by yet, and passes everything on.
    fn measured(&self) -> u64 {
        let mode = if let Head::Dropout(_) = self.head { Mode::Evaluate } else { Mode::Train };
        // Tensors at addresses of their own, an element before an aligned one, so that what must lie as they do takes most.
        let mut next = 252;
        let mut tensor = |elements: u64| {
            let view = ViewMut::new(next, elements);
            next += 4 * elements.next_multiple_of(64);
            view
        };
        let (parameters, statistics) = self.parameters();
        let samples = u64::from(self.samples);
        let inputs: Vec<ViewMut<f32>> = self.inputs.iter().map(|elements| tensor(samples * elements)).collect();
        let views: Vec<View<f32>> = inputs.iter().map(|input| input.view()).collect();
        let d_inputs: Vec<_> = inputs.iter().map(|input| Some((*input, true))).collect();
        let (output, weights) = (tensor(samples * self.output), tensor(parameters));
        let (parameters, statistics) = (weights.view(), tensor(statistics));
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

/// The chain's first layer with the ReLU and the pooling behind it.
fn head(
    first: &ChainLayer<'_>,
    relu: bool,
    pool: Option<&ChainLayer<'_>>,
    samples: u32,
    precision: Precision,
    space: &mut dyn Space,
) -> Head {
    let (inputs, output) = (first.inputs, output_of(first));
    match (first.layer, inputs) {
        (Layer::Conv2d(layer), [input, ..]) => {
            let mut head = Convolution::new(layer, (*input, output), relu, samples, precision);
            if let Some(ChainLayer { layer: Layer::Pool2d(layer), .. }) = pool {
                head.pool(layer, pool.map_or(output, output_of), space);
            }
            Head::Convolution(Box::new(head))
        }
        (Layer::Dense(layer), [input, ..]) => {
            Head::Dense(Dense::new(layer, script::count(size(*input)), relu, precision))
        }
        (Layer::BatchNorm(layer), [input, ..]) => Head::BatchNorm(BatchNorm::new(layer, *input, relu, space)),
        (Layer::LocalResponseNorm(layer), [input, ..]) => Head::LocalResponse(LocalResponse::new(layer, *input)),
        (Layer::Dropout(layer), [input, ..]) => {
            Head::Dropout(Box::new(Dropout::new(layer.rate, script::count(size(*input)), samples, space)))
        }
        (Layer::Pool2d(layer), [input, ..]) => Head::Pooling(Pooling::new(layer, *input, output, samples, space)),
        (Layer::GlobalPool, [input, ..]) => Head::Pooling(Pooling::global(*input)),
        (Layer::Scale(layer), [input, ..]) => Head::Scale(Scale::new(layer, *input)),
        (Layer::Sigmoid, _) => Head::Curve(Curve { hyperbolic: false }),
        (Layer::Tanh, _) => Head::Curve(Curve { hyperbolic: true }),
        (Layer::Concat, _) => Head::Concat(Concat { sizes: inputs.iter().copied().map(size).collect() }),
        (layer, _) => Head::Sum(Sum { relu: relu || *layer == Layer::Relu }),
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

/// Elements of a channel of a sample.
fn plane(shape: Shape) -> u32 {
    shape.height * shape.width
}
