//! A fixed piece of fp32 memory that tasks and messages in flight share range by range.
//!
//! While an exchange reads or sums into one bucket of the gradients, the backward pass writes others. The program's order
//! keeps the ranges apart; the arena only hands out pointers that stay valid and never borrow the whole.

use std::any::Any;
use std::ops::Range;

use crate::region::{Region, RegionMut};

/// Memory of a fixed length that is never moved.
pub struct Arena {
    start: *mut f32,
    elements: usize,
    /// Who frees it.
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: who keeps the memory may be sent, and the memory is used through the arena alone.
unsafe impl Send for Arena {}

// SAFETY: shared access is by `slice` and `slice_mut`, whose callers promise that nobody is in each other's way.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena that holds `values`.
    pub fn new(mut values: Vec<f32>) -> Arena {
        let (start, elements) = (values.as_mut_ptr(), values.len());
        // SAFETY: a vector's elements stay where they are when it is moved, and this one is only kept.
        unsafe { Arena::over(start, elements, Box::new(values)) }
    }

    /// Zeros, this many `elements`, from the beginning of a page on.
    pub fn of_pages(elements: usize) -> Arena {
        /// 4 KiB.
        #[derive(Clone)]
        #[repr(C, align(4096))]
        struct Page([f32; 1024]);
        let mut pages = vec![Page([0.0; 1024]); elements.div_ceil(1024)];
        // SAFETY: pages are arrays without gaps, which stay where they are when the vector is moved, and it is only kept.
        unsafe { Arena::over(pages.as_mut_ptr().cast(), elements, Box::new(pages)) }
    }

    /// The memory of `keeper`.
    ///
    /// # Safety
    /// There are as many initialised elements, they stay where they are until the keeper is dropped, and nobody uses them but
    /// through the arena.
    pub unsafe fn over(start: *mut f32, elements: usize, keeper: Box<dyn Any + Send + Sync>) -> Arena {
        Arena { start, elements, _keeper: keeper }
    }

    /// Where it begins, in bytes.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pointer(&self, range: &Range<usize>) -> *mut f32 {
        assert!(range.start <= range.end && range.end <= self.len(), "range of an arena");
        // SAFETY: the range lies inside, as just checked.
        unsafe { self.start.add(range.start) }
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
        // SAFETY: in bounds (checked above), initialised, and exclusive by the caller's promise.
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
