//! Stages ranges of device buffers for messages: in device memory, or through a copy in host memory.

use std::ops::Range;

use lockstep_models::Buffer;

use super::DeviceError;
use crate::arena::Arena;
use crate::transport::RegionMut;

/// A copy of a range of a buffer to the host, in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival(pub u64);

/// Ranges of buffers for messages. The defaults are those of a device that uses host memory.
pub trait Staging {
    /// The host memory in which messages read and write a buffer; allocated on first use, and never moved.
    ///
    /// # Errors
    /// The host has no memory left that the device can copy from and to.
    fn host(&mut self, _buffer: Buffer) -> Result<&Arena, DeviceError>;

    /// Starts to copy a range of a buffer to the host, after all work submitted so far; `None` where it is there
    /// already.
    ///
    /// # Errors
    /// Device errors.
    fn copy_to_host(&mut self, _buffer: Buffer, _range: Range<usize>) -> Result<Option<Arrival>, DeviceError> {
        Ok(None)
    }

    /// A range of a buffer in device memory, for messages to ranks whose devices can access it; `None` for a device
    /// that uses host memory.
    fn region(&self, _buffer: Buffer, _range: Range<usize>) -> Option<RegionMut> {
        None
    }

    /// A receive buffer of `_elements` elements in device memory, for data that other ranks send to be added; kept as
    /// long as the device.
    ///
    /// # Errors
    /// Device errors: too little memory.
    fn receive_buffer(&mut self, _elements: usize) -> Result<RegionMut, DeviceError> {
        Ok(RegionMut::empty())
    }

    /// A fence for messages from device memory: passed when all work submitted so far is done.
    ///
    /// # Errors
    /// Device errors.
    fn fence(&mut self) -> Result<Option<Arrival>, DeviceError> {
        Ok(None)
    }

    /// Whether a copy or fence is complete.
    ///
    /// # Errors
    /// Device errors.
    fn arrived(&mut self, _arrival: Arrival) -> Result<bool, DeviceError> {
        Ok(true)
    }

    /// Copies the result of an exchange from the host back to the device, before any work submitted later.
    ///
    /// # Errors
    /// Device errors.
    fn copy_to_device(&mut self, _buffer: Buffer, _range: Range<usize>) -> Result<(), DeviceError> {
        Ok(())
    }
}
