//! Memory on a device, and memory of the host that a device copies from and to by itself.

use std::sync::Arc;

use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_PORTABLE, CUresult, cuMemAlloc_v2, cuMemFree_v2, cuMemFreeHost, cuMemHostAlloc, cuMemsetD8Async,
    cuStreamSynchronize,
};
use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::status::{Status, full};

/// What fresh memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    Zeros,
    /// Bytes of which every number is none (a NaN), so that what is read before it was written shows.
    Poison,
}

/// Memory on a device, freed when dropped. Its address is a multiple of 256.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

impl DeviceMemory {
    /// `bytes` bytes for `what`, filled before this returns.
    ///
    /// # Errors
    /// They are not to be had, with what is free; the device is lost.
    pub fn new(context: &Arc<Context>, what: &str, bytes: u64, fill: Fill) -> Result<DeviceMemory, DeviceError> {
        context.within(|| {
            let mut address = 0;
            // The driver gives no memory of no bytes, but an empty tensor has an address too.
            // SAFETY: the address outlives the call.
            match unsafe { cuMemAlloc_v2(&mut address, bytes.max(1) as usize) } {
                CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(full(what, bytes)),
                code => code.of("cuMemAlloc")?,
            }
            let memory = DeviceMemory { context: Arc::clone(context), address, bytes };
            let byte = if fill == Fill::Zeros { 0 } else { 0xff };
            let none = std::ptr::null_mut();
            // SAFETY: the memory has just been given, and has as many bytes.
            unsafe { cuMemsetD8Async(address, byte, bytes as usize, none) }.of("cuMemsetD8Async")?;
            // SAFETY: the default stream always is. Other streams do not wait for it, so this thread does.
            unsafe { cuStreamSynchronize(none) }.of("cuStreamSynchronize")?;
            Ok(memory)
        })
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let address = self.address;
        // SAFETY: nobody else frees it. The driver waits for what still works on it; a lost device has nothing to give back.
        let _ = self.context.within(|| unsafe { cuMemFree_v2(address) }.of("cuMemFree"));
    }
}

/// Memory of the host that stays where it is, so that copies from and to a device run beside the host's work. Its address is
/// a multiple of 4,096 and every context's; freed when dropped.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Arc<Context>,
    start: *mut u8,
    bytes: u64,
}

// SAFETY: it is plain memory, and is reached by its address alone.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// `bytes` zero bytes.
    ///
    /// # Errors
    /// The host has no such memory left, or the device is lost.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<PinnedMemory, DeviceError> {
        let start = context.within(|| {
            let mut start = std::ptr::null_mut();
            // SAFETY: the address outlives the call.
            let code = unsafe { cuMemHostAlloc(&mut start, bytes.max(1) as usize, CU_MEMHOSTALLOC_PORTABLE) };
            match code {
                CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(DeviceError::Refused {
                    call: "cuMemHostAlloc".to_owned(),
                    reason: format!("the host has no {bytes} bytes of page-locked memory left"),
                }),
                code => code.of("cuMemHostAlloc").map(|()| start.cast::<u8>()),
            }
        })?;
        // SAFETY: it has just been given, with as many bytes.
        unsafe { start.write_bytes(0, bytes as usize) };
        Ok(PinnedMemory { context: Arc::clone(context), start, bytes })
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Where it begins, as numbers.
    pub fn floats(&self) -> *mut f32 {
        self.start.cast()
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let start = self.start;
        // SAFETY: nobody else frees it. A lost device has nothing to give back.
        let _ = self.context.within(|| unsafe { cuMemFreeHost(start.cast()) }.of("cuMemFreeHost"));
    }
}
