//! Runs forward and backward passes of every layer on the CPU, in f32 and NCHW.
//!
//! The executor holds one [`Kernel`] per fused chain of layers and rank, and one [`CrossEntropy`]. A kernel owns what
//! its backward pass needs beside the chain's inputs and output; scratch comes from a workspace that kernels share, so
//! a pass allocates nothing once the kernel with the largest demand has run. Results are the same bits for any number
//! of threads, and for a chain and its layers run one by one.
//!
//! ```
//! use lockstep_exec::device::cpu::{ChainLayer, CrossEntropy, Kernel, Mode, Slice, Threads, evaluate};
//! use lockstep_models::{Dense, Layer, Optimizer, SgdStep, Shape};
//!
//! // Two samples of two features, a dense layer to two classes with a ReLU, the loss.
//! let dense = Layer::Dense(Dense { out_features: 2, bias: true });
//! let shape = [Shape::of_image(2, 1, 1)];
//! let chain = [ChainLayer { layer: &dense, inputs: &shape }, ChainLayer { layer: &Layer::Relu, inputs: &shape }];
//! let mut kernel = Kernel::new(&chain, 2, &Threads::one());
//! let mut loss = CrossEntropy::new(&Layer::SoftmaxCrossEntropy, 2, 2);
//! let (x, mut w) = ([1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0, 0.5, 0.5]); // W, then b
//! let (mut y, mut d_y, mut g, mut v) = ([0.0; 4], [0.0; 4], [0.0; 6], [0.0; 6]);
//!
//! let update = Optimizer::update(1.0, false).bind(&SgdStep::plain(0.1, 0.9).into());
//! let mut losses = Vec::new();
//! for _ in 0..2 {
//!     kernel.forward(Mode::Train, &[&x], &w, &mut [], &mut y);
//!     losses.push(loss.forward(&y, &[0, 0]).sum);
//!     loss.backward(0.5, &mut d_y, false);
//!     kernel.backward(&[&x], &y, &w, &d_y, &mut [], Some((&mut g[..], false)));
//!     evaluate(&update, true, &mut [Slice::Read(&g), Slice::Written(&mut w), Slice::Written(&mut v)]);
//! }
//! assert_eq!(y.len(), 4);
//! assert!(losses[1] < losses[0]);
//! ```

mod chain;
mod demand;
mod device;
mod formula;
mod interleaved;
mod layout;
mod layouts;
mod linear_cross_entropy;
mod linear_scores;
mod loss;
mod matmul;
mod maxima;
mod register_tiles;
mod row_sums;
mod side_by_side;
mod tail;
mod team;
mod tensors;
#[cfg(test)]
mod tests;
mod threads;
mod transpose;
mod update;
mod window;
mod winograd;
mod winograd_gradients;
mod winograd_tiles;
mod winograd_weights;

use lockstep_models::{Dimension, Layer, Shape};
use lockstep_topology::Dtype;

pub use super::{ChainLayer, Draw, Loss, Mode};
pub use crate::simd::add_into;
pub use crate::workspace::Workspace;
pub use demand::workspace_bytes;
pub use device::Cpu;
pub use formula::{Slice, evaluate};
pub(crate) use layout::most_side_by_side;
pub use linear_cross_entropy::LinearCrossEntropy;
pub use loss::CrossEntropy;
pub use threads::Threads;

use super::output_of;
use elementwise::Sum;
use layout::{Fit, Layout};
use pooling::pool_window;
use tail::Tail;

/// Declares the modules of layers, each with a function that makes its head.
macro_rules! layers {
    ($($layer:ident)*) => {
        $(mod $layer;)*

        /// The head of the chain's first layer, with the tail that it applies.
        fn made(of: &Wanted<'_>) -> Box<dyn Head> {
            let made = None$(.or_else(|| $layer::made(of)))*;
            made.unwrap_or_else(|| panic!("{} computes nothing", of.layer.kind()))
        }
    };
}

// One file per layer in the folder beside; adding one needs only its line. `cargo fmt` does not see them,
// `bash tests/run format` does.
layers! {
    activation
    attention
    batch_norm
    bias
    convolution
    dense
    documents
    dropout
    elementwise
    embedding
    exact_gelu
    gelu
    group_norm
    layer_norm
    local_response
    partial_softmax
    piecewise
    pooling
    product
    resampling
    response_norm
    rotary
    row_norm
    scale
    select
    silu
    softmax
    square
    straight
}

/// What a head is made from.
struct Wanted<'a> {
    layer: &'a Layer,
    inputs: &'a [Shape],
    output: Shape,
    tail: Tail,
    samples: usize,
    threads: &'a Threads,
}

impl Wanted<'_> {
    fn input(&self) -> Shape {
        self.inputs[0]
    }

    /// Channels of the input.
    fn channels(&self) -> usize {
        self.input().features() as usize
    }

    /// Elements of a channel of the input.
    fn plane(&self) -> usize {
        self.input().inner(Dimension::Feature) as usize
    }
}

/// A fused chain of layers for batches of up to a fixed number of samples.
pub struct Kernel {
    head: Box<dyn Head>,
    workspace: Workspace,
}

/// The chain's first layer, which also applies the rest of the chain to its output.
trait Head: Send {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace);

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace);

    /// Bytes of workspace needed to train on a batch of `samples`; evaluation needs no more.
    fn workspace_bytes(&self, _samples: usize) -> usize {
        0
    }

    /// Bytes more where the gradient of its parameters is added to what is there.
    fn added_bytes(&self) -> usize {
        0
    }

    /// The layouts that it accepts for its inputs and output.
    fn fit(&self) -> Fit {
        Fit::Planes
    }

    /// Sets the layouts of inputs, output and their gradients, as [`Head::fit`] allows; initially all are in planes.
    ///
    /// # Panics
    /// When the kernel does not support them.
    fn lay(&mut self, input: Layout, output: Layout) {
        assert!([input, output] == [Layout::Planes; 2], "this kernel takes planes alone");
    }

    /// As [`Kernel::draw`].
    fn draw(&mut self, _: Draw, _: &[u64]) {}

    /// As [`Kernel::take_labels`].
    fn take_labels(&mut self, _: &[u32]) {}

    /// As [`Kernel::take_integers`].
    fn take_integers(&mut self, _: &[u8], _: Dtype) {}
}

impl From<Box<dyn Head>> for Kernel {
    fn from(head: Box<dyn Head>) -> Kernel {
        Kernel { head, workspace: Workspace::default() }
    }
}

/// The inputs and outputs of a forward pass.
struct Forward<'a> {
    mode: Mode,
    inputs: &'a [&'a [f32]],
    parameters: &'a [f32],
    statistics: &'a mut [f32],
    output: &'a mut [f32],
}

/// The inputs and outputs of a backward pass; gradients that are not requested are not computed.
struct Gradients<'a, 'b> {
    inputs: &'a [&'a [f32]],
    output: &'a [f32],
    parameters: &'a [f32],
    d_output: &'a [f32],
    /// Each with whether it is added to.
    d_inputs: &'a mut [Option<(&'b mut [f32], bool)>],
    d_parameters: Option<(&'a mut [f32], bool)>,
}

/// The gradient of the first input, which is the only one of most layers.
fn only<'a>(d_inputs: &'a mut [Option<(&mut [f32], bool)>]) -> Option<(&'a mut [f32], bool)> {
    d_inputs.first_mut()?.as_mut().map(|(d_input, adds)| (&mut **d_input, *adds))
}

impl Kernel {
    /// Whether [`Kernel::new`] supports `chain`: any layer that computes; a convolution, dense layer, batch
    /// normalisation or addition then ReLU; a convolution, with ReLU or without, then max pooling. Flatten is free
    /// anywhere in a chain.
    ///
    /// ```
    /// # use lockstep_exec::device::cpu::Kernel;
    /// # use lockstep_models::Layer;
    /// assert!(Kernel::fuses(&[&Layer::Add, &Layer::Relu]));
    /// assert!(!Kernel::fuses(&[&Layer::Relu, &Layer::Add]));
    /// ```
    pub fn fuses(chain: &[&Layer]) -> bool {
        let computing: Vec<&Layer> = chain.iter().copied().filter(|layer| !layer.rule().kind().is_view).collect();
        let Some(head) = computing.first() else { return !chain.is_empty() };
        let joins = |place: usize| computing[place].rule().joins(&computing[..place]);
        !head.is_input() && !head.is_loss() && (1..computing.len()).all(joins)
    }

    /// A kernel for `chain`, which must be one that [`Kernel::fuses`] and whose shapes fit, and batches of up to `samples`.
    pub fn new(chain: &[ChainLayer<'_>], samples: usize, threads: &Threads) -> Kernel {
        let layers: Vec<&Layer> = chain.iter().map(|member| member.layer).collect();
        assert!(Kernel::fuses(&layers), "no kernel for the chain {layers:?}");
        let mut computing = chain.iter().filter(|member| !member.layer.rule().kind().is_view);
        let Some(head) = computing.next() else { return boxed(Sum::new(false, threads)).into() };
        let mut tail = Tail::default();
        for member in computing {
            match member.layer {
                Layer::Pool2d(pool) => tail.pool = Some(pool_window(pool, member.inputs[0], output_of(member))),
                _ => tail.relu = true,
            }
        }
        let &ChainLayer { layer, inputs } = head;
        made(&Wanted { layer, inputs, output: output_of(head), tail, samples, threads }).into()
    }

    /// Swaps the kernel's workspace, which it otherwise allocates on demand, with another: kernels that run one after
    /// the other can share one.
    pub fn swap_workspace(&mut self, other: &mut Workspace) {
        std::mem::swap(&mut self.workspace, other);
    }

    /// Sets the random numbers of a dropout layer's next training pass; other layers need none. `places` are those of
    /// the samples where they are not consecutive from `draw.first`, else empty.
    pub fn draw(&mut self, draw: Draw, places: &[u64]) {
        self.head.draw(draw, places);
    }

    /// Takes the labels of the samples, of a layer that reads them, before its forward pass; it keeps them for its backward pass.
    pub fn take_labels(&mut self, labels: &[u32]) {
        self.head.take_labels(labels);
    }

    /// Takes the bytes of the samples' integers of `dtype`, of a layer that reads them, before its forward pass; it keeps what its
    /// backward pass needs. Other layers read none.
    pub fn take_integers(&mut self, samples: &[u8], dtype: Dtype) {
        self.head.take_integers(samples, dtype);
    }

    /// Computes the chain's output from its inputs, each `[samples, elements of the shape]`. An empty input of an
    /// addition (of two, else the first), a ReLU, sigmoid, tanh, dropout or flatten is already in `output`.
    ///
    /// `parameters`: the chain's learnable parameters in layer order (convolution and dense: weight, then bias; batch
    /// normalisation: γ, then β; scale: factors, then biases). `statistics`: batch normalisation's running means, then running variances.
    pub fn forward(
        &mut self,
        mode: Mode,
        inputs: &[&[f32]],
        parameters: &[f32],
        statistics: &mut [f32],
        output: &mut [f32],
    ) {
        self.head.forward(Forward { mode, inputs, parameters, statistics, output }, &mut self.workspace);
    }

    /// Computes the requested (`Some`) gradients of inputs, and that of the parameters if requested, from the output's
    /// gradient. `inputs` and `output` are those of the last forward pass, or empty where
    /// [`lockstep_models::memory::Reads`] says that no pass reads them. A gradient with `true` is added to, with
    /// `false` overwritten: adding adds the gradient that would have been written, with one rounded addition per
    /// element, so that k accumulated micro-batches equal the sum of k ranks to the bit. Computing all gradients at
    /// once gives the same bits as separate passes.
    pub fn backward(
        &mut self,
        inputs: &[&[f32]],
        output: &[f32],
        parameters: &[f32],
        d_output: &[f32],
        d_inputs: &mut [Option<(&mut [f32], bool)>],
        d_parameters: Option<(&mut [f32], bool)>,
    ) {
        let of = Gradients { inputs, output, parameters, d_output, d_inputs, d_parameters };
        self.head.backward(of, &mut self.workspace);
    }
}

fn boxed(head: impl Head + 'static) -> Box<dyn Head> {
    Box::new(head)
}

fn size(shape: Shape) -> usize {
    shape.elements() as usize
}
