//! Defines the devices that ranks compute on: what the executor asks of a device, one trait per part.
//!
//! A [`RankDevice`] is the memory of one rank and the arithmetic on it. The replica names the tensors that a task reads and
//! writes by their places in the memory plan; the device knows where that memory is. Messages access device memory
//! directly where all members of an exchange have devices that can access each other, or that MPI can access. Otherwise
//! a device with memory of its own copies ranges of its buffers to the host before an exchange and back after it.
//!
//! A device executes calls in order, possibly asynchronously: an *asynchronous* device returns before the work is done,
//! and reports losses and times when it is synchronized.

mod blueprint;
mod buffers;
mod chain;
mod clock;
mod compute;
pub mod cpu;
mod decays;
mod devices;
mod groups;
mod input_memory;
mod null;
mod pass;
mod staging;
mod storage;

pub use crate::device_error::DeviceError;
pub use blueprint::{Blueprint, ChainPlan};
pub(crate) use buffers::{Buffers, declared_arenas, zeros};
pub use chain::{ChainLayer, Mode, output_of};
pub use clock::{Clock, IterationResults, Mark};
pub use compute::Compute;
pub use devices::{Cpus, Devices, Nulls, unkept};
pub use groups::{GroupId, Groups};
use input_memory::InputMemory;
pub use null::Null;
pub use pass::{Backward, Draw, Forward, Loss, Spot, TensorAddress};
pub use staging::{Arrival, Staging};
pub use storage::{Storage, Values};

/// One rank's memory and arithmetic.
///
/// Every call may report that the device is lost or out of memory; the CPU never does.
pub trait RankDevice: Compute + Storage + Staging + Groups + Clock + Send {}

impl<D: Compute + Storage + Staging + Groups + Clock + Send> RankDevice for D {}
