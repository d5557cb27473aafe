//! Describes a kernel's chain of layers with their shapes, and the mode in which it runs: training or inference.

use lockstep_models::{Layer, Shape};

/// One layer of a fused chain and the shapes of its inputs; after the first layer that is the previous layer's output.
#[derive(Debug, Clone, Copy)]
pub struct ChainLayer<'a> {
    /// The layer.
    pub layer: &'a Layer,
    /// Shapes of its inputs, in order.
    pub inputs: &'a [Shape],
}

/// Whether batch normalisation uses the batch's statistics (and updates the running ones) or the running ones, and
/// whether dropout is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A training step.
    Train,
    /// The same a second time in a step: batch normalisation's running statistics stay as they are.
    Recompute,
    /// As inference, except that batch normalisation uses the batch's statistics and makes the running ones their mean
    /// over the batches so far: evaluation may use this mean instead of a running average (Goyal et al. 2017, Fig. 4).
    Statistics {
        /// Number of the batch, from 0.
        batch: u32,
    },
    /// Inference; no backward pass follows.
    Evaluate,
}

/// The output shape of a member of a chain, whose model has been checked.
///
/// # Panics
/// The layer does not accept such inputs.
pub fn output_of(member: &ChainLayer<'_>) -> Shape {
    match member.layer.output_shape(member.inputs) {
        Ok(shape) => shape,
        Err(error) => panic!("a checked model has layers that fit: {error}"),
    }
}
