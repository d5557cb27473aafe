//! Connects the ranks of a process that has several: memory between them, and one thread that calls MPI for all.
//!
//! A rank's endpoint queues requests at the gateway; the gateway posts them directly from and to the rank's memory, and
//! wakes the rank when one is done. Sums are computed by the rank itself, so that they spread over the cores.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockstep_topology::Rank;

use super::super::memory::{Hold, Job, MemoryEnd};
use super::super::slab::Slab;
use super::super::{Combine, RecvId, Region, RegionMut, SendId, Tag, Transport, TransportError};
use super::crowd::Crowd;
use super::tags::Tags;
use super::wire::Wire;

/// Set in ids of messages that leave the process.
const AWAY: u32 = 1 << 31;

/// Polls of the wire before the gateway sleeps; computing ranks need the core more.
const LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(20);

#[derive(Debug)]
enum Order {
    Send { data: Region },
    Receive { into: RegionMut },
}

/// A message for the gateway to post.
#[derive(Debug)]
struct Posting {
    rank: Rank,
    process: u32,
    number: c_int,
    order: Order,
    hold: Arc<Hold>,
}

/// State shared by ranks and gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    job: Arc<Job>,
    tags: Tags,
    takes_devices: bool,
    postings: Mutex<Vec<Posting>>,
    bell: Condvar,
    fresh: AtomicBool,
    /// Number of endpoints not yet dropped.
    live: AtomicU32,
}

impl Gateway {
    /// The gateway of `process`, and the endpoints of its ranks.
    pub(super) fn new(tags: &Tags, process: u32, spin: u32, takes_devices: bool) -> (Arc<Gateway>, Vec<RoutedEnd>) {
        let job = Arc::new(Job::new(tags.ranks(), tags.hosted(process)));
        let local = MemoryEnd::all(&job, spin);
        let gateway = Arc::new(Gateway {
            job,
            tags: tags.clone(),
            takes_devices,
            postings: Mutex::default(),
            bell: Condvar::new(),
            fresh: AtomicBool::new(false),
            live: AtomicU32::new(local.len() as u32),
        });
        let end = |local| RoutedEnd { gateway: gateway.clone(), process, local, messages: Slab::new() };
        let ends = local.into_iter().map(end).collect();
        (gateway, ends)
    }

    fn post(&self, posting: Posting) {
        self.postings.lock().unwrap_or_else(PoisonError::into_inner).push(posting);
        self.fresh.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Serves the ranks until the last endpoint is dropped; runs on the thread that calls MPI.
    pub(super) fn serve(&self, wire: &mut Wire) {
        let mut open: BTreeMap<u32, (Rank, Arc<Hold>)> = BTreeMap::new();
        let mut postings = Vec::new();
        let mut idle = 0;
        let mut crowd = Crowd::default();
        while self.live.load(Ordering::Acquire) > 0 || self.job.failure().is_some() {
            if let Some(TransportError::Aborted { rank, cause }) = self.job.failure() {
                super::end_job(*rank, cause);
            }
            idle += 1;
            if self.fresh.swap(false, Ordering::AcqRel) {
                std::mem::swap(&mut postings, &mut *self.postings.lock().unwrap_or_else(PoisonError::into_inner));
            }
            for Posting { rank, process, number, order, hold } in postings.drain(..) {
                let posted = match order {
                    Order::Send { data } => wire.send(process, number, data),
                    Order::Receive { into } => wire.receive(process, number, into, Combine::Copy, RegionMut::empty()),
                };
                match posted {
                    Ok(message) => drop(open.insert(message, (rank, hold))),
                    Err(error) => self.job.abort(rank, &error.to_string()),
                }
                idle = 0;
            }
            let polled = wire.poll(|message| {
                idle = 0;
                if let Some((rank, hold)) = open.remove(&message) {
                    hold.finish();
                    self.job.mailbox(rank).ring();
                }
            });
            if let Err(fault) = polled {
                self.job.abort(self.job.here()[0], &super::broken(self.job.here()[0], fault).to_string());
            }
            if idle > LOOKS || (idle > 0 && !crowd.yields()) {
                self.nap(if wire.is_idle() { Duration::from_millis(50) } else { NAP });
            }
        }
    }

    fn nap(&self, longest: Duration) {
        let postings = self.postings.lock().unwrap_or_else(PoisonError::into_inner);
        if postings.is_empty() && self.live.load(Ordering::Acquire) > 0 && self.job.failure().is_none() {
            drop(self.bell.wait_timeout(postings, longest));
        }
    }
}

/// A message that leaves or enters the process.
#[derive(Debug)]
struct Away {
    hold: Arc<Hold>,
    /// For a sum: the destination, and the received data to add.
    sum: Option<(RegionMut, RegionMut)>,
}

/// The endpoint of a rank that shares its process: memory to ranks of the same process, the gateway to all others.
#[derive(Debug)]
pub(super) struct RoutedEnd {
    gateway: Arc<Gateway>,
    process: u32,
    local: MemoryEnd,
    messages: Slab<Away>,
}

impl RoutedEnd {
    fn is_here(&self, rank: Rank) -> bool {
        self.gateway.tags.process(rank) == self.process
    }

    fn post(
        &mut self,
        pair: (Rank, Rank),
        tag: Tag,
        order: Order,
        sum: Option<(RegionMut, RegionMut)>,
    ) -> Result<u32, TransportError> {
        self.local.job().check()?;
        let rank = self.local.rank();
        let number = self.gateway.tags.number(pair.0, pair.1, tag)?;
        let process = self.gateway.tags.process(if pair.0 == rank { pair.1 } else { pair.0 });
        let hold = Arc::new(Hold::new());
        self.gateway.post(Posting { rank, process, number, order, hold: hold.clone() });
        Ok(self.messages.insert(Away { hold, sum }) | AWAY)
    }

    fn take(&mut self, id: u32) -> Result<bool, TransportError> {
        let message = self.messages.get(id & !AWAY);
        if !message.hold.is_done() {
            self.local.job().check()?;
            return Ok(false);
        }
        if let Some((into, scratch)) = self.messages.remove(id & !AWAY).sum {
            let added = into.take(scratch.read(), Combine::Sum);
            added.map_err(|error| super::broken(self.local.rank(), error.into()))?;
        }
        Ok(true)
    }
}

impl Transport for RoutedEnd {
    fn rank(&self) -> Rank {
        self.local.rank()
    }

    fn ranks(&self) -> u32 {
        self.local.ranks()
    }

    fn post_send(&mut self, to: Rank, tag: Tag, data: Region) -> Result<SendId, TransportError> {
        if self.is_here(to) {
            return self.local.post_send(to, tag, data);
        }
        self.post((self.rank(), to), tag, Order::Send { data }, None).map(SendId)
    }

    fn send_done(&mut self, id: SendId) -> Result<bool, TransportError> {
        if id.0 & AWAY == 0 { self.local.send_done(id) } else { self.take(id.0) }
    }

    fn post_recv(
        &mut self,
        from: Rank,
        tag: Tag,
        into: RegionMut,
        combine: Combine,
        scratch: RegionMut,
    ) -> Result<RecvId, TransportError> {
        if self.is_here(from) {
            return self.local.post_recv(from, tag, into, combine, scratch);
        }
        let (lands, sum) = match combine {
            Combine::Copy => (into, None),
            Combine::Sum => {
                let scratch = scratch.part(0..into.len());
                (scratch, Some((into, scratch)))
            }
        };
        self.post((from, self.rank()), tag, Order::Receive { into: lands }, sum).map(RecvId)
    }

    fn recv_done(&mut self, id: RecvId) -> Result<bool, TransportError> {
        if id.0 & AWAY == 0 { self.local.recv_done(id) } else { self.take(id.0) }
    }

    fn poll(&mut self) -> Result<(), TransportError> {
        self.local.poll()
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), TransportError> {
        self.local.wait(deadline)
    }

    fn abort(&mut self, cause: &str) {
        self.local.abort(cause);
        self.gateway.bell.notify_one();
    }

    fn needs_scratch(&self) -> bool {
        true
    }

    fn is_near(&self, rank: Rank) -> bool {
        self.is_here(rank)
    }

    fn takes_devices(&self) -> bool {
        self.gateway.takes_devices
    }
}

impl Drop for RoutedEnd {
    fn drop(&mut self) {
        if std::thread::panicking() || self.messages.iter().any(|message| !message.hold.is_done()) {
            self.abort("it ended with messages open");
            // The gateway ends the process; until then it may access this rank's memory.
            loop {
                std::thread::park();
            }
        }
        self.gateway.live.fetch_sub(1, Ordering::AcqRel);
        self.gateway.bell.notify_one();
    }
}
