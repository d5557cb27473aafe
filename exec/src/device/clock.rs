//! Synchronizes with a device: whether it runs asynchronously, and times by its own clock.

use std::time::Instant;

use super::{DeviceError, Loss};

/// A moment on the device's own clock, numbered from 0 in each iteration; its time is known when the iteration is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub usize);

/// The results of an iteration of an asynchronous device.
#[derive(Debug, Clone, Default)]
pub struct IterationResults {
    /// The losses of the model's last chain, in the order of their forward passes.
    pub losses: Vec<Loss>,
    /// When each mark was reached, by its number.
    pub times: Vec<Instant>,
    /// When all work was done.
    pub end: Option<Instant>,
}

/// Iterations and times. The defaults are those of a synchronous device.
pub trait Clock {
    /// Whether calls return before the work is done.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Keeps an asynchronous device busy with `times` fills of unused memory.
    ///
    /// # Errors
    /// Device errors.
    fn delay(&mut self, _times: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Marks the moment when all passes and steps submitted so far are done; for asynchronous devices.
    ///
    /// # Errors
    /// Device errors.
    fn mark(&mut self) -> Result<Mark, DeviceError> {
        Ok(Mark(0))
    }

    /// Ends an iteration: the results of all work since the previous one are reported together.
    ///
    /// # Errors
    /// Device errors.
    fn end_iteration(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The results of the oldest iteration that was ended, once it is done; `None` before.
    ///
    /// # Errors
    /// Device errors.
    fn finished_iteration(&mut self) -> Result<Option<IterationResults>, DeviceError> {
        Ok(Some(IterationResults::default()))
    }
}
