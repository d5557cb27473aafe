//! `BatchMemory`: host memory of a batch that threads prepare, from which a device may copy by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_topology::Dtype;

use crate::arena::Arena;
use crate::device::DeviceError;

/// Memory that threads fill with a batch: ordinary, or page-locked, so that a GPU copies from it without help of the
/// host.
pub struct BatchMemory {
    arena: Arena,
    /// Whether a device has yet to copy from it.
    is_lent: AtomicBool,
}

/// Allocates memory for a number of bytes.
pub(crate) type Allocate<'a> = &'a mut dyn FnMut(usize) -> Result<BatchMemory, DeviceError>;

impl BatchMemory {
    /// Over `arena`, of bytes.
    pub fn new(arena: Arena) -> BatchMemory {
        BatchMemory { arena, is_lent: AtomicBool::new(false) }
    }

    /// Ordinary memory of whole pages for `bytes` bytes.
    pub fn of_pages(bytes: usize) -> BatchMemory {
        BatchMemory::new(Arena::of_pages(bytes, Dtype::U8))
    }

    /// The bytes, aligned for any numbers.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Keeps it from being filled again until [`BatchMemory::give_back`]: a device has begun to copy from it.
    pub fn lend(&self) {
        self.is_lent.store(true, Ordering::Release);
    }

    /// The device has copied all of it.
    pub fn give_back(&self) {
        self.is_lent.store(false, Ordering::Release);
    }

    /// Memory of `free` that no device copies from and that has `bytes` bytes, else new memory.
    ///
    /// # Errors
    /// Those of `allocate`.
    pub(super) fn of(
        free: &mut Vec<Arc<BatchMemory>>,
        bytes: usize,
        allocate: Allocate<'_>,
    ) -> Result<Arc<BatchMemory>, DeviceError> {
        let is_fit = |memory: &Arc<BatchMemory>| !memory.is_lent.load(Ordering::Acquire) && memory.arena.len() >= bytes;
        match free.iter().position(is_fit) {
            Some(at) => Ok(free.swap_remove(at)),
            None => Ok(Arc::new(allocate(bytes)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: of memory for 3, 5 (lent) and 5 bytes, a batch of 4 gets the third; the next one waits for no device
    /// and gets new memory; the one after that gets the second, which has been given back.
    #[test]
    fn memory_that_a_device_copies_from_is_not_filled_again() {
        let mut free: Vec<_> = [3, 5, 5].map(|elements| Arc::new(BatchMemory::of_pages(elements))).into();
        let [_, second, third] = [0, 1, 2].map(|at| free[at].clone());
        second.lend();
        let mut allocated = 0;
        let mut next = || {
            let mut allocate = |elements| {
                allocated += 1;
                Ok(BatchMemory::of_pages(elements))
            };
            BatchMemory::of(&mut free, 4, &mut allocate).expect("memory")
        };
        assert!(Arc::ptr_eq(&next(), &third));
        let new = next();
        assert!(!Arc::ptr_eq(&new, &second) && new.arena().len() == 4);
        second.give_back();
        assert!(Arc::ptr_eq(&next(), &second));
        assert_eq!(allocated, 1);
    }
}
