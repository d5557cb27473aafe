//! Everything that talks to NVIDIA's libraries: a device that is open, its streams and memory, and what plays commands there.
//!
//! | what | where it runs |
//! |---|---|
//! | [`Context`] | the primary context of a GPU; all ranks of a process that compute on that GPU share it, each in its own thread |
//! | [`Stream`], [`Event`] | work in order on the device, and places in it; neither holds up the thread that gives the work |
//! | [`DeviceMemory`], [`PinnedMemory`] | the device's memory; the host's, which copies on streams read and write by themselves |
//! | [`Modules`], [`Cache`] | the project's kernels, compiled by NVRTC on the host for the device's architecture, kept on disk |
//! | [`Executor`] | plays [`Command`](super::Command)s on one stream: kernels by the driver, convolutions by cuDNN, products by cuBLASLt |
//! | [`Communicator`] | sums among the GPUs of a group of ranks, by NCCL |
//! | [`Graphs`] | the same for lists that repeat: each is caught once and launched as a whole from then on |
//!
//! Contexts, streams, events, graphs, modules and page-locked memory are cudarc's own, behind our errors. Ours is what it does otherwise:
//!
//! - a device's memory: cudarc's comes out of pools, which other GPUs do not reach (`memory.rs`);
//! - copies and launches: commands carry addresses and bytes, not typed slices (`copies.rs`, `modules.rs`);
//! - cuDNN and cuBLASLt: it takes a status for an enum, and a newer library has more of them (`calls.rs`);
//! - NCCL: its communicators wait inside of calls (`nccl.rs`).
//!
//! A call fails with a
//! [`DeviceError`](lockstep_exec::device::DeviceError) that names it; what fails later, on the device, is said by a later call.
//! Threads other than the one that opened a context call [`Context::bind`] first.

mod algorithms;
mod bias;
mod cache;
mod calls;
mod context;
mod convolutions;
mod copies;
mod descriptors;
mod executor;
mod graphs;
mod memory;
mod modules;
mod nccl;
mod plans;
mod prints;
mod products;
mod staging;
mod status;
mod stream;

pub use cache::Cache;
pub use context::Context;
pub use executor::Executor;
pub use graphs::{Counts, Graphs};
pub use memory::{DeviceMemory, Fill, PinnedMemory};
pub use modules::Modules;
pub use nccl::Communicator;
pub use plans::Limits;
pub use stream::{Event, Priority, Stream};
