//! Holds fixed memory of numbers of one format, which tasks and messages in flight share range by range.
//!
//! While an exchange reads or sums into one bucket of the gradients, the backward pass writes others. The program's
//! order keeps the ranges apart; the arena only hands out pointers that stay valid and never borrows the whole.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;

use lockstep_topology::Dtype;

use crate::bf16::{narrow, widen};
use crate::number::Number;
use crate::region::{Region, RegionMut};

/// Memory of a fixed length that is never moved: bytes, aligned for the numbers of its format.
pub struct Arena {
    start: *mut u8,
    elements: usize,
    dtype: Dtype,
    /// The owner, which frees it.
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: the owner may be sent, and the memory is used through the arena alone.
unsafe impl Send for Arena {}

// SAFETY: shared access is by `slice` and `slice_mut`, whose callers promise that accesses do not conflict.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena that holds `values`.
    pub fn new<T: Number>(mut values: Vec<T>) -> Arena {
        let (start, elements) = (values.as_mut_ptr(), values.len());
        // SAFETY: a vector's elements stay where they are when it is moved, and this one is only kept.
        unsafe { Arena::over(start, elements, Box::new(values)) }
    }

    /// `elements` zeros of `dtype`, aligned to a page.
    pub fn of_pages(elements: usize, dtype: Dtype) -> Arena {
        /// 4 KiB.
        #[derive(Clone)]
        #[repr(C, align(4096))]
        struct Page([u8; 4096]);
        let count = dtype.bytes(elements as u64).div_ceil(size_of::<Page>() as u64) as usize;
        let mut pages = vec![Page([0; 4096]); count];
        let start = pages.as_mut_ptr().cast();
        // Pages are arrays without gaps, which do not move with the vector, and the vector is only kept.
        Arena { start, elements, dtype, _keeper: Box::new(pages) }
    }

    /// An arena over memory that `keeper` owns.
    ///
    /// # Safety
    /// `start` points to `elements` initialised elements that do not move until the keeper is dropped and are accessed
    /// through the arena alone.
    pub unsafe fn over<T: Number>(start: *mut T, elements: usize, keeper: Box<dyn Any + Send + Sync>) -> Arena {
        Arena { start: start.cast(), elements, dtype: T::DTYPE, _keeper: keeper }
    }

    /// Its address in bytes.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    /// Its first byte, for a device that copies from it.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// The format of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pointer(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len(), "range of an arena");
        // SAFETY: the range lies inside, as just checked.
        unsafe { self.start.add(self.dtype.bytes(range.start as u64) as usize) }
    }

    fn numbers<T: Number>(&self, range: &Range<usize>) -> *mut T {
        assert!(T::DTYPE == self.dtype, "{} in an arena of {}", T::DTYPE, self.dtype);
        self.pointer(range).cast()
    }

    /// A slice to read.
    ///
    /// # Panics
    /// When the range does not lie inside, or the arena has another format.
    ///
    /// # Safety
    /// The range is not written while the slice lives.
    pub unsafe fn slice<T: Number>(&self, range: Range<usize>) -> &[T] {
        let pointer = self.numbers(&range);
        // SAFETY: in bounds and of this type (checked above), initialised, and unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(pointer, range.len()) }
    }

    /// A slice to write.
    ///
    /// # Panics
    /// As [`Arena::slice`].
    ///
    /// # Safety
    /// The range is not otherwise read or written while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "ranges are kept apart by the program's order, as the caller promises")]
    pub unsafe fn slice_mut<T: Number>(&self, range: Range<usize>) -> &mut [T] {
        let pointer = self.numbers(&range);
        // SAFETY: in bounds and of this type (checked above), initialised, and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(pointer, range.len()) }
    }

    /// The bytes of a range, to read.
    ///
    /// # Panics
    /// When the range does not lie inside.
    ///
    /// # Safety
    /// As [`Arena::slice`].
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let length = self.dtype.bytes(range.len() as u64) as usize;
        // SAFETY: in bounds, initialised, and unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer(&range), length) }
    }

    /// The bytes of a range, to write.
    ///
    /// # Panics
    /// As [`Arena::bytes`].
    ///
    /// # Safety
    /// As [`Arena::slice_mut`].
    #[expect(clippy::mut_from_ref, reason = "as for `slice_mut`")]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        let length = self.dtype.bytes(range.len() as u64) as usize;
        // SAFETY: in bounds, initialised, and exclusive by the caller's promise; any bytes are numbers.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(&range), length) }
    }

    /// A region that messages read or write.
    pub fn region(&self, range: Range<usize>) -> RegionMut {
        let length = range.len();
        // SAFETY: in bounds; the caller that posts messages keeps the arena alive until they are done.
        unsafe { RegionMut::of(self.pointer(&range), length, self.dtype) }
    }

    /// A region that messages only read.
    pub fn region_to_read(&self, range: Range<usize>) -> Region {
        let length = range.len();
        // SAFETY: as above.
        unsafe { Region::of(self.pointer(&range), length, self.dtype) }
    }

    /// The numbers of a range in fp32: those of the arena themselves, or a copy of narrower ones.
    ///
    /// # Panics
    /// When the range does not lie inside, or the arena has neither fp32 nor bf16.
    ///
    /// # Safety
    /// As [`Arena::slice`].
    pub(crate) unsafe fn widened(&self, range: Range<usize>) -> Cow<'_, [f32]> {
        // SAFETY: by the caller's promise.
        unsafe {
            match self.dtype {
                Dtype::Bf16 => {
                    let mut values = vec![0.0; range.len()];
                    widen(self.slice(range), &mut values);
                    Cow::Owned(values)
                }
                _ => Cow::Borrowed(self.slice(range)),
            }
        }
    }

    /// Writes numbers from element `start` on, rounded to the arena's format.
    ///
    /// # Panics
    /// As [`Arena::widened`].
    ///
    /// # Safety
    /// As [`Arena::slice_mut`].
    pub(crate) unsafe fn write(&self, start: usize, values: &[f32]) {
        let range = start..start + values.len();
        // SAFETY: by the caller's promise.
        unsafe {
            match self.dtype {
                Dtype::Bf16 => narrow(values, self.slice_mut(range)),
                _ => self.slice_mut(range).copy_from_slice(values),
            }
        }
    }

    /// A copy of all elements.
    ///
    /// # Panics
    /// When the arena has another format.
    ///
    /// # Safety
    /// The arena is not written meanwhile.
    pub unsafe fn to_vec<T: Number>(&self) -> Vec<T> {
        // SAFETY: by the caller's promise.
        unsafe { self.slice(0..self.len()) }.to_vec()
    }
}
