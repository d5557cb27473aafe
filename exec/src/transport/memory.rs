//! Connects ranks that are threads of one process: the receiver copies or sums directly from the sender's memory.
//!
//! A send leaves an envelope in the receiver's mailbox; the receiver matches it with its receive, makes one pass over
//! both memories and wakes the sender. A rank with nothing to do sleeps (after a short spin, where there are cores to
//! spare), so ranks may outnumber cores.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use lockstep_topology::Rank;

use super::slab::Slab;
use super::{Combine, RecvId, Region, RegionMut, SendId, Tag, Transport, TransportError};

mod mailbox;
#[cfg(test)]
mod tests;

pub(crate) use mailbox::{Envelope, Hold, Job};

/// Polls of the mailbox before a rank sleeps, where each rank has a core: some milliseconds, longer than ranks of one
/// step usually wait for each other, since a wake-up costs as much as a message of 100 KiB.
pub const SPIN: u32 = 100_000;

/// Messages of one sender and tag, in the order of posting; one of the two queues is empty.
#[derive(Debug, Default)]
struct Channel {
    arrived: VecDeque<Envelope>,
    posted: VecDeque<u32>,
}

#[derive(Debug)]
struct Sent {
    to: Rank,
    tag: Tag,
    hold: Arc<Hold>,
}

#[derive(Debug)]
struct Receive {
    from: Rank,
    tag: Tag,
    into: RegionMut,
    combine: Combine,
    envelope: Option<Envelope>,
}

/// A rank's endpoint inside a process.
#[derive(Debug)]
pub struct MemoryEnd {
    job: Arc<Job>,
    rank: Rank,
    spin: u32,
    channels: HashMap<(Rank, Tag), Channel>,
    sends: Slab<Sent>,
    receives: Slab<Receive>,
    /// Holds of finished sends, for reuse.
    holds: Vec<Arc<Hold>>,
    collected: Vec<Envelope>,
}

/// One endpoint for each of `ranks` threads of this process; `spin` is 0, or [`SPIN`] where each has a core to itself.
pub fn ends(ranks: u32, spin: u32) -> Vec<MemoryEnd> {
    let job = Arc::new(Job::new(ranks, (0..ranks).map(Rank).collect()));
    MemoryEnd::all(&job, spin)
}

/// Runs `body` on one thread for each of `states`, as rank 0, 1, …; a rank that fails or panics ends all.
///
/// Memory that messages read and write belongs in the states: they outlive every endpoint, whatever happens.
///
/// ```
/// use lockstep_exec::transport::{Transport, TransportError, control, memory};
/// let sums = memory::run(vec![1u64, 2, 3], 0, |end, value| {
///     let next = lockstep_topology::Rank((end.rank().0 + 1) % end.ranks());
///     let previous = lockstep_topology::Rank((end.rank().0 + 2) % end.ranks());
///     Ok::<u64, TransportError>(*value + control::swap(end, next, previous, 7, *value)?)
/// });
/// assert_eq!(sums, Ok(vec![4, 3, 5]));
/// ```
///
/// # Errors
/// The first failure, with its rank.
pub fn run<S: Send, T: Send, E: Display>(
    states: Vec<S>,
    spin: u32,
    body: impl Fn(&mut dyn Transport, &mut S) -> Result<T, E> + Sync,
) -> Result<Vec<T>, TransportError> {
    let ranks = u32::try_from(states.len()).expect("fewer than 2^32 ranks");
    run_ends(ends(ranks, spin), states, body)
}

/// [`run`] over existing endpoints, of any transport.
///
/// # Errors
/// The first failure known to an endpoint, with its rank.
pub(crate) fn run_ends<W: Transport + Send, S: Send, T: Send, E: Display>(
    ends: Vec<W>,
    mut states: Vec<S>,
    body: impl Fn(&mut dyn Transport, &mut S) -> Result<T, E> + Sync,
) -> Result<Vec<T>, TransportError> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let (mut ends, mut states) = (ends.into_iter(), states.iter_mut());
        while let (Some(mut end), Some(state)) = (ends.next(), states.next()) {
            let (body, rank) = (&body, end.rank());
            let thread = std::thread::Builder::new().name(format!("rank {}", rank.0));
            let spawned = thread.spawn_scoped(scope, move || {
                let cause = match catch_unwind(AssertUnwindSafe(|| body(&mut end, state))) {
                    Ok(Ok(result)) => return Ok(result),
                    Ok(Err(error)) => error.to_string(),
                    Err(payload) => format!("panic: {}", panic_text(payload.as_ref())),
                };
                end.abort(&cause);
                // The first cause of the job, which may be another rank's.
                Err(end.poll().err().unwrap_or(TransportError::Aborted { rank: end.rank(), cause }))
            });
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Running ranks would wait for ranks that never start: the abort reaches them, or they see that the
                    // endpoints are gone.
                    let cause = format!("the system gives no thread for it: {error}; use fewer ranks");
                    ends.by_ref().take(1).for_each(|mut end| end.abort(&cause));
                    drop(ends);
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(TransportError::Aborted { rank, cause });
                }
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("panics are caught inside")).collect()
    })
}

/// The message of a panic.
fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

impl MemoryEnd {
    /// The endpoints of all ranks of `job` in this process.
    pub(crate) fn all(job: &Arc<Job>, spin: u32) -> Vec<MemoryEnd> {
        let end = |rank: &Rank| MemoryEnd {
            job: job.clone(),
            rank: *rank,
            spin,
            channels: HashMap::new(),
            sends: Slab::new(),
            receives: Slab::new(),
            holds: Vec::new(),
            collected: Vec::new(),
        };
        job.here().iter().map(end).collect()
    }

    #[cfg(feature = "mpi")]
    pub(crate) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Matches arrived messages with posted receives.
    fn collect(&mut self) {
        self.job.mailbox(self.rank).collect(&mut self.collected);
        for envelope in self.collected.drain(..) {
            let channel = self.channels.entry((envelope.from, envelope.tag)).or_default();
            match channel.posted.pop_front() {
                Some(receive) => self.receives.get_mut(receive).envelope = Some(envelope),
                None => channel.arrived.push_back(envelope),
            }
        }
    }
}

impl Transport for MemoryEnd {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.job.ranks
    }

    fn post_send(&mut self, to: Rank, tag: Tag, data: Region) -> Result<SendId, TransportError> {
        self.job.check()?;
        let hold = self.holds.pop().unwrap_or_else(|| Arc::new(Hold::new()));
        let envelope = Envelope { from: self.rank, tag, data, hold: hold.clone() };
        self.job.mailbox(to).deliver(envelope);
        Ok(SendId(self.sends.insert(Sent { to, tag, hold })))
    }

    fn send_done(&mut self, id: SendId) -> Result<bool, TransportError> {
        let sent = self.sends.get(id.0);
        if !sent.hold.is_done() {
            self.job.check()?;
            if !self.job.has_ended(sent.to) || sent.hold.is_done() {
                return Ok(false);
            }
            // A rank that leaves early reports its cause before it ends.
            self.job.check()?;
            return Err(TransportError::Ended { rank: self.rank, peer: sent.to, tag: sent.tag });
        }
        let hold = self.sends.remove(id.0).hold;
        hold.reset();
        self.holds.push(hold);
        Ok(true)
    }

    fn post_recv(
        &mut self,
        from: Rank,
        tag: Tag,
        into: RegionMut,
        combine: Combine,
        _scratch: RegionMut,
    ) -> Result<RecvId, TransportError> {
        self.job.check()?;
        let channel = self.channels.entry((from, tag)).or_default();
        let envelope = channel.arrived.pop_front();
        let waits = envelope.is_none();
        let id = self.receives.insert(Receive { from, tag, into, combine, envelope });
        if waits {
            channel.posted.push_back(id);
        }
        Ok(RecvId(id))
    }

    fn recv_done(&mut self, id: RecvId) -> Result<bool, TransportError> {
        self.job.check()?;
        if self.receives.get(id.0).envelope.is_none() {
            if !self.job.has_ended(self.receives.get(id.0).from) {
                return Ok(false);
            }
            self.collect();
        }
        let receive = self.receives.get_mut(id.0);
        let (from, tag) = (receive.from, receive.tag);
        let Some(envelope) = receive.envelope.take() else {
            self.job.check()?;
            return Err(TransportError::Ended { rank: self.rank, peer: from, tag });
        };
        let (sent, expected) = (envelope.data.len(), receive.into.len());
        if sent != expected {
            return Err(TransportError::Length { from, to: self.rank, tag, sent, expected });
        }
        if !envelope.hold.begin() {
            // A rank that retracts a message reports its cause next.
            loop {
                self.job.check()?;
                std::thread::yield_now();
            }
        }
        receive.into.count();
        let taken = receive.into.take(envelope.data, receive.combine);
        envelope.hold.finish();
        taken.map_err(|error| TransportError::Aborted { rank: self.rank, cause: error.to_string() })?;
        self.receives.remove(id.0);
        if from != self.rank {
            self.job.mailbox(from).ring();
        }
        Ok(true)
    }

    fn poll(&mut self) -> Result<(), TransportError> {
        self.job.check()?;
        self.collect();
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), TransportError> {
        self.job.check()?;
        self.job.mailbox(self.rank).wait(self.spin, deadline);
        self.job.check()
    }

    fn abort(&mut self, cause: &str) {
        self.job.abort(self.rank, cause);
    }

    fn needs_scratch(&self) -> bool {
        false
    }

    fn is_near(&self, rank: Rank) -> bool {
        self.job.here().contains(&rank)
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.job.abort(self.rank, "it panicked");
        }
        let open = self.sends.iter().fold(0, |open, sent| open + usize::from(sent.hold.retract()));
        if open > 0 {
            self.job.abort(self.rank, &format!("it ended with {open} of its messages open"));
        }
        self.job.end(self.rank);
    }
}
