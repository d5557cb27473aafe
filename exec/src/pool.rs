//! Pools the activation arenas of a device's learners: taken when a learning task begins, returned after its last
//! backward task.
//!
//! Koliousis et al. 2019, §4.5, share a pool of buffers per operator, since the learners are hardly ever all in the
//! same operator; a buffer is allocated only when none is free. Here the memory plan places all tensors of a learning
//! task in one arena, so the pool holds arenas. The learners of a device are the ranks that run as threads of a
//! process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lockstep_models::memory::Reuse;

use crate::workspace::Workspace;

/// Bytes of a cache line, the alignment of arenas.
const LINE: usize = 64;

/// How the learners of a device get memory for their activations.
#[derive(Debug, Clone, Default)]
pub struct Arenas {
    /// The pool that arenas are taken from.
    pub pool: Pool,
    /// How the memory plan reuses memory.
    pub reuse: Reuse,
    /// Whether dead tensors are overwritten with NaN, so that a wrong plan shows in the weights.
    pub poison: bool,
}

/// Free arenas; clones share the same pool.
#[derive(Debug, Clone, Default)]
pub struct Pool(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    free: Mutex<Vec<Slab>>,
    made: AtomicUsize,
}

/// An arena.
#[derive(Debug)]
pub(crate) struct Slab {
    /// Its bytes, with room before the first that is aligned.
    memory: Vec<u8>,
    start: usize,
    /// Scratch memory of kernels.
    pub(crate) workspace: Workspace,
    /// The tensors of a task in fp32, where the arena has others.
    pub(crate) wide: Workspace,
    /// Its number among all arenas that the pool has made.
    pub(crate) number: usize,
}

impl Slab {
    fn new(bytes: usize, number: usize) -> Slab {
        let memory = vec![0; bytes + LINE - 1];
        let start = memory.as_ptr().align_offset(LINE).min(LINE - 1);
        Slab { memory, start, workspace: Workspace::default(), wide: Workspace::default(), number }
    }

    fn len(&self) -> usize {
        self.memory.len() + 1 - LINE
    }

    /// Its memory, which begins on a cache line.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len()]
    }

    /// The same, writable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.beside_wide().0
    }

    /// Its memory, writable, beside that for tensors of a task in fp32.
    pub(crate) fn beside_wide(&mut self) -> (&mut [u8], &mut Workspace) {
        let end = self.start + self.len();
        (&mut self.memory[self.start..end], &mut self.wide)
    }
}

impl Pool {
    /// An arena of at least `bytes` bytes with arbitrary contents: `preferred`, which may still be in the caches
    /// of the learner's core, else any that is free, else a new one.
    pub(crate) fn take(&self, bytes: usize, preferred: Option<usize>) -> Slab {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |slab: &Slab| slab.len() >= bytes;
        let own = free.iter().position(|slab| fits(slab) && Some(slab.number) == preferred);
        match own.or_else(|| free.iter().rposition(fits)) {
            Some(index) => free.swap_remove(index),
            None => Slab::new(bytes, self.0.made.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Returns an arena.
    pub(crate) fn give(&self, slab: Slab) {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).push(slab);
    }

    /// Returns the memory of free arenas to the system.
    pub(crate) fn clear(&self) {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Number of arenas ever made: the most learning tasks in progress at once.
    pub fn made(&self) -> usize {
        self.0.made.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_made_only_if_none_is_free() {
        let pool = Pool::default();
        let (mut a, b) = (pool.take(100, None), pool.take(100, None));
        assert_eq!((a.number, b.number, pool.made()), (0, 1, 2));
        assert_eq!(a.bytes_mut().len(), 100);
        assert_eq!(a.bytes_mut().as_ptr().align_offset(64), 0);
        pool.give(a);
        pool.give(b);
        // A learner's own before another's, a smaller one rather than a new one, never one that is too small.
        let own = pool.take(100, Some(0));
        let smaller = pool.take(7, Some(5));
        let larger = pool.take(101, Some(0));
        assert_eq!((own.number, smaller.number, larger.number, pool.made()), (0, 1, 2, 3));
        [own, smaller, larger].into_iter().for_each(|slab| pool.give(slab));
        pool.clear();
        assert_eq!(pool.take(1, Some(1)).number, 3);
    }
}
