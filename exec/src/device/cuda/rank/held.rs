//! The buffers of a rank on a device, with the host memory in which messages read and write them.

use std::ops::Range;
use std::sync::Arc;

use super::super::driver::{Context, DeviceMemory, Fill, PinnedMemory};
use super::super::{View, ViewMut};
use crate::arena::Arena;
use crate::device::DeviceError;

/// Bytes of an fp32 element.
pub(super) const ELEMENT: u64 = 4;

/// A buffer on the device.
pub(super) struct Held {
    memory: DeviceMemory,
    elements: usize,
    /// Page-locked, and empty where no exchange touches the buffer.
    host: Arena,
}

impl Held {
    /// Zeros for `what`; `exchanged`: messages read and write it.
    pub(super) fn new(
        context: &Arc<Context>,
        what: &str,
        elements: usize,
        exchanged: bool,
    ) -> Result<Held, DeviceError> {
        let bytes = elements as u64 * ELEMENT;
        let memory = DeviceMemory::new(context, what, bytes, Fill::Zeros)?;
        let host = if exchanged {
            let pinned = PinnedMemory::new(context, bytes)?;
            // SAFETY: the memory has as many elements, all zero, stays where it is, and belongs to the arena from here on.
            unsafe { Arena::over(pinned.floats(), elements, Box::new(pinned)) }
        } else {
            Arena::new(Vec::new())
        };
        Ok(Held { memory, elements, host })
    }

    /// The device's memory.
    pub(super) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Where messages read and write it.
    pub(super) fn host(&self) -> &Arena {
        &self.host
    }

    /// Where a range is: on the device, on the host, and its bytes.
    pub(super) fn both(&self, range: &Range<usize>) -> (u64, *mut u8, u64) {
        // SAFETY: the pointer is only handed to copies of the range, which the program's order keeps apart from messages.
        let host = unsafe { self.host.slice_mut(range.clone()) }.as_mut_ptr().cast();
        (self.memory.address() + range.start as u64 * ELEMENT, host, range.len() as u64 * ELEMENT)
    }

    /// A range to read.
    pub(super) fn view(&self, range: &Range<usize>) -> View<f32> {
        self.view_mut(range).view()
    }

    /// A range to write.
    pub(super) fn view_mut(&self, range: &Range<usize>) -> ViewMut<f32> {
        ViewMut::new(self.memory.address(), self.elements as u64).part(range.start as u64..range.end as u64)
    }

    /// All of it.
    pub(super) fn all(&self) -> ViewMut<f32> {
        ViewMut::new(self.memory.address(), self.elements as u64)
    }
}
