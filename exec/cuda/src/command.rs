//! Defines the commands of a stream: launches of the project's kernels, and the passes of cuDNN and cuBLASLt.
//!
//! Layers describe their work as a list of commands, which is data: a GPU executes it, a CUDA graph captures it, and
//! two lists are compared by value.

use lockstep_models::{ImageShape, Precision};

use super::argument::Scalar;
use super::kernel::KernelCall;

/// One command on a stream. Addresses are the device's.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A kernel launch.
    Launch(KernelCall),
    /// Zeroes `bytes` bytes from `address` on.
    Zero {
        /// Start address.
        address: u64,
        /// Number of bytes.
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
    /// Shape of the input.
    pub input: ImageShape,
    /// Shape of the output; its channels are the filters.
    pub output: ImageShape,
    /// The filters' size.
    pub kernel: (u32, u32),
    /// Stride of the window.
    pub stride: (u32, u32),
    /// Zero padding on each side.
    pub padding: (u32, u32),
    /// Distance between filter taps.
    pub dilation: (u32, u32),
    /// Number of channel groups.
    pub groups: u32,
    /// Precision of the tensors: under [`Precision::Bf16`] all three of a pass are bf16, else fp32.
    pub precision: Precision,
    /// Whether the channels of a pixel are adjacent: tensors are `[samples, height, width, channels]` and filters
    /// `[filters, height, width, channels / groups]`.
    pub channels_last: bool,
}

/// Which of a convolution's three tensors is computed.
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
    /// The pass's first tensor.
    pub left: u64,
    /// The pass's second tensor.
    pub right: u64,
    /// The computed tensor.
    pub result: u64,
    /// Added to each channel of the output; fp32 whatever the tensors are; forward only, without `accumulate`.
    pub bias: Option<u64>,
    /// Whether the output is rectified; only with a bias.
    pub rectified: bool,
    /// Whether the result is added to existing values.
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
    /// A, `[rows, depth]`; stored as `[depth, rows]` where `transposed_a`. bf16 under [`Precision::Bf16`], else fp32.
    pub a: u64,
    /// Whether A is stored transposed.
    pub transposed_a: bool,
    /// B, `[depth, columns]`; stored as `[columns, depth]` where `transposed_b`. Element type as A.
    pub b: u64,
    /// Whether B is stored transposed.
    pub transposed_b: bool,
    /// C.
    pub c: u64,
    /// Element type of C; sums are fp32 and rounded once.
    pub result: Scalar,
    /// Added to each row of C; `[columns]`, fp32; without `accumulate`.
    pub bias: Option<u64>,
    /// Whether C is rectified; only with a bias.
    pub rectified: bool,
    /// Whether the product is added to existing values.
    pub accumulate: bool,
    /// Precision of the factors.
    pub precision: Precision,
}
