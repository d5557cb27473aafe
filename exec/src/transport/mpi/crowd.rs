//! Tells a thread that polls MPI whether to yield its core or to sleep between polls.
//!
//! A yield is short where ranks that also wait share the core. Where threads that compute share it, a yield lasts for
//! their time slices, milliseconds each, at every message; a sleeping thread is woken within its own.

use std::time::{Duration, Instant};

/// A yield that lasted longer was taken by a thread that computes.
const SLICE: Duration = Duration::from_millis(1);

/// Rests without a yield after such a one, until the next is tried.
const RESTS: u32 = 1000;

/// Whether other threads compute on this thread's core.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    rests: u32,
}

impl Crowd {
    /// Yields the core and returns true; or returns false if the caller is to sleep, because a yield lasted long not
    /// many calls ago.
    pub(super) fn yields(&mut self) -> bool {
        if self.rests > 0 {
            self.rests -= 1;
            return false;
        }
        let began = Instant::now();
        std::thread::yield_now();
        self.rests = if began.elapsed() > SLICE { RESTS } else { 0 };
        true
    }

    /// Whether the next call of [`Crowd::yields`] returns false.
    pub(super) fn is_busy(&self) -> bool {
        self.rests > 0
    }
}
