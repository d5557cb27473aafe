//! Reports how long the calling thread has run and how often the system preempted it: tells an interrupted operation from
//! a slow one.

use std::time::Duration;

/// What the calling thread has used since it started.
///
/// ```
/// # use lockstep_exec::ThreadUse;
/// let before = ThreadUse::now();
/// let sum: u64 = (0..100_000u64).map(std::hint::black_box).sum();
/// let (after, _) = (ThreadUse::now(), sum);
/// assert!(after.ran >= before.ran && after.preemptions >= before.preemptions);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadUse {
    /// Time on a processor, with a resolution of a microsecond; zero where the system does not report it.
    pub ran: Duration,
    /// How often the system gave its processor to another thread although it could have gone on.
    pub preemptions: u64,
}

impl ThreadUse {
    /// Asks the system, which takes well under a microsecond.
    #[cfg(target_os = "linux")]
    pub fn now() -> ThreadUse {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the system writes a `rusage`, all of whose fields are integers.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        ThreadUse { ran: of(usage.ru_utime) + of(usage.ru_stime), preemptions: usage.ru_nivcsw as u64 }
    }

    /// Other systems are not supported.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> ThreadUse {
        ThreadUse::default()
    }
}
