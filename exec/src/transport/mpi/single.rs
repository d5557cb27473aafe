//! Implements the endpoint of a process with one rank: the rank's own thread calls MPI.

use std::time::{Duration, Instant};

use lockstep_topology::Rank;

use super::super::slab::Slab;
use super::super::{Combine, RecvId, Region, RegionMut, SendId, Tag, Transport, TransportError};
use super::crowd::Crowd;
use super::tags::Tags;
use super::wire::Wire;

/// Polls of the wire before the rank yields its core. Where ranks outnumber cores, the library may itself yield at
/// every poll; a second yield before the next poll would wait for all other ranks twice.
const LOOKS: u32 = 8;

/// After this long the awaited rank is computing: sleeping leaves it the core and adds little to the wait.
const WATCHFUL: Duration = Duration::from_millis(1);
/// A nap between polls is the wait so far divided by this, within limits: messages progress only at polls.
const NAP_SHARE: u32 = 16;
const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(200);

/// A rank that is a process of its own.
#[derive(Debug)]
pub(super) struct SingleEnd<'a> {
    wire: &'a mut Wire,
    tags: &'a Tags,
    rank: Rank,
    /// Whether each message is done, by our number; `numbers[n]` is ours for the wire's number n.
    messages: Slab<bool>,
    numbers: Vec<u32>,
    /// Whether something was completed since the last wait.
    news: bool,
    crowd: Crowd,
}

impl<'a> SingleEnd<'a> {
    pub(super) fn new(wire: &'a mut Wire, tags: &'a Tags, rank: Rank) -> SingleEnd<'a> {
        SingleEnd { wire, tags, rank, messages: Slab::new(), numbers: Vec::new(), news: false, crowd: Crowd::default() }
    }

    fn open(&mut self, number: u32) -> u32 {
        let id = self.messages.insert(false);
        let number = number as usize;
        self.numbers.resize(self.numbers.len().max(number + 1), 0);
        self.numbers[number] = id;
        id
    }

    fn take(&mut self, id: u32) -> bool {
        let done = *self.messages.get(id);
        if done {
            self.messages.remove(id);
        }
        done
    }
}

impl Transport for SingleEnd<'_> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.tags.ranks()
    }

    fn post_send(&mut self, to: Rank, tag: Tag, data: Region) -> Result<SendId, TransportError> {
        let number = self.tags.number(self.rank, to, tag)?;
        let message = self.wire.send(self.tags.process(to), number, data);
        let message = message.map_err(|error| super::broken(self.rank, error.into()))?;
        Ok(SendId(self.open(message)))
    }

    fn send_done(&mut self, id: SendId) -> Result<bool, TransportError> {
        Ok(self.take(id.0))
    }

    fn post_recv(
        &mut self,
        from: Rank,
        tag: Tag,
        into: RegionMut,
        combine: Combine,
        scratch: RegionMut,
    ) -> Result<RecvId, TransportError> {
        let number = self.tags.number(from, self.rank, tag)?;
        let message = self.wire.receive(self.tags.process(from), number, into, combine, scratch);
        let message = message.map_err(|error| super::broken(self.rank, error.into()))?;
        Ok(RecvId(self.open(message)))
    }

    fn recv_done(&mut self, id: RecvId) -> Result<bool, TransportError> {
        Ok(self.take(id.0))
    }

    fn poll(&mut self) -> Result<(), TransportError> {
        let SingleEnd { wire, messages, numbers, news, rank, .. } = self;
        let polled = wire.poll(|number| {
            *messages.get_mut(numbers[number as usize]) = true;
            *news = true;
        });
        polled.map_err(|fault| super::broken(*rank, fault))
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), TransportError> {
        let began = Instant::now();
        for look in 1u32.. {
            if std::mem::take(&mut self.news) || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(());
            }
            self.poll()?;
            if self.news {
                continue;
            }
            // Another rank may share this core, perhaps the one we wait for.
            if look.is_multiple_of(LOOKS) || self.crowd.is_busy() {
                let waited = began.elapsed();
                if waited >= WATCHFUL || !self.crowd.yields() {
                    std::thread::sleep((waited / NAP_SHARE).clamp(SHORTEST_NAP, LONGEST_NAP));
                }
            }
        }
        Ok(())
    }

    fn abort(&mut self, cause: &str) {
        super::end_job(self.rank, cause);
    }

    fn needs_scratch(&self) -> bool {
        true
    }

    fn takes_devices(&self) -> bool {
        self.wire.takes_devices()
    }

    fn library_allreduce(&mut self, ranks: &[Rank], data: RegionMut) -> Result<(), TransportError> {
        if !self.wire.is_idle() {
            return Err(TransportError::Unsupported(
                "library:mpi blocks, but other messages are in flight; let the exchange follow them".to_owned(),
            ));
        }
        let processes = ranks.iter().map(|rank| self.tags.process(*rank)).collect();
        self.wire.allreduce(processes, data);
        Ok(())
    }
}

impl Drop for SingleEnd<'_> {
    fn drop(&mut self) {
        if !self.wire.is_idle() {
            super::end_job(self.rank, "it ended with messages open");
        }
    }
}
