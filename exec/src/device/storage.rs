//! A device's memory by its content: buffers read and written as a whole, and the arena of the micro-batch.

use std::ops::Range;

use lockstep_models::Buffer;

use super::{DeviceError, Place};

/// Values of a rank that are read and replaced as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// A buffer of the program.
    Buffer(Buffer),
    /// Running statistics of batch normalisation.
    Statistics,
}

/// Values that one rank keeps, and the memory of its micro-batch.
pub trait Storage {
    /// All of some values, when all that the device was told is done.
    ///
    /// # Errors
    /// Device errors.
    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError>;

    /// Replaces the first of some values.
    ///
    /// # Errors
    /// Device errors.
    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError>;

    /// Lets `to` be what `from` is, as far as both go.
    ///
    /// # Errors
    /// Device errors.
    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError>;

    /// What a tensor holds, at once.
    ///
    /// # Errors
    /// Device errors.
    fn tensor(&mut self, place: &Place) -> Result<Vec<f32>, DeviceError>;

    /// Marks values as dead; a device whose memory is poisoned writes NaN there.
    ///
    /// # Errors
    /// Device errors.
    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError>;

    /// Turns to another of the micro-batches in flight: to its samples, labels, activations and what kernels keep for it.
    ///
    /// # Errors
    /// Device errors.
    fn turn_to_context(&mut self, context: usize) -> Result<(), DeviceError>;

    /// Gives the arena of the micro-batch back to those that share it.
    fn release(&mut self);

    /// Reads tensors as if a task had just written them, so that the next can be timed alone as it runs in a step.
    fn warm(&mut self, _places: &[Place]) {}

    /// Bytes of the micro-batch's arena, and of what kernels need while they run.
    fn scratch_bytes(&mut self) -> (usize, usize) {
        (0, 0)
    }
}
