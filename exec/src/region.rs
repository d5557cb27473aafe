//! Describes memory that a transport reads or writes while its owner does other work: a pointer, a length, a format, and
//! one promise.
//!
//! A message in flight outlives the call that posted it, so slices cannot describe it. The promise is made once, where
//! a region is created (`unsafe`); every transport call on a region is then safe.

use std::any::Any;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

use lockstep_topology::Dtype;

use crate::bf16::add_narrow_into;
use crate::device_error::DeviceError;
use crate::number::Number;
use crate::simd::add_into;

/// A device as the endpoint of messages in its memory: the receiver's device copies or sums directly from the sender's.
pub trait Port: Any + Send + Sync {
    /// Makes its device current on this thread, for libraries that take device addresses.
    ///
    /// # Errors
    /// The device is lost.
    fn bind(&self) -> Result<(), DeviceError>;

    /// Counts a message to this device's memory.
    fn count(&self);

    /// Copies numbers at `from` on the sender's device to `to` on this one, or adds them there as the host would: each
    /// sum is rounded once. Returns when done, so the sender's memory is free again.
    ///
    /// # Errors
    /// A device is lost, or does not add numbers of this format.
    ///
    /// # Safety
    /// Both addresses have that many elements, those at `from` are not written meanwhile, those at `to` are not
    /// otherwise accessed, and this device can access the sender's memory.
    unsafe fn take(
        &self,
        to: u64,
        sender: (&dyn Port, u64),
        numbers: (usize, Dtype),
        how: Combine,
    ) -> Result<(), DeviceError>;
}

/// Elements that may be read until the transport is done with them.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    start: *const u8,
    elements: usize,
    dtype: Dtype,
    /// The device that reads it; `None` for host memory.
    port: Option<NonNull<dyn Port>>,
}

/// Elements that may be read and written until the transport is done with them.
#[derive(Debug, Clone, Copy)]
pub struct RegionMut(Region);

// SAFETY: a region is only an address; the promise made to `Region::new` says when the memory may be accessed.
unsafe impl Send for Region {}

impl Deref for RegionMut {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

/// What a receive does with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// The message overwrites the region.
    Copy,
    /// The message is added to the region, element by element.
    Sum,
}

impl Region {
    /// The `elements` values that start at `start`.
    ///
    /// # Safety
    /// Until each message that uses the region is done, or the transport is dropped, the memory stays allocated and the
    /// elements that the message carries are not written.
    pub unsafe fn new<T: Number>(start: *const T, elements: usize) -> Region {
        Region { start: start.cast(), elements, dtype: T::DTYPE, port: None }
    }

    /// The `elements` numbers of `dtype` whose first byte is at `start`.
    ///
    /// # Safety
    /// As [`Region::new`].
    pub(crate) unsafe fn of(start: *const u8, elements: usize, dtype: Dtype) -> Region {
        Region { start, elements, dtype, port: None }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// The format of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.dtype.bytes(self.elements as u64) as usize
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The elements in `range`.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub fn part(&self, range: Range<usize>) -> Region {
        assert!(range.start <= range.end && range.end <= self.elements, "{range:?} of {} elements", self.elements);
        // A device address is not memory of this program, hence `wrapping_add`.
        let start = self.start.wrapping_add(self.dtype.bytes(range.start as u64) as usize);
        Region { start, elements: range.len(), ..*self }
    }

    #[cfg(feature = "mpi")]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// If the elements are on a device, makes it current on this thread, for libraries that take device addresses.
    ///
    /// # Errors
    /// The device is lost.
    #[cfg(feature = "mpi")]
    pub(crate) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: a port lives as long as its regions.
        self.port.map_or(Ok(()), |port| unsafe { port.as_ref() }.bind())
    }
}

impl RegionMut {
    /// The `elements` values that start at `start`.
    ///
    /// # Safety
    /// Until each message that uses the region is done, or the transport is dropped, the memory stays allocated, the
    /// elements that the message fills are not otherwise read or written, and those that a message carries are not
    /// written.
    pub unsafe fn new<T: Number>(start: *mut T, elements: usize) -> RegionMut {
        // SAFETY: as the caller promises.
        RegionMut(unsafe { Region::new(start, elements) })
    }

    /// The `elements` numbers of `dtype` whose first byte is at `start`.
    ///
    /// # Safety
    /// As [`RegionMut::new`].
    pub(crate) unsafe fn of(start: *mut u8, elements: usize, dtype: Dtype) -> RegionMut {
        RegionMut(Region { start, elements, dtype, port: None })
    }

    /// The `elements` numbers of `dtype` at `address` on a device. Messages between ranks of this process use its port; MPI takes
    /// the address itself.
    ///
    /// # Safety
    /// As [`RegionMut::new`], for the port too. Other work of the device on these elements is done before a message is
    /// posted and starts after it is complete.
    pub unsafe fn on(port: NonNull<dyn Port>, address: u64, elements: usize, dtype: Dtype) -> RegionMut {
        RegionMut(Region { start: address as *const u8, elements, dtype, port: Some(port) })
    }

    /// An empty region.
    pub fn empty() -> RegionMut {
        let start = NonNull::<f32>::dangling().as_ptr();
        RegionMut(Region { start: start.cast(), elements: 0, dtype: Dtype::F32, port: None })
    }

    /// The elements in `range`.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub fn part(&self, range: Range<usize>) -> RegionMut {
        RegionMut(self.0.part(range))
    }

    /// The same elements, read-only.
    pub fn read(&self) -> Region {
        self.0
    }

    #[cfg(feature = "mpi")]
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.start.cast_mut()
    }

    /// Counts a message into this region, if it is on a device.
    pub(crate) fn count(&self) {
        if let Some(port) = self.port {
            // SAFETY: a port lives as long as its regions.
            unsafe { port.as_ref() }.count();
        }
    }

    /// As [`RegionMut::combine`], for regions on the host or on devices.
    ///
    /// # Errors
    /// Device errors. Messages cannot go between a device and the host.
    ///
    /// # Panics
    /// When the lengths or formats differ, or the host is to add numbers that it does not add.
    pub(crate) fn take(&self, from: Region, how: Combine) -> Result<(), DeviceError> {
        self.check(&from);
        match (self.port, from.port) {
            (None, None) => {
                self.combine(from, how);
                Ok(())
            }
            (Some(port), Some(sender)) => {
                let (to, at) = (self.start as u64, from.start as u64);
                // SAFETY: the promise of `on`, ports that live as long as their regions, and that only ranks which reach each
                // other post such messages.
                unsafe { port.as_ref().take(to, (sender.as_ref(), at), (self.elements, self.dtype), how) }
            }
            _ => {
                let reason = "one side of it lies on a device, the other on the host".to_owned();
                Err(DeviceError::Refused { call: "a message".to_owned(), reason })
            }
        }
    }

    fn check(&self, from: &Region) {
        let both = [(self.elements, self.dtype), (from.elements, from.dtype)];
        assert_eq!(both[0], both[1], "a message and its receive differ in length or format");
    }

    /// Copies or adds `from` into these elements, in one pass over both; both are in host memory. The host adds fp32, and
    /// bf16 with each sum rounded.
    ///
    /// # Panics
    /// When the lengths or formats differ, or it is to add numbers of another format.
    pub(crate) fn combine(&self, from: Region, how: Combine) {
        self.check(&from);
        assert!(self.port.is_none() && from.port.is_none(), "the host reaches its own memory alone");
        match how {
            // SAFETY: both regions are allocated and ours for this message (the promise of `new`); `copy` allows the
            // overlap that a rank's message to itself may have.
            Combine::Copy => unsafe { std::ptr::copy(from.start, self.start.cast_mut(), self.bytes()) },
            // SAFETY: both hold numbers of this format, on the host, as just checked.
            Combine::Sum => unsafe {
                match self.dtype {
                    Dtype::F32 => self.add(from, add_into),
                    Dtype::Bf16 => self.add(from, add_narrow_into),
                    other => panic!("the host adds fp32 and bf16, not {other}"),
                }
            },
        }
    }

    /// Adds the numbers of `from` to these as `sum` does.
    ///
    /// # Safety
    /// Both regions are in host memory and have numbers of this type.
    unsafe fn add<T: Number>(&self, from: Region, sum: impl Fn(&mut [T], &[T])) {
        // SAFETY: of this type, as the caller promises; by the promise of `new`, `from` is not written and `self` is not
        // otherwise accessed meanwhile.
        let (into, from) = unsafe {
            let into = std::slice::from_raw_parts_mut(self.start.cast_mut().cast(), self.elements);
            (into, std::slice::from_raw_parts(from.start.cast(), from.elements))
        };
        sum(into, from);
    }
}
