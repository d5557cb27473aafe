//! Runs a team of threads on one job at a time; they spin between jobs, since a kernel's parallel part lasts tens of
//! microseconds, about as long as it takes to wake a sleeping thread.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Polls of a signal before a waiting thread goes to sleep: some tens of microseconds.
const LOOKS: usize = 4000;
/// Polls after which a waiting thread yields its core, for when threads outnumber cores.
const OFFER_EVERY: usize = 32;

/// A number shared between threads; threads wait for its change by spinning at first, then asleep.
#[derive(Default)]
struct Signal {
    number: AtomicUsize,
    asleep: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

impl Signal {
    /// Changes the number; a thread that sees the change also sees everything this thread did before.
    fn change(&self, to: impl Fn(usize) -> usize) {
        let _ = self.number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |number| Some(to(number)));
        // A thread that counts as asleep from here on checks the number once more, under the lock.
        if self.asleep.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.bell.notify_all();
        }
    }

    fn wait_until(&self, is_so: impl Fn(usize) -> bool) -> usize {
        for look in 1..=LOOKS {
            let number = self.number.load(Ordering::Acquire);
            if is_so(number) {
                return number;
            }
            if look % OFFER_EVERY == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let number = loop {
            let number = self.number.load(Ordering::SeqCst);
            if is_so(number) {
                break number;
            }
            guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        number
    }
}

/// The function that members call, each with its number; `None` ends them.
type Job = Option<*const (dyn Fn(usize) + Sync)>;

#[derive(Default)]
struct Shared {
    /// Number of jobs started.
    given: Signal,
    /// Members that are still working on the last job.
    left: Signal,
    job: UnsafeCell<Job>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written while no member works (`left` is 0, and `given` not yet changed) and read after `given`
// changed.
unsafe impl Sync for Shared {}
// SAFETY: the target of `job` may be used by any thread (`Sync`), and is used only while its owner waits.
unsafe impl Send for Shared {}

/// A team of threads beside the caller's own.
pub(super) struct Team {
    shared: Arc<Shared>,
    members: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

impl Team {
    /// Starts `members` threads.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub(super) fn new(members: usize) -> std::io::Result<Team> {
        let mut team = Team { shared: Arc::default(), members: Vec::new(), turn: Mutex::new(()) };
        for member in 1..=members {
            let shared = Arc::clone(&team.shared);
            let thread = std::thread::Builder::new().name(format!("kernel-{member}"));
            team.members.push(thread.spawn(move || serve(&shared, member))?);
        }
        Ok(team)
    }

    /// Calls `work(0)` here and `work(1)`, `work(2)` … on the members, and returns when all are done; returns false,
    /// and calls nothing, if the team is busy.
    pub(super) fn all(&self, work: &(dyn Fn(usize) + Sync)) -> bool {
        let Ok(turn) = self.turn.try_lock() else { return false };
        // SAFETY: only the lifetime changes; the pointer is not used after `left` is 0, which is awaited below.
        let job: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(std::ptr::from_ref(work)) };
        self.give(Some(job));
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        self.shared.left.wait_until(|left| left == 0);
        let theirs = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(turn);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
        true
    }

    fn give(&self, job: Job) {
        // SAFETY: no member works: the last job is done, and this one not yet started.
        unsafe { *self.shared.job.get() = job };
        let members = self.members.len();
        self.shared.left.change(|_| members);
        self.shared.given.change(|given| given.wrapping_add(1));
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.give(None);
        for member in self.members.drain(..) {
            // A member's panics were passed on where they happened.
            let _ = member.join();
        }
    }
}

/// The loop of a member.
fn serve(shared: &Shared, member: usize) {
    let mut seen = 0;
    loop {
        seen = shared.given.wait_until(|given| given != seen);
        // SAFETY: written before `given` changed, and not again before this member is done.
        let Some(work) = (unsafe { *shared.job.get() }) else { return };
        // SAFETY: its owner waits until this member is done.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| unsafe { (*work)(member) })) {
            *shared.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        shared.left.change(|left| left - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn everyone_does_every_job_once_awake_or_asleep() {
        let team = Team::new(3).expect("a few threads");
        let counts: [AtomicUsize; 4] = Default::default();
        for job in 0..3000 {
            assert!(team.all(&|member| {
                counts[member].fetch_add(1, Ordering::Relaxed);
            }));
            if job % 1000 == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        assert_eq!(counts.map(AtomicUsize::into_inner), [3000; 4]);
    }

    #[test]
    fn a_caller_waits_asleep_for_a_slow_member() {
        let team = Team::new(1).expect("a thread");
        let done = AtomicUsize::new(0);
        team.all(&|member| {
            std::thread::sleep(Duration::from_millis(30 * member as u64));
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 2);
    }

    /// After a panic of any thread all are waited for, the caller receives the panic, and the team stays usable.
    #[test]
    fn a_panic_reaches_the_caller() {
        let team = Team::new(2).expect("a few threads");
        for wicked in 0..3 {
            let others = AtomicUsize::new(0);
            let work = |member| {
                assert!(member != wicked, "member {member}");
                others.fetch_add(1, Ordering::Relaxed);
            };
            let panic = catch_unwind(AssertUnwindSafe(|| team.all(&work))).expect_err("it panics");
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("member {wicked}")));
            assert_eq!(others.into_inner(), 2);
        }
        assert!(team.all(&|_| ()));
    }

    #[test]
    fn a_team_at_work_declines() {
        let team = Team::new(1).expect("a thread");
        let declined = AtomicUsize::new(0);
        team.all(&|_| {
            declined.fetch_add(usize::from(!team.all(&|_| ())), Ordering::Relaxed);
        });
        assert_eq!(declined.into_inner(), 2);
    }
}
