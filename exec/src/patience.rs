//! Bounds the time of calls that cannot check a clock themselves, such as a call into MPI.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The limit of operations that are not exchanges (an evaluation, a checkpoint, the start), in stall limits.
pub const ASIDE: u32 = 10;

/// Runs `work` on this thread. If `moves` does not increase for `limit` meanwhile, calls `late` once on another thread.
///
/// For calls before and after a run: a call into MPI that waits for all processes does not return when one never comes.
pub fn patiently<T>(limit: Duration, moves: &AtomicU64, late: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (working, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            let mut before = moves.load(Ordering::Relaxed);
            while ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                if std::mem::replace(&mut before, moves.load(Ordering::Relaxed)) == before {
                    return late();
                }
            }
        });
        let result = work();
        drop(working);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn only_stalled_work_is_reported_late() {
        let (moves, late, limit) = (AtomicU64::new(0), AtomicBool::new(false), Duration::from_millis(100));
        let report = || late.store(true, Ordering::Relaxed);
        assert_eq!(patiently(Duration::from_secs(60), &moves, report, || 7), 7);
        assert!(!late.load(Ordering::Relaxed));
        patiently(limit, &moves, report, || {
            while !late.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}
