//! Describes the passes that a task requests of a device: the chain, and the places of its tensors in the plan.

use std::ops::Range;

use lockstep_data::random::Purpose;
use lockstep_models::Buffer;

use super::Mode;

/// The place of a tensor of the micro-batch; `[samples, elements]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TensorAddress {
    /// No place: it is not needed.
    Nothing,
    /// The place of the same task's output.
    InPlace,
    /// The samples.
    Input,
    /// A range of the arena, in bytes.
    Arena(Range<usize>),
}

/// The source or destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// A buffer of the program.
    Buffer(Buffer),
    /// A tensor of the micro-batch.
    Tensor(TensorAddress),
}

/// A forward pass.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Which chain.
    pub chain: usize,
    /// Training or evaluation.
    pub mode: Mode,
    /// The random numbers of a dropout layer; the samples' places are those set on the device.
    pub draw: Draw,
    /// Its inputs.
    pub inputs: &'a [TensorAddress],
    /// Its output.
    pub output: TensorAddress,
}

/// A backward pass.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Which chain.
    pub chain: usize,
    /// Its inputs, as far as it reads them.
    pub inputs: &'a [TensorAddress],
    /// Its output, if it reads it.
    pub output: TensorAddress,
    /// The gradient of the output.
    pub d_output: TensorAddress,
    /// For each input the place of its gradient, and whether it is added to an existing one; `None` where it is not
    /// needed.
    pub d_inputs: &'a [Option<(TensorAddress, bool)>],
    /// Whether the parameters' gradient is added to the existing one; `None` where it is not needed.
    pub d_parameters: Option<bool>,
    /// The factor of a loss's gradient: 1 / (samples of the global batch).
    pub scale: f32,
}

/// Selects the random numbers of a batch, and the entries of a table that a rank has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draw {
    /// The run's seed.
    pub seed: u64,
    /// Position of the dropout layer in its model.
    pub layer: u32,
    /// Place of the batch's first sample among all samples since training began; the others follow.
    pub first: u64,
    /// Index of this layer's first random number in a sample, where ranks share the features of a dropout layer.
    pub offset: u64,
    /// The first entry of this layer's table, where ranks share its entries, or the first class, where they share those of a loss.
    pub entry: u64,
    /// Random numbers of the whole layer from one row of a sample to the next, where ranks share the features of each row;
    /// else 0.
    pub row: u64,
    /// Samples of the batch before this layer's first one, where ranks share the samples of a batch.
    pub skipped: u32,
}

impl Draw {
    /// The number of dropout among the purposes of streams.
    pub const STREAM: u64 = Purpose::Dropout as u64;
}

/// The result of one forward pass of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Σ −ln p(label) over the samples, in nats; divide by their number for the mean.
    pub sum: f64,
    /// Samples whose largest logit is their label's (the first of equals counts).
    pub correct: usize,
}
