//! The devices a rank computes on, one folder each, and what the executor asks of them.
//!
//! A [`Device`] is the memory of one rank and the arithmetic on it. The replica says which tensors a task reads and writes, by
//! their places in the memory plan; the device knows where that memory is. Messages reach it there where all members of an
//! exchange have devices that reach each other, or that MPI reaches; else a device with memory of its own brings ranges of its
//! buffers out to the host before an exchange and in again behind it.
//!
//! What a device is told happens in the order in which it was told, and may happen later: a device that *defers* answers before
//! the work is done, and gives losses and times when it is asked to settle.

mod blueprint;
mod buffers;
mod chain;
pub mod cpu;
mod devices;
mod error;
mod group;
mod null;
mod pass;
mod step;

use std::ops::Range;
use std::time::Instant;

use lockstep_models::{Buffer, Copy};

use crate::arena::Arena;
use crate::transport::RegionMut;

pub use blueprint::{Blueprint, ChainPlan};
pub(crate) use buffers::Buffers;
pub use chain::{ChainLayer, Mode, output_of};
pub use devices::{Cpus, Devices, Nulls};
pub use error::DeviceError;
pub use group::GroupId;
pub use null::Null;
pub use pass::{Backward, Draw, Forward, Loss, Place, Spot};
pub use step::{Slope, Step};

/// Values of a rank that are read and replaced as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// A buffer of the program.
    Buffer(Buffer),
    /// The optimizer's momentum buffer.
    Velocity,
    /// Running statistics of batch normalisation.
    Statistics,
}

/// A range of a buffer on its way to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival(pub u64);

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

/// One rank's memory and arithmetic.
///
/// Every call may say that the device is lost, or out of memory; the CPU never does.
pub trait Device: Send {
    /// Where messages read and write a buffer; it stays where it is, and is made when it is first asked for.
    ///
    /// # Errors
    /// The host has no memory for it that the device's copies reach.
    fn host(&mut self, buffer: Buffer) -> Result<&Arena, DeviceError>;

    /// Begins to bring a range of a buffer to the host, as it is after all that the device has been told so far; nothing where
    /// it is there already.
    ///
    /// # Errors
    /// The device's.
    fn bring_out(&mut self, buffer: Buffer, range: Range<usize>) -> Result<Option<Arrival>, DeviceError> {
        let _ = (buffer, range);
        Ok(None)
    }

    /// A range of a buffer in the device's own memory, for messages to ranks whose devices reach it; none where that is the host's.
    fn region(&self, buffer: Buffer, range: Range<usize>) -> Option<RegionMut> {
        let _ = (buffer, range);
        None
    }

    /// As many elements in the same memory, kept as long as the device is: there what others send to be added arrives.
    ///
    /// # Errors
    /// The device's: it has no room for them.
    fn landing(&mut self, elements: usize) -> Result<RegionMut, DeviceError> {
        let _ = elements;
        Ok(RegionMut::empty())
    }

    /// For such messages: passes when all that the device has been told so far is done.
    ///
    /// # Errors
    /// The device's.
    fn expose(&mut self) -> Result<Option<Arrival>, DeviceError> {
        Ok(None)
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// The device's.
    fn arrived(&mut self, arrival: Arrival) -> Result<bool, DeviceError> {
        let _ = arrival;
        Ok(true)
    }

    /// Brings what an exchange has left on the host in again, before anything that the device is told from now on.
    ///
    /// # Errors
    /// The device's.
    fn bring_in(&mut self, buffer: Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        let _ = (buffer, range);
        Ok(())
    }

    /// A new group of devices, whose other members are told what it is known by.
    ///
    /// # Errors
    /// The device's, or it knows none that add up by themselves.
    fn new_group(&mut self) -> Result<GroupId, DeviceError> {
        Err(group::none())
    }

    /// Begins to meet the others of a group of `members`, as number `member`; from now on it is the rank's group `group`.
    ///
    /// # Errors
    /// As [`Device::new_group`].
    fn join(&mut self, group: usize, id: &GroupId, member: u32, members: u32) -> Result<(), DeviceError> {
        let _ = (group, id, member, members);
        Err(group::none())
    }

    /// Begins to add up a range of a buffer over the members of a group, behind all that the device has been told so far. What it
    /// is told from the moment on when the group is ready sees the sum. Members do the same in the same order.
    ///
    /// # Errors
    /// As [`Device::new_group`].
    fn sum(&mut self, group: usize, buffer: Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        let _ = (group, buffer, range);
        Err(group::none())
    }

    /// Begins to take leave of a group.
    ///
    /// # Errors
    /// As [`Device::new_group`].
    fn leave(&mut self, group: usize) -> Result<(), DeviceError> {
        let _ = group;
        Err(group::none())
    }

    /// Whether what was begun last in a group is done.
    ///
    /// # Errors
    /// What has failed meanwhile, here or on another member.
    fn is_ready(&mut self, group: usize) -> Result<bool, DeviceError> {
        let _ = group;
        Err(group::none())
    }

    /// All of some values, when all that the device was told is done.
    ///
    /// # Errors
    /// The device's.
    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError>;

    /// Replaces the first of some values.
    ///
    /// # Errors
    /// The device's.
    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError>;

    /// Lets `to` be what `from` is, as far as both go.
    ///
    /// # Errors
    /// The device's.
    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError>;

    /// Where the samples of the next micro-batch are put; `[samples, elements]`.
    ///
    /// # Errors
    /// The device's.
    fn input(&mut self) -> Result<&mut [f32], DeviceError>;

    /// Takes what was put there for the micro-batch from now on.
    ///
    /// # Errors
    /// The device's.
    fn load(&mut self) -> Result<(), DeviceError>;

    /// The labels of the samples that the next passes see, and their places among all since training began.
    ///
    /// # Errors
    /// The device's.
    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError>;

    /// Runs a chain forward. Gives the loss of a loss's chain, unless the device defers.
    ///
    /// # Errors
    /// The device's.
    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError>;

    /// Runs a chain backward.
    ///
    /// # Errors
    /// The device's.
    fn backward(&mut self, pass: &Backward<'_>) -> Result<(), DeviceError>;

    /// The loss of the first `samples` of the micro-batch whose scores lie at `logits`, at once.
    ///
    /// # Errors
    /// The device's.
    fn judge(&mut self, chain: usize, logits: &Place, samples: usize) -> Result<Loss, DeviceError>;

    /// The losses that the last forward pass of a loss's chain found, by sample, at once.
    ///
    /// # Errors
    /// The device's.
    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError>;

    /// What a tensor holds, at once.
    ///
    /// # Errors
    /// The device's.
    fn tensor(&mut self, place: &Place) -> Result<Vec<f32>, DeviceError>;

    /// Moves a range of the parameters.
    ///
    /// # Errors
    /// The device's.
    fn step(&mut self, range: Range<usize>, step: &Step) -> Result<(), DeviceError>;

    /// Does what a copy says from one place to another.
    ///
    /// # Errors
    /// The device's.
    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError>;

    /// Told what nobody reads any more; a device whose memory is poisoned writes NaN there.
    ///
    /// # Errors
    /// The device's.
    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError>;

    /// Gives the arena of the micro-batch back to those that share it.
    fn release(&mut self);

    /// Reads tensors as if a task had just written them, so that the next can be timed alone as it runs in a step.
    fn warm(&mut self, places: &[Place]) {
        let _ = places;
    }

    /// Bytes of the micro-batch's arena, and of what kernels need while they run.
    fn scratch_bytes(&mut self) -> (usize, usize) {
        (0, 0)
    }

    /// Whether answers come before the work is done.
    fn defers(&self) -> bool {
        false
    }

    /// Keeps a device that defers busy with so many fills of memory that nobody reads.
    ///
    /// # Errors
    /// The device's.
    fn delay(&mut self, times: u32) -> Result<(), DeviceError> {
        let _ = times;
        Ok(())
    }

    /// The moment at which all passes and steps that the device has been told so far are done; of a device that defers.
    ///
    /// # Errors
    /// The device's.
    fn mark(&mut self) -> Result<Mark, DeviceError> {
        Ok(Mark(0))
    }

    /// Ends an iteration: what is still to be said of all that the device was told since the last one is said together.
    ///
    /// # Errors
    /// The device's.
    fn seal(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What is still to be said of the oldest iteration that was ended, if it is done; `None` while it is not.
    ///
    /// # Errors
    /// The device's.
    fn settled(&mut self) -> Result<Option<Settled>, DeviceError> {
        Ok(Some(Settled::default()))
    }
}
