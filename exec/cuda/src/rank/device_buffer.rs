//! Holds a rank's buffers on a device, with the host memory in which messages read and write them.

use std::ops::Range;
use std::sync::Arc;

use lockstep_exec::Arena;
use lockstep_exec::device::DeviceError;
use lockstep_topology::Dtype;

use crate::driver::{Context, Fill, GpuMemory, PinnedMemory};
use crate::{View, ViewMut};

/// A buffer on the device.
pub(super) struct DeviceBuffer {
    memory: GpuMemory,
    elements: usize,
    dtype: Dtype,
    /// Page-locked, allocated when messages first use it: messages between GPUs with peer access never do.
    host: Option<Arena>,
}

impl DeviceBuffer {
    /// A buffer of zeros for `what`.
    pub(super) fn new(
        context: &Arc<Context>,
        what: &str,
        (elements, dtype): (usize, Dtype),
    ) -> Result<DeviceBuffer, DeviceError> {
        let memory = GpuMemory::new(context, what, dtype.bytes(elements as u64), Fill::Zeros)?;
        Ok(DeviceBuffer { memory, elements, dtype, host: None })
    }

    /// The device's memory.
    pub(super) fn memory(&self) -> &GpuMemory {
        &self.memory
    }

    /// The format of its numbers.
    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The host memory in which messages read and write it.
    pub(super) fn host(&mut self) -> Result<&Arena, DeviceError> {
        let host = match self.host.take() {
            Some(host) => host,
            None => {
                let pinned = PinnedMemory::new(self.memory.context(), self.memory.bytes())?;
                // SAFETY: the memory has that many elements, all zero, is never moved, and belongs to the arena from
                // here on.
                unsafe { Arena::over(pinned.floats(), self.elements, Box::new(pinned)) }
            }
        };
        Ok(self.host.insert(host))
    }

    /// A range's address on the device and on the host, and its bytes.
    pub(super) fn both(&mut self, range: &Range<usize>) -> Result<(u64, *mut u8, u64), DeviceError> {
        let device = self.memory.address() + self.dtype.bytes(range.start as u64);
        // SAFETY: the pointer is only passed to copies of the range, which the program's order separates from messages.
        let host = unsafe { self.host()?.slice_mut::<f32>(range.clone()) }.as_mut_ptr().cast();
        Ok((device, host, self.dtype.bytes(range.len() as u64)))
    }

    /// A range, read-only.
    pub(super) fn view(&self, range: &Range<usize>) -> View<f32> {
        self.view_mut(range).view()
    }

    /// A range, writable.
    pub(super) fn view_mut(&self, range: &Range<usize>) -> ViewMut<f32> {
        self.all().part(range.start as u64..range.end as u64)
    }

    /// All of it.
    ///
    /// # Panics
    /// When it is not fp32, the format of the kernels that work on buffers.
    pub(super) fn all(&self) -> ViewMut<f32> {
        assert!(self.dtype == Dtype::F32, "kernels take buffers of fp32, not of {}", self.dtype);
        ViewMut::new(self.memory.address(), self.elements as u64)
    }
}
