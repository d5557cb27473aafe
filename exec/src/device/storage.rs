//! Accesses a device's memory by content: buffers read and written as a whole, and the arena of the micro-batch.

use std::ops::Range;

use lockstep_models::Buffer;

use super::{DeviceError, TensorAddress};

/// Values of a rank that are read and replaced as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// A buffer of the program.
    Buffer(Buffer),
    /// Running statistics of batch normalisation.
    Statistics,
}

/// The values of one rank, and the memory of its micro-batch.
pub trait Storage {
    /// A copy of some values, once all submitted work is done.
    ///
    /// # Errors
    /// Device errors.
    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError>;

    /// A copy of a range of a buffer, once all submitted work is done.
    ///
    /// # Errors
    /// Device errors.
    fn read_part(&mut self, buffer: Buffer, range: Range<usize>) -> Result<Vec<f32>, DeviceError> {
        Ok(self.read(Values::Buffer(buffer))?[range].to_vec())
    }

    /// The values themselves, where they are fp32 in host memory; called between tasks, when nothing is in flight.
    fn lent(&self, _values: Values) -> Option<&[f32]> {
        None
    }

    /// Replaces values, from the first on.
    ///
    /// # Errors
    /// Device errors.
    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError>;

    /// Replaces numbers of a buffer, from the first on, by those with these bytes.
    ///
    /// # Errors
    /// Device errors.
    fn write_bytes(&mut self, buffer: Buffer, content: &[u8]) -> Result<(), DeviceError>;

    /// Frees the memory of a buffer that is not used again, where the device can.
    fn free(&mut self, _buffer: Buffer) {}

    /// Copies `from` to `to`, up to the shorter length.
    ///
    /// # Errors
    /// Device errors.
    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError>;

    /// The values of a tensor; synchronous.
    ///
    /// # Errors
    /// Device errors.
    fn tensor(&mut self, place: &TensorAddress) -> Result<Vec<f32>, DeviceError>;

    /// Marks values as dead; a device with poisoning writes NaN there.
    ///
    /// # Errors
    /// Device errors.
    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError>;

    /// Switches to another of the micro-batches in flight: its samples, labels, activations and what kernels keep for
    /// it.
    ///
    /// # Errors
    /// Device errors.
    fn turn_to_context(&mut self, context: usize) -> Result<(), DeviceError>;

    /// Returns the arena of the micro-batch to those that share it.
    fn release(&mut self);

    /// Reads tensors as if a task had just written them, so that the next task can be timed alone as it runs in a step.
    fn warm(&mut self, _places: &[TensorAddress]) {}

    /// Bytes of the micro-batch's arena, and of the kernels' scratch memory.
    fn scratch_bytes(&mut self) -> (usize, usize) {
        (0, 0)
    }
}
