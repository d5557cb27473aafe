//! When a device is done: whether it answers before its work is done, and its own clock.

use std::time::Instant;

use super::{DeviceError, Loss};

/// A moment on the device's own clock, told when its iteration settles; counted from 0 in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub usize);

/// What was still to be said when a device settles.
#[derive(Debug, Clone, Default)]
pub struct Settled {
    /// The losses of the model's last chain, in the order of their forward passes.
    pub losses: Vec<Loss>,
    /// When each mark was passed, by its number.
    pub times: Vec<Instant>,
    /// When all was done.
    pub end: Option<Instant>,
}

/// Iterations and times; what is not implemented is that of a device which answers when its work is done.
pub trait Clock {
    /// Whether answers come before the work is done.
    fn defers(&self) -> bool {
        false
    }

    /// Keeps a device that defers busy with this number of fills of unused memory.
    ///
    /// # Errors
    /// Device errors.
    fn delay(&mut self, _times: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The moment at which all passes and steps that the device has been told so far are done; of a device that defers.
    ///
    /// # Errors
    /// Device errors.
    fn mark(&mut self) -> Result<Mark, DeviceError> {
        Ok(Mark(0))
    }

    /// Ends an iteration: what is still to be said of all that the device was told since the last one is said together.
    ///
    /// # Errors
    /// Device errors.
    fn seal(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What is still to be said of the oldest iteration that was ended, if it is done; `None` while it is not.
    ///
    /// # Errors
    /// Device errors.
    fn settled(&mut self) -> Result<Option<Settled>, DeviceError> {
        Ok(Some(Settled::default()))
    }
}
