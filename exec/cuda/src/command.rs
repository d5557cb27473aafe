//! What a stream is given, in order: launches of the project's kernels, and the passes that cuDNN and cuBLASLt have.
//!
//! Layers say what they do as a list of commands, which is data: it is played by a GPU, caught in a CUDA graph and told apart
//! from another one by comparing both.

use lockstep_models::{Precision, Shape};

use super::argument::Scalar;
use super::kernel::Call;

/// One thing to do on a stream. Addresses are the device's.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A kernel.
    Launch(Call),
    /// Zeros in `bytes` bytes from `address` on.
    Zero {
        /// Where they begin.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// A pass of a convolution.
    Convolve(Convolve),
    /// A product of matrices.
    Multiply(Multiply),
}

/// A convolution's sizes; pairs are (vertical, horizontal), shapes those of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Samples of the batch.
    pub samples: u32,
    /// What goes in.
    pub input: Shape,
    /// What comes out; its channels are the filters.
    pub output: Shape,
    /// The filters' size.
    pub kernel: (u32, u32),
    /// Steps of the window.
    pub stride: (u32, u32),
    /// Zeros at each side.
    pub padding: (u32, u32),
    /// Distance between filter taps.
    pub dilation: (u32, u32),
    /// Groups of channels that see only each other.
    pub groups: u32,
    /// Of the tensors: bf16 ones, all three of a pass, under [`Precision::Bf16`], else fp32.
    pub precision: Precision,
    /// Whether a pixel's channels lie side by side: tensors are `[samples, height, width, channels]` and filters
    /// `[filters, height, width, channels / groups]`.
    pub channels_last: bool,
}

/// Which of a convolution's tensors is computed from the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvolutionPass {
    /// The output from input (`left`) and filters (`right`).
    Forward,
    /// The input's gradient from that of the output (`left`) and the filters (`right`).
    BackwardData,
    /// The filters' gradient from the input (`left`) and the output's gradient (`right`).
    BackwardWeight,
}

/// A pass of a convolution over tensors `[samples, channels, height, width]` and filters
/// `[filters, channels / groups, height, width]`, or with channels last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Convolve {
    /// Its sizes.
    pub of: Convolution,
    /// Which pass.
    pub pass: ConvolutionPass,
    /// The pass' first tensor.
    pub left: u64,
    /// Its second one.
    pub right: u64,
    /// What it computes.
    pub result: u64,
    /// Added to each channel of the output, fp32, whatever the tensors are; forward, without `accumulate`.
    pub bias: Option<u64>,
    /// Whether the output is rectified; only with a bias.
    pub rectified: bool,
    /// Whether the result is added to what is there.
    pub accumulate: bool,
}

/// `C ← A·B`, or `C ← C + A·B`, of matrices in row-major order: C is `[rows, columns]`, the inner dimension is `depth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Multiply {
    /// Rows of A and C.
    pub rows: u32,
    /// Columns of B and C.
    pub columns: u32,
    /// Columns of A, rows of B.
    pub depth: u32,
    /// A, `[rows, depth]`; lying as `[depth, rows]` where `transposed_a`. bf16 under [`Precision::Bf16`], else fp32.
    pub a: u64,
    /// Whether A lies transposed.
    pub transposed_a: bool,
    /// B, `[depth, columns]`; lying as `[columns, depth]` where `transposed_b`. As A.
    pub b: u64,
    /// Whether B lies transposed.
    pub transposed_b: bool,
    /// C.
    pub c: u64,
    /// What C is made of; sums are fp32 and rounded once.
    pub result: Scalar,
    /// Added to each row of C; `[columns]`, fp32; without `accumulate`.
    pub bias: Option<u64>,
    /// Whether C is rectified; only with a bias.
    pub rectified: bool,
    /// Whether the product is added to what is there.
    pub accumulate: bool,
    /// Of the factors.
    pub precision: Precision,
}
