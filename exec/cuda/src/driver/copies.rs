//! Copies on a stream: to a device, from it, on it and between two.
//!
//! cudarc's safe copies take typed slices of its own memory; commands and messages have addresses and bytes.

use cudarc::driver::result::{memcpy_dtod_async, memcpy_peer_async, memset_d8_async};
use cudarc::driver::sys::{cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};
use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::memory::DeviceMemory;
use super::status::{Status, refused};
use super::stream::Stream;

impl Stream {
    /// `bytes` bytes from the host's `from` to the device's `to`, in the stream's order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// Both have as many bytes and stay until the stream has come to it; nobody writes `from` before.
    pub unsafe fn upload(&self, to: u64, from: *const u8, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller says.
        some(bytes, "cuMemcpyHtoDAsync", |bytes| unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.raw()) })
    }

    /// `bytes` bytes from the device's `from` to the host's `to`, in the stream's order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// Both have as many bytes and stay until the stream has come to it; nobody reads or writes `to` before.
    pub unsafe fn download(&self, to: *mut u8, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller says.
        some(bytes, "cuMemcpyDtoHAsync", |bytes| unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.raw()) })
    }

    /// `bytes` bytes from `from` to `to`, both on the device, in the stream's order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// Both have as many bytes, stay until the stream has come to it, and do not overlap.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller says.
        some(bytes, "cuMemcpyDtoDAsync", |bytes| unsafe { memcpy_dtod_async(to, from, bytes, self.raw()) })
    }

    /// `bytes` bytes from `from` on this stream's device to `to` on `there`'s, in this stream's order; past the host where
    /// the devices reach each other ([`Context::reach`]).
    ///
    /// # Errors
    /// A device is lost.
    ///
    /// # Safety
    /// As [`Stream::copy`].
    pub unsafe fn send(&self, there: &Context, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller says.
        unsafe { self.across((there, to), (self.context(), from), bytes) }
    }

    /// `bytes` bytes from `from` on `there`'s device to `to` on this stream's, in this stream's order; past the host as with
    /// [`Stream::send`].
    ///
    /// # Errors
    /// A device is lost.
    ///
    /// # Safety
    /// As [`Stream::copy`].
    pub unsafe fn fetch(&self, to: u64, there: &Context, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller says.
        unsafe { self.across((self.context(), to), (there, from), bytes) }
    }

    /// # Safety
    /// As [`Stream::copy`].
    unsafe fn across(
        &self,
        (there, to): (&Context, u64),
        (here, from): (&Context, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let (there, here) = (there.raw(), here.raw());
        if here == there {
            // SAFETY: as the caller says.
            return unsafe { self.copy(to, from, bytes) };
        }
        // SAFETY: as the caller says; both contexts are held.
        some(bytes, "cuMemcpyPeerAsync", |bytes| unsafe { memcpy_peer_async(there, to, here, from, bytes, self.raw()) })
    }

    /// `byte` in `bytes` bytes from `to` on, in the stream's order.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// It has as many bytes and stays until the stream has come to it.
    pub unsafe fn fill(&self, to: u64, byte: u8, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as the caller says.
        some(bytes, "cuMemsetD8Async", |bytes| unsafe { memset_d8_async(to, byte, bytes, self.raw()) })
    }

    /// Writes `from` into `memory`, `offset` bytes behind its beginning, and waits until it is there.
    ///
    /// # Errors
    /// It does not lie inside; the device is lost.
    pub fn write(&self, memory: &DeviceMemory, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let bytes = from.len() as u64;
        inside(memory, offset, bytes)?;
        // SAFETY: it lies inside, and both stay borrowed until it is done.
        unsafe { self.upload(memory.address() + offset, from.as_ptr(), bytes) }?;
        self.synchronize()
    }

    /// Reads `to` out of `memory`, `offset` bytes behind its beginning, when the stream has come to it.
    ///
    /// # Errors
    /// It does not lie inside; the device is lost.
    pub fn read(&self, memory: &DeviceMemory, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = to.len() as u64;
        inside(memory, offset, bytes)?;
        // SAFETY: it lies inside, and both stay borrowed until it is done.
        unsafe { self.download(to.as_mut_ptr(), memory.address() + offset, bytes) }?;
        self.synchronize()
    }
}

fn inside(memory: &DeviceMemory, offset: u64, bytes: u64) -> Result<(), DeviceError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= memory.bytes() => Ok(()),
        _ => Err(refused("a copy", format!("{bytes} bytes from {offset} on do not lie in {}", memory.bytes()))),
    }
}

/// A call for some bytes; what is for none is not made.
fn some<S: Status<Value = ()>>(bytes: u64, name: &str, call: impl FnOnce(usize) -> S) -> Result<(), DeviceError> {
    if bytes == 0 { Ok(()) } else { call(bytes as usize).of(name) }
}
