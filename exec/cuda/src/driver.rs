//! Wraps NVIDIA's libraries: an open device, its streams and memory, and the executor of commands.
//!
//! | type | role |
//! |---|---|
//! | [`Context`] | the primary context of a GPU, shared by all ranks of a process on that GPU, each in its own thread |
//! | [`GpuStream`], [`Event`] | ordered work on the device, and points in it; neither blocks the submitting thread |
//! | [`GpuMemory`], [`PinnedMemory`] | device memory, and page-locked host memory for asynchronous copies |
//! | [`Modules`], [`Cache`] | the project's kernels, compiled by NVRTC for the device's architecture, cached on disk |
//! | [`Executor`] | executes [`Command`](super::Command)s on one stream, by kernels, cuDNN and cuBLASLt |
//! | [`Communicator`] | sums among the GPUs of a group of ranks, by NCCL |
//! | [`Graphs`] | executes lists that repeat: each is captured once and launched as a graph from then on |
//!
//! Contexts, streams, events, graphs, modules and page-locked memory are cudarc's own, with our errors. Implemented
//! here, because cudarc does it differently:
//!
//! - device memory: cudarc's comes from pools, which other GPUs cannot access (`memory.rs`);
//! - copies and launches: commands carry addresses and bytes, not typed slices (`copies.rs`, `modules.rs`);
//! - cuDNN and cuBLASLt: cudarc reads a status as an enum, but newer libraries have more statuses (`calls.rs`);
//! - NCCL: cudarc's communicators block inside calls (`nccl.rs`).
//!
//! A failed call returns a [`DeviceError`](lockstep_exec::device::DeviceError) that names it; what fails later, on the
//! device, is reported by a later call. Threads other than the one that opened a context must call [`Context::bind`]
//! first.

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
pub use memory::{Fill, GpuMemory, PinnedMemory};
pub use modules::Modules;
pub use nccl::Communicator;
pub use plans::WorkspaceLimits;
pub use stream::{Event, GpuStream, Priority};
