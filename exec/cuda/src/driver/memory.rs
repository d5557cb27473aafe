//! Allocates device memory, and page-locked host memory (cudarc's) for asynchronous copies.
//!
//! cudarc's slices of device memory are not used: they come from pools, which other GPUs and MPI libraries cannot
//! access.

use std::sync::Arc;

use cudarc::driver::PinnedHostSlice;
use cudarc::driver::result::{DriverError, free_sync, malloc_sync, memset_d8_async, stream};
use cudarc::driver::sys::{CU_MEMHOSTALLOC_PORTABLE, CUresult};
use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::status::{Status, full, refused};

/// The initial content of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    Zeros,
    /// Bytes that are NaN in every number format, so that reading unwritten memory shows.
    Poison,
}

/// Device memory, freed when dropped. Its address is a multiple of 256.
#[derive(Debug)]
pub struct GpuMemory {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

impl GpuMemory {
    /// Allocates `bytes` bytes for `what`, filled before this returns.
    ///
    /// # Errors
    /// Too little memory, with what is free; the device is lost.
    pub fn new(context: &Arc<Context>, what: &str, bytes: u64, fill: Fill) -> Result<GpuMemory, DeviceError> {
        context.within(|| {
            // The driver gives no memory for zero bytes, but an empty tensor has an address too.
            // SAFETY: it is filled below.
            let address = match unsafe { malloc_sync(bytes.max(1) as usize) } {
                Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => return Err(full(what, bytes)),
                given => given.of("cuMemAlloc")?,
            };
            let memory = GpuMemory { context: Arc::clone(context), address, bytes };
            let byte = if fill == Fill::Zeros { 0 } else { 0xff };
            let default = stream::null();
            // SAFETY: the memory has just been allocated with that many bytes.
            unsafe { memset_d8_async(address, byte, bytes as usize, default) }.of("cuMemsetD8Async")?;
            // SAFETY: the default stream always exists. Other streams do not wait for it, so this thread does.
            unsafe { stream::synchronize(default) }.of("cuStreamSynchronize")?;
            Ok(memory)
        })
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        let address = self.address;
        // SAFETY: it is freed only here. The driver waits for pending work on it; on a lost device there is nothing to
        // free.
        let _ = self.context.within(|| unsafe { free_sync(address) }.of("cuMemFree"));
    }
}

/// Page-locked host memory, so that copies to and from a device run asynchronously. Its address is a multiple of 4,096
/// and valid in every context; freed when dropped.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Arc<Context>,
    /// Its address is queried once, since cudarc waits at every query.
    held: Option<PinnedHostSlice<u8>>,
    start: usize,
    bytes: u64,
}

impl PinnedMemory {
    /// Allocates `bytes` zero bytes.
    ///
    /// # Errors
    /// The host has no page-locked memory left, or the device is lost.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<PinnedMemory, DeviceError> {
        let (start, held) = context.within(|| {
            // SAFETY: it is filled below.
            let given = unsafe {
                context.cuda().alloc_pinned_with_flags::<u8>(bytes.max(1) as usize, CU_MEMHOSTALLOC_PORTABLE)
            };
            let mut held = match given {
                Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                    let reason = format!("the host has no {bytes} bytes of page-locked memory left");
                    return Err(refused("cuMemHostAlloc", reason));
                }
                given => given.of("cuMemHostAlloc")?,
            };
            let memory = held.as_mut_slice().of("cuEventSynchronize")?;
            memory.fill(0);
            Ok((memory.as_mut_ptr() as usize, held))
        })?;
        Ok(PinnedMemory { context: Arc::clone(context), held: Some(held), start, bytes })
    }

    /// Its address.
    pub fn start(&self) -> *mut u8 {
        self.start as *mut u8
    }

    /// Its address, as fp32 numbers.
    pub fn floats(&self) -> *mut f32 {
        self.start().cast()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let held = self.held.take();
        // On a lost device there is nothing to free.
        let _ = self.context.within(|| {
            drop(held);
            Ok(())
        });
    }
}
