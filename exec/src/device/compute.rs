//! The arithmetic of a device: samples in, passes through chains of layers, steps of the parameters.

use std::ops::Range;

use lockstep_models::{BoundFormula, Copy};

use super::{Backward, DeviceError, Forward, Loss, Place, Spot};

/// Passes and steps on one rank's memory.
pub trait Compute {
    /// Where the samples of the next micro-batch are put; `[samples, elements]`.
    ///
    /// # Errors
    /// Device errors.
    fn input(&mut self) -> Result<&mut [f32], DeviceError>;

    /// Takes what was put there for the micro-batch from now on.
    ///
    /// # Errors
    /// Device errors.
    fn load(&mut self) -> Result<(), DeviceError>;

    /// The labels of the samples that the next passes see, and their places among all since training began.
    ///
    /// # Errors
    /// Device errors.
    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError>;

    /// Runs a chain forward. Gives the loss of a loss's chain, unless the device defers.
    ///
    /// # Errors
    /// Device errors.
    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError>;

    /// Runs a chain backward.
    ///
    /// # Errors
    /// Device errors.
    fn backward(&mut self, pass: &Backward<'_>) -> Result<(), DeviceError>;

    /// The loss of the first `samples` of the micro-batch whose scores lie at `logits`, at once.
    ///
    /// # Errors
    /// Device errors.
    fn judge(&mut self, chain: usize, logits: &Place, samples: usize) -> Result<Loss, DeviceError>;

    /// The losses that the last forward pass of a loss's chain found, by sample, at once.
    ///
    /// # Errors
    /// Device errors.
    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError>;

    /// Does to each element of a range of its buffers what a formula says.
    ///
    /// # Errors
    /// Device errors.
    fn apply(&mut self, range: Range<usize>, formula: &BoundFormula) -> Result<(), DeviceError>;

    /// Does what a copy says from one place to another.
    ///
    /// # Errors
    /// Device errors.
    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError>;
}
