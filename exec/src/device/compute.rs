//! Defines the arithmetic of a device: samples in, passes through chains of layers, parameter updates.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{BoundFormula, Copy};

use crate::input::BatchMemory;
use lockstep_data::Untransformed;

use super::{Backward, DeviceError, Forward, Loss, Spot, TensorAddress};

/// Passes and updates on one rank's memory.
pub trait Compute {
    /// The buffer for the samples of the next micro-batch: the bytes of `[samples, …]` numbers of the model's
    /// [`sample`](lockstep_models::Model::sample), aligned for them.
    ///
    /// # Errors
    /// Device errors.
    fn input(&mut self) -> Result<&mut [u8], DeviceError>;

    /// Makes the samples in that buffer the current micro-batch.
    ///
    /// # Errors
    /// Device errors.
    fn load(&mut self) -> Result<(), DeviceError>;

    /// Host memory for `bytes` bytes of a batch that threads prepare, to be loaded from there.
    ///
    /// # Errors
    /// The host has none left that the device can copy from.
    fn batch_memory(&self, bytes: usize) -> Result<BatchMemory, DeviceError> {
        Ok(BatchMemory::of_pages(bytes))
    }

    /// Makes the samples in such memory the current micro-batch. An asynchronous device may copy them later, and lends
    /// the memory until then.
    ///
    /// # Errors
    /// Device errors.
    fn load_from(&mut self, memory: &Arc<BatchMemory>) -> Result<(), DeviceError> {
        let input = self.input()?;
        // SAFETY: threads have filled it, and fill it again only after this load.
        input.copy_from_slice(unsafe { memory.arena().slice(0..input.len()) });
        self.load()
    }

    /// Makes samples of decoded pictures, and these the current micro-batch.
    ///
    /// # Errors
    /// Device errors.
    fn transform(&mut self, samples: &Untransformed<'_>) -> Result<(), DeviceError>;

    /// Sets the labels of the samples of the next passes, `[samples, …]` of the model's
    /// [`labels`](lockstep_models::Model::labels), and the samples' places among all since training began.
    ///
    /// # Errors
    /// Device errors.
    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError>;

    /// Runs a chain forward. Returns the loss of a loss chain, unless the device is asynchronous or finds it in the backward pass.
    ///
    /// # Errors
    /// Device errors.
    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError>;

    /// Runs a chain backward. Returns the loss of an output layer that is a loss, unless the device is asynchronous.
    ///
    /// # Errors
    /// Device errors.
    fn backward(&mut self, pass: &Backward<'_>) -> Result<Option<Loss>, DeviceError>;

    /// The loss of the first `samples` of the micro-batch whose logits are at `logits`; synchronous.
    ///
    /// # Errors
    /// Device errors.
    fn evaluate(&mut self, chain: usize, logits: &TensorAddress, samples: usize) -> Result<Loss, DeviceError>;

    /// The losses by sample of the last pass of a loss chain that found it; synchronous.
    ///
    /// # Errors
    /// Device errors.
    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError>;

    /// Evaluates a formula on each element of a range of its buffers.
    ///
    /// # Errors
    /// Device errors.
    fn apply(&mut self, range: Range<usize>, formula: &BoundFormula) -> Result<(), DeviceError>;

    /// Performs a copy from one place to another.
    ///
    /// # Errors
    /// Device errors.
    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError>;
}
