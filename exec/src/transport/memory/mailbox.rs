//! Holds the shared state of the ranks of one process: a mailbox for each, which ranks have ended, and why the job
//! ended.
//!
//! A message is an envelope: the address of the data and a [`Hold`] that says which side owns it. The hold keeps a
//! failing rank's memory alive while another rank reads it: a sender that gives up retracts its envelopes, and waits
//! for a receiver that has already started its short copy.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use lockstep_topology::Rank;

use super::super::{Region, Tag, TransportError};

/// Which side may access the data of a message.
#[derive(Debug)]
pub(crate) struct Hold(AtomicU8);

const POSTED: u8 = 0;
const READING: u8 = 1;
const DONE: u8 = 2;
const RETRACTED: u8 = 3;

impl Hold {
    pub(crate) fn new() -> Hold {
        Hold(AtomicU8::new(POSTED))
    }

    /// Whether the sender's data are free again.
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }

    /// Resets the hold of a finished message for reuse.
    pub(crate) fn reset(&self) {
        self.0.store(POSTED, Ordering::Release);
    }

    /// The receiver takes the data to read them; false if the sender has retracted them.
    pub(crate) fn begin(&self) -> bool {
        self.0.compare_exchange(POSTED, READING, Ordering::Acquire, Ordering::Acquire).is_ok()
    }

    /// The receiver has finished reading.
    pub(crate) fn finish(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    /// The sender retracts its data; true if they had not been read completely.
    pub(crate) fn retract(&self) -> bool {
        loop {
            match self.0.compare_exchange(POSTED, RETRACTED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) | Err(RETRACTED) => return true,
                Err(DONE) => return false,
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

/// A message that waits for its receiver.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) from: Rank,
    pub(crate) tag: Tag,
    pub(crate) data: Region,
    pub(crate) hold: Arc<Hold>,
}

#[derive(Debug, Default)]
struct Inbox {
    envelopes: Vec<Envelope>,
    asleep: bool,
}

/// Where a rank's messages arrive and where it sleeps.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    bell: Condvar,
    /// Whether something has changed since the owner last woke up.
    rung: AtomicBool,
    /// Whether there are envelopes.
    fresh: AtomicBool,
    ended: AtomicBool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_locked(&self, inbox: &mut Inbox) {
        self.rung.store(true, Ordering::Release);
        if std::mem::take(&mut inbox.asleep) {
            self.bell.notify_one();
        }
    }

    /// Wakes the owner.
    pub(crate) fn ring(&self) {
        self.ring_locked(&mut self.lock());
    }

    pub(crate) fn deliver(&self, envelope: Envelope) {
        let mut inbox = self.lock();
        inbox.envelopes.push(envelope);
        self.fresh.store(true, Ordering::Release);
        self.ring_locked(&mut inbox);
    }

    /// Moves arrived envelopes into `into`, which is empty.
    pub(crate) fn collect(&self, into: &mut Vec<Envelope>) {
        if self.fresh.load(Ordering::Acquire) {
            let mut inbox = self.lock();
            std::mem::swap(&mut inbox.envelopes, into);
            self.fresh.store(false, Ordering::Release);
        }
    }

    /// Blocks until `Mailbox::ring` has been called since the last call, or until the deadline; polls `spin` times
    /// before it sleeps. Does not block while there are envelopes.
    pub(crate) fn wait(&self, spin: u32, deadline: Option<Instant>) {
        if self.fresh.load(Ordering::Acquire) {
            return;
        }
        for _ in 0..spin {
            if self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel) {
                return;
            }
            std::hint::spin_loop();
        }
        let mut inbox = self.lock();
        while !self.rung.load(Ordering::Acquire) {
            inbox.asleep = true;
            inbox = match deadline {
                None => self.bell.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.bell.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        inbox.asleep = false;
        self.rung.store(false, Ordering::Release);
    }
}

/// The state of a job in this process.
#[derive(Debug)]
pub(crate) struct Job {
    /// Ranks of the whole job, in this process and others.
    pub(crate) ranks: u32,
    /// The ranks of this process, ascending.
    here: Vec<Rank>,
    mailboxes: Vec<Mailbox>,
    failure: OnceLock<TransportError>,
}

impl Job {
    /// A job of `ranks` ranks, those in `here` (ascending) in this process.
    pub(crate) fn new(ranks: u32, here: Vec<Rank>) -> Job {
        let mailboxes = here.iter().map(|_| Mailbox::default()).collect();
        Job { ranks, here, mailboxes, failure: OnceLock::new() }
    }

    pub(crate) fn here(&self) -> &[Rank] {
        &self.here
    }

    /// The mailbox of a rank of this process.
    ///
    /// # Panics
    /// When the rank is in another process.
    pub(crate) fn mailbox(&self, rank: Rank) -> &Mailbox {
        let index = self.here.binary_search_by_key(&rank.0, |here| here.0);
        &self.mailboxes[index.expect("a message inside the process is for a rank inside the process")]
    }

    /// Ends the job; the first cause is kept.
    pub(crate) fn abort(&self, rank: Rank, cause: &str) {
        let _ = self.failure.set(TransportError::Aborted { rank, cause: cause.to_owned() });
        self.mailboxes.iter().for_each(Mailbox::ring);
    }

    /// Why the job has ended.
    #[cfg(feature = "mpi")]
    pub(crate) fn failure(&self) -> Option<&TransportError> {
        self.failure.get()
    }

    /// # Errors
    /// When the job has ended.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Records that `rank` sends and receives no more.
    pub(crate) fn end(&self, rank: Rank) {
        self.mailbox(rank).ended.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(Mailbox::ring);
    }

    /// Whether `rank` sends and receives no more; all that it sent before has then been delivered.
    pub(crate) fn has_ended(&self, rank: Rank) -> bool {
        self.mailbox(rank).ended.load(Ordering::Acquire)
    }
}
