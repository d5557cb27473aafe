//! What a task asks of a device: which chain, and where its tensors are in the plan.

use std::ops::Range;

use lockstep_models::Buffer;

use super::Mode;
use crate::data::random::Purpose;

/// Where a tensor of the micro-batch is; `[samples, elements]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: nobody needs it.
    Nothing,
    /// Where the output of the same task goes.
    InPlace,
    /// The samples themselves.
    Input,
    /// A range of the arena.
    Arena(Range<usize>),
}

/// Where a copy reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// A buffer of the program.
    Buffer(Buffer),
    /// A tensor of the micro-batch.
    Tensor(Place),
}

/// A forward pass.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Which chain.
    pub chain: usize,
    /// To train or to judge.
    pub mode: Mode,
    /// What a dropout layer draws; the samples' places are those that the device has been told.
    pub draw: Draw,
    /// Its inputs.
    pub inputs: &'a [Place],
    /// Its output.
    pub output: Place,
}

/// A backward pass.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Which chain.
    pub chain: usize,
    /// Its inputs, those that it reads.
    pub inputs: &'a [Place],
    /// Its output, if it reads it.
    pub output: Place,
    /// The gradient towards the output.
    pub d_output: Place,
    /// For each input the place of its gradient, and whether there is one already to which this one is added; `None` where
    /// nobody wants it.
    pub d_inputs: &'a [Option<(Place, bool)>],
    /// Whether the parameters' gradient is wanted, and then whether it is added to the one that is there.
    pub d_parameters: Option<bool>,
    /// What a loss multiplies its gradient with: 1 / (samples of the global batch).
    pub scale: f32,
}

/// Which random numbers a batch gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draw {
    /// Of the run.
    pub seed: u64,
    /// Position of the dropout layer in its model.
    pub layer: u32,
    /// Place of the batch's first sample among all samples since training began; the others follow.
    pub first: u64,
    /// The first of a sample's numbers that is this layer's, where ranks share the features of a dropout layer.
    pub offset: u64,
}

impl Draw {
    /// The number of dropout's streams among all that a seed has.
    pub const STREAM: u64 = Purpose::Dropout as u64;
}

/// What one forward pass of the loss says of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Σ −ln p(label) over the samples, in nats; divide by their number for the mean.
    pub sum: f64,
    /// Samples whose largest logit is their label's (the first of equals counts).
    pub correct: usize,
}
