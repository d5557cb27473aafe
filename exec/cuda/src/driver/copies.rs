//! Copies on a stream: to a device, from it, within it and between two.
//!
//! cudarc's safe copies take typed slices of its own memory; commands and messages have addresses and bytes.

use cudarc::driver::result::{memcpy_dtod_async, memcpy_peer_async, memset_d8_async};
use cudarc::driver::sys::{cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};
use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::memory::GpuMemory;
use super::status::{Status, refused};
use super::stream::GpuStream;

impl GpuStream {
    /// Copies `bytes` bytes from host address `from` to device address `to`, in stream order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// Both have that many bytes and stay valid until the copy is done; `from` is not written before.
    pub unsafe fn upload(&self, to: u64, from: *const u8, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        some(bytes, "cuMemcpyHtoDAsync", |bytes| unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.raw()) })
    }

    /// Copies `bytes` bytes from device address `from` to host address `to`, in stream order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// Both have that many bytes and stay valid until the copy is done; `to` is not accessed before.
    pub unsafe fn download(&self, to: *mut u8, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        some(bytes, "cuMemcpyDtoHAsync", |bytes| unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.raw()) })
    }

    /// Copies `bytes` bytes from `from` to `to`, both on the device, in stream order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// Both have that many bytes, stay valid until the copy is done, and do not overlap.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        some(bytes, "cuMemcpyDtoDAsync", |bytes| unsafe { memcpy_dtod_async(to, from, bytes, self.raw()) })
    }

    /// Copies `bytes` bytes from `from` on this stream's device to `to` on `there`'s, in this stream's order; without
    /// passing through the host where the devices can access each other ([`Context::reach`]).
    ///
    /// # Errors
    /// A device is lost.
    ///
    /// # Safety
    /// As [`GpuStream::copy`].
    pub unsafe fn send(&self, there: &Context, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        unsafe { self.across((there, to), (self.context(), from), bytes) }
    }

    /// Copies `bytes` bytes from `from` on `there`'s device to `to` on this stream's, in this stream's order; the path
    /// is as in [`GpuStream::send`].
    ///
    /// # Errors
    /// A device is lost.
    ///
    /// # Safety
    /// As [`GpuStream::copy`].
    pub unsafe fn fetch(&self, to: u64, there: &Context, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        unsafe { self.across((self.context(), to), (there, from), bytes) }
    }

    /// # Safety
    /// As [`GpuStream::copy`].
    unsafe fn across(
        &self,
        (there, to): (&Context, u64),
        (here, from): (&Context, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let (there, here) = (there.raw(), here.raw());
        if here == there {
            // SAFETY: as the caller promises.
            return unsafe { self.copy(to, from, bytes) };
        }
        // SAFETY: as the caller promises; both contexts are retained.
        some(bytes, "cuMemcpyPeerAsync", |bytes| unsafe { memcpy_peer_async(there, to, here, from, bytes, self.raw()) })
    }

    /// Sets `bytes` bytes from `to` on to `byte`, in stream order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// It has that many bytes and stays valid until this is done.
    pub unsafe fn fill(&self, to: u64, byte: u8, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        some(bytes, "cuMemsetD8Async", |bytes| unsafe { memset_d8_async(to, byte, bytes, self.raw()) })
    }

    /// Writes `from` into `memory` at byte `offset`, and waits until that is done.
    ///
    /// # Errors
    /// The range exceeds the memory; the device is lost.
    pub fn write(&self, memory: &GpuMemory, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let bytes = from.len() as u64;
        inside(memory, offset, bytes)?;
        // SAFETY: the range is inside, and both stay borrowed until it is done.
        unsafe { self.upload(memory.address() + offset, from.as_ptr(), bytes) }?;
        self.synchronize()
    }

    /// Reads `to` from `memory` at byte `offset`, after all earlier work on the stream.
    ///
    /// # Errors
    /// The range exceeds the memory; the device is lost.
    pub fn read(&self, memory: &GpuMemory, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = to.len() as u64;
        inside(memory, offset, bytes)?;
        // SAFETY: the range is inside, and both stay borrowed until it is done.
        unsafe { self.download(to.as_mut_ptr(), memory.address() + offset, bytes) }?;
        self.synchronize()
    }
}

fn inside(memory: &GpuMemory, offset: u64, bytes: u64) -> Result<(), DeviceError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= memory.bytes() => Ok(()),
        _ => Err(refused("a copy", format!("{bytes} bytes from {offset} on do not lie in {}", memory.bytes()))),
    }
}

/// Makes a call for some bytes; skips it for zero bytes.
fn some<S: Status<Value = ()>>(bytes: u64, name: &str, call: impl FnOnce(usize) -> S) -> Result<(), DeviceError> {
    if bytes == 0 { Ok(()) } else { call(bytes as usize).of(name) }
}
