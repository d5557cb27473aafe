//! A fixed piece of fp32 memory that tasks and messages in flight share range by range.
//!
//! While an exchange reads or sums into one bucket of the gradients, the backward pass writes others. The program's order
//! keeps the ranges apart; the arena only hands out pointers that stay valid and never borrow the whole.

use std::cell::UnsafeCell;
use std::ops::Range;

use crate::transport::{Region, RegionMut};

/// Memory of a fixed length that is never moved.
pub struct Arena {
    cells: Box<[UnsafeCell<f32>]>,
}

impl Arena {
    /// An arena that holds `values`.
    pub fn new(values: Vec<f32>) -> Arena {
        Arena { cells: values.into_iter().map(UnsafeCell::new).collect() }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn pointer(&self, range: &Range<usize>) -> *mut f32 {
        assert!(range.start <= range.end && range.end <= self.cells.len(), "range of an arena");
        self.cells[range.start..range.end].as_ptr().cast_mut().cast::<f32>()
    }

    /// A range to read.
    ///
    /// # Safety
    /// Nobody writes to the range while the slice lives.
    pub unsafe fn slice(&self, range: Range<usize>) -> &[f32] {
        let pointer = self.pointer(&range);
        // SAFETY: in bounds (checked above), initialised, and unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(pointer, range.len()) }
    }

    /// A range to write.
    ///
    /// # Safety
    /// Nobody else reads or writes the range while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "ranges are kept apart by the program's order, as the caller promises")]
    pub unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [f32] {
        let pointer = self.pointer(&range);
        // SAFETY: in bounds (checked above), initialised, and exclusive by the caller's promise; cells allow mutation.
        unsafe { std::slice::from_raw_parts_mut(pointer, range.len()) }
    }

    /// A range for messages.
    pub fn region(&self, range: Range<usize>) -> RegionMut {
        let length = range.len();
        // SAFETY: in bounds; who posts messages keeps the arena alive until they are done.
        unsafe { RegionMut::new(self.pointer(&range), length) }
    }

    /// A range for messages that only read.
    pub fn region_to_read(&self, range: Range<usize>) -> Region {
        let length = range.len();
        // SAFETY: as above.
        unsafe { Region::new(self.pointer(&range), length) }
    }

    /// A copy of everything.
    ///
    /// # Safety
    /// Nobody writes meanwhile.
    pub unsafe fn to_vec(&self) -> Vec<f32> {
        // SAFETY: by the caller's promise.
        unsafe { self.slice(0..self.len()) }.to_vec()
    }
}
