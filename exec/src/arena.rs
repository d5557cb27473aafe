//! Holds fixed fp32 memory that tasks and messages in flight share range by range.
//!
//! While an exchange reads or sums into one bucket of the gradients, the backward pass writes others. The program's
//! order keeps the ranges apart; the arena only hands out pointers that stay valid and never borrows the whole.

use std::any::Any;
use std::ops::Range;

use crate::region::{Region, RegionMut};

/// Memory of a fixed length that is never moved.
pub struct Arena {
    start: *mut f32,
    elements: usize,
    /// The owner, which frees it.
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: the owner may be sent, and the memory is used through the arena alone.
unsafe impl Send for Arena {}

// SAFETY: shared access is by `slice` and `slice_mut`, whose callers promise that accesses do not conflict.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena that holds `values`.
    pub fn new(mut values: Vec<f32>) -> Arena {
        let (start, elements) = (values.as_mut_ptr(), values.len());
        // SAFETY: a vector's elements stay where they are when it is moved, and this one is only kept.
        unsafe { Arena::over(start, elements, Box::new(values)) }
    }

    /// `elements` zeros, aligned to a page.
    pub fn of_pages(elements: usize) -> Arena {
        /// 4 KiB.
        #[derive(Clone)]
        #[repr(C, align(4096))]
        struct Page([f32; 1024]);
        let mut pages = vec![Page([0.0; 1024]); elements.div_ceil(1024)];
        // SAFETY: pages are arrays without gaps, which do not move with the vector, and the vector is only kept.
        unsafe { Arena::over(pages.as_mut_ptr().cast(), elements, Box::new(pages)) }
    }

    /// An arena over memory that `keeper` owns.
    ///
    /// # Safety
    /// `start` points to `elements` initialised elements that do not move until the keeper is dropped and are accessed
    /// through the arena alone.
    pub unsafe fn over(start: *mut f32, elements: usize, keeper: Box<dyn Any + Send + Sync>) -> Arena {
        Arena { start, elements, _keeper: keeper }
    }

    /// Its address in bytes.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    /// Its first element, for a device that copies from it.
    pub fn start(&self) -> *mut f32 {
        self.start
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pointer(&self, range: &Range<usize>) -> *mut f32 {
        assert!(range.start <= range.end && range.end <= self.len(), "range of an arena");
        // SAFETY: the range lies inside, as just checked.
        unsafe { self.start.add(range.start) }
    }

    /// A slice to read.
    ///
    /// # Safety
    /// The range is not written while the slice lives.
    pub unsafe fn slice(&self, range: Range<usize>) -> &[f32] {
        let pointer = self.pointer(&range);
        // SAFETY: in bounds (checked above), initialised, and unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(pointer, range.len()) }
    }

    /// A slice to write.
    ///
    /// # Safety
    /// The range is not otherwise read or written while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "ranges are kept apart by the program's order, as the caller promises")]
    pub unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [f32] {
        let pointer = self.pointer(&range);
        // SAFETY: in bounds (checked above), initialised, and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(pointer, range.len()) }
    }

    /// A region that messages read or write.
    pub fn region(&self, range: Range<usize>) -> RegionMut {
        let length = range.len();
        // SAFETY: in bounds; the caller that posts messages keeps the arena alive until they are done.
        unsafe { RegionMut::new(self.pointer(&range), length) }
    }

    /// A region that messages only read.
    pub fn region_to_read(&self, range: Range<usize>) -> Region {
        let length = range.len();
        // SAFETY: as above.
        unsafe { Region::new(self.pointer(&range), length) }
    }

    /// A copy of all elements.
    ///
    /// # Safety
    /// The arena is not written meanwhile.
    pub unsafe fn to_vec(&self) -> Vec<f32> {
        // SAFETY: by the caller's promise.
        unsafe { self.slice(0..self.len()) }.to_vec()
    }
}
