//! The devices a rank computes on, and what the executor asks of them, a trait for each part.
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
mod clock;
mod compute;
pub mod cpu;
mod decays;
mod devices;
mod groups;
mod null;
mod pass;
mod staging;
mod storage;

pub use crate::device_error::DeviceError;
pub use blueprint::{Blueprint, ChainPlan};
pub(crate) use buffers::Buffers;
pub use chain::{ChainLayer, Mode, output_of};
pub use clock::{Clock, Mark, Settled};
pub use compute::Compute;
pub use devices::{Cpus, Devices, Nulls};
pub use groups::{GroupId, Groups};
pub use null::Null;
pub use pass::{Backward, Draw, Forward, Loss, Place, Spot};
pub use staging::{Arrival, Staging};
pub use storage::{Storage, Values};

/// One rank's memory and arithmetic.
///
/// Every call may say that the device is lost, or out of memory; the CPU never does.
pub trait Device: Compute + Storage + Staging + Groups + Clock + Send {}

impl<D: Compute + Storage + Staging + Groups + Clock + Send> Device for D {}
