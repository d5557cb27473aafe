//! Distributes the tiles of a kernel over the threads of one rank's CPU device.
//!
//! Work is cut into tiles whose number depends on the layer alone, and each tile's result depends on the tile alone;
//! threads only decide which of them computes a tile. So one thread and sixteen give the same bits. With one thread
//! there is no team at all.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_topology::InputError;

use super::team::Team;

/// How many threads a rank's kernels run on: the caller's own and `count − 1` of a team.
#[derive(Clone)]
pub struct Threads {
    count: usize,
    team: Option<Arc<Team>>,
}

impl Threads {
    /// The caller's thread alone.
    pub fn one() -> Threads {
        Threads { count: 1, team: None }
    }

    /// A count of threads without starting any, for planning.
    pub(crate) fn planned(count: usize) -> Threads {
        Threads { count: count.max(1), team: None }
    }

    /// `count` threads (at least one), the caller's among them.
    ///
    /// # Errors
    /// When the system refuses that many threads.
    pub fn new(count: usize) -> Result<Threads, InputError> {
        if count <= 1 {
            return Ok(Threads::one());
        }
        let team = Team::new(count - 1).map_err(|error| {
            let message = format!("the system gives no {count} threads ({error}): ask for fewer");
            InputError::flag("threads_per_rank", count.to_string(), message)
        })?;
        Ok(Threads { count, team: Some(Arc::new(team)) })
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `work(worker, tile)` once for every tile below `tiles`, with `worker < self.count()`; no two concurrent
    /// calls have the same worker.
    pub(crate) fn each(&self, tiles: usize, work: impl Fn(usize, usize) + Sync) {
        let next = AtomicUsize::new(0);
        let take = |worker: usize| {
            loop {
                let tile = next.fetch_add(1, Ordering::Relaxed);
                if tile >= tiles {
                    return;
                }
                work(worker, tile);
            }
        };
        let together = self.team.as_deref().filter(|_| tiles > 1).is_some_and(|team| team.all(&take));
        if !together {
            take(0);
        }
    }

    /// Calls `work(worker, range, chunk)` for each chunk of `size` elements (the last one may be shorter), with its
    /// range in the whole.
    pub(crate) fn each_chunk<T: Send>(
        &self,
        of: &mut [T],
        size: usize,
        work: impl Fn(usize, Range<usize>, &mut [T]) + Sync,
    ) {
        let len = of.len();
        let all = Disjoint::new(of);
        self.each(len.div_ceil(size), |worker, tile| {
            let range = tile_range(tile, size, len);
            // SAFETY: chunks are disjoint.
            work(worker, range.clone(), unsafe { all.part(range) });
        });
    }
}

/// A slice of which several tiles write disjoint parts.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it represents a `&mut [T]`, whose parts are handed out by the unsafe `part` alone.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Disjoint<'a, T> {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// A pointer to the first element of `range`.
    ///
    /// # Panics
    /// Unless the range is inside.
    #[inline]
    pub(crate) fn pointer(&self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {} elements", self.len);
        self.start.wrapping_add(range.start)
    }

    /// # Safety
    /// No two live parts overlap.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        // SAFETY: inside the slice as `pointer` asserts; no other reference to the range exists, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(range.clone()), range.len()) }
    }
}

/// The part of `0..len` that tile `tile` of size `size` covers.
pub(crate) fn tile_range(tile: usize, size: usize, len: usize) -> Range<usize> {
    tile * size..((tile + 1) * size).min(len)
}

/// The parts of `0..len` that tiles of size `size` cover.
pub(crate) fn tile_ranges(size: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len.div_ceil(size)).map(move |tile| tile_range(tile, size, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_done_once() {
        for count in 1..4 {
            let threads = Threads::new(count).expect("a few threads");
            for tiles in [0, 1, 2, 7, 100] {
                let mut done = vec![0; tiles];
                let shared = Disjoint::new(&mut done);
                threads.each(tiles, |worker, tile| {
                    assert!(worker < count);
                    // SAFETY: one element per tile.
                    unsafe { shared.part(tile..tile + 1)[0] += 1 };
                });
                assert!(done.iter().all(|times| *times == 1), "{count} threads, {tiles} tiles: {done:?}");
            }
        }
    }
}
