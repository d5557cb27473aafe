//! How messages reach a device's memory: on the device itself, or by a copy in the host's memory.

use std::ops::Range;

use lockstep_models::Buffer;

use super::DeviceError;
use crate::arena::Arena;
use crate::transport::RegionMut;

/// A range of a buffer on its way to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival(pub u64);

/// Ranges of buffers for messages; what is not implemented is that of a device whose memory is the host's.
pub trait Staging {
    /// Where messages read and write a buffer; it stays where it is, and is made when it is first asked for.
    ///
    /// # Errors
    /// The host has no memory for it that the device's copies reach.
    fn host(&mut self, _buffer: Buffer) -> Result<&Arena, DeviceError>;

    /// Begins to bring a range of a buffer to the host, as it is after all that the device has been told so far; nothing where
    /// it is there already.
    ///
    /// # Errors
    /// Device errors.
    fn bring_out(&mut self, _buffer: Buffer, _range: Range<usize>) -> Result<Option<Arrival>, DeviceError> {
        Ok(None)
    }

    /// A range of a buffer in the device's own memory, for messages to ranks whose devices reach it; none where that is the host's.
    fn region(&self, _buffer: Buffer, _range: Range<usize>) -> Option<RegionMut> {
        None
    }

    /// As many elements in the same memory, kept as long as the device is: there what others send to be added arrives.
    ///
    /// # Errors
    /// The device's: it has no room for them.
    fn landing(&mut self, _elements: usize) -> Result<RegionMut, DeviceError> {
        Ok(RegionMut::empty())
    }

    /// For such messages: passes when all that the device has been told so far is done.
    ///
    /// # Errors
    /// Device errors.
    fn expose(&mut self) -> Result<Option<Arrival>, DeviceError> {
        Ok(None)
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// Device errors.
    fn arrived(&mut self, _arrival: Arrival) -> Result<bool, DeviceError> {
        Ok(true)
    }

    /// Brings what an exchange has left on the host in again, before anything that the device is told from now on.
    ///
    /// # Errors
    /// Device errors.
    fn bring_in(&mut self, _buffer: Buffer, _range: Range<usize>) -> Result<(), DeviceError> {
        Ok(())
    }
}
