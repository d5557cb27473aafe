//! Runs one member's part of a collective: takes the steps of its lanes and performs them on a transport.
//!
//! The engine knows sends, receives and sums, but no collective by name. Lanes provide concurrency: at most `window`
//! are in flight, started in order, each advanced until it waits. After creation nothing is allocated on the heap.

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::Rank;
use lockstep_topology::collective::{Action, Lane, Schedule};

use crate::regions::Regions;
use crate::transport::{Combine, RecvId, Region, RegionMut, SendId, Tag, Transport, TransportError};

/// The memory that an exchange reads and writes.
#[derive(Debug, Clone)]
pub struct Buffers {
    input: Regions<Region>,
    output: Regions<RegionMut>,
    scratch: RegionMut,
    in_place: bool,
    /// The collective's element at which the buffer starts.
    first: usize,
}

impl Buffers {
    /// One buffer of the collective's elements, both input and output; `scratch` has [`scratch_elements`], or none
    /// where the transport needs none.
    pub fn in_place(buffer: RegionMut, scratch: RegionMut) -> Buffers {
        let (input, output) = (Regions::one(buffer.read()), Regions::one(buffer));
        Buffers { input, output, scratch, in_place: true, first: 0 }
    }

    /// The same, where this member holds only a part, from the collective's element `first` on.
    pub fn from_element(self, first: usize) -> Buffers {
        Buffers { first, ..self }
    }

    /// Separate input and output, as for alltoallv: each is a concatenation over members.
    pub fn separate(input: Region, output: RegionMut) -> Buffers {
        Buffers::apart(Regions::one(input), Regions::one(output))
    }

    /// The same where the concatenated regions are at arbitrary addresses: a block is sent as one message per region,
    /// and its receiver must divide it alike.
    pub(crate) fn scattered(input: Vec<Region>, output: Vec<RegionMut>) -> Buffers {
        Buffers::apart(Regions::of(input), Regions::of(output))
    }

    fn apart(input: Regions<Region>, output: Regions<RegionMut>) -> Buffers {
        Buffers { input, output, scratch: RegionMut::empty(), in_place: false, first: 0 }
    }

    /// The collective's elements from `start` to `end`, as indices into this member's buffer.
    ///
    /// # Panics
    /// When they start before this member's part.
    fn range(&self, start: u64, end: u64) -> Range<usize> {
        assert!(start as usize >= self.first, "{start}..{end} of a part that begins at {}", self.first);
        start as usize - self.first..end as usize - self.first
    }
}

/// Elements of scratch memory that the sums of `schedule` need with `window` lanes in flight.
pub fn scratch_elements(schedule: &Schedule, window: u32) -> u64 {
    schedule.scratch_elements(window)
}

/// Number of messages and bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExchangeTraffic {
    /// Number of messages.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
}

/// The progress of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A message is missing; call again after [`Transport::wait`].
    Waiting,
    /// The result is complete and the buffers are free.
    Done,
}

/// A lane in flight.
#[derive(Debug)]
struct Slot {
    lane: Option<Lane>,
    /// A step that cannot start before an earlier send from its range is done.
    held: Option<(Action, u32, Range<usize>)>,
    /// The outstanding receives of a block; their sender is `from`.
    receives: Vec<RecvId>,
    from: u32,
    sends: Vec<(SendId, Range<usize>)>,
}

/// One member's run of a [`Schedule`], restarted for every iteration.
#[derive(Debug)]
pub struct RunningExchange {
    schedule: Arc<Schedule>,
    member: u32,
    ranks: Arc<[Rank]>,
    number: u32,
    buffers: Buffers,
    slots: Vec<Slot>,
    /// Lanes before this one are done.
    first: u32,
    /// Lanes from this one on have not started.
    next: u32,
    sent: Vec<ExchangeTraffic>,
}

impl RunningExchange {
    /// The part of member `member`, where member i of the schedule is rank `ranks[i]` of the transport.
    ///
    /// `number` identifies the exchange and is the same on all members, as is `window`, the most lanes in flight.
    ///
    /// # Panics
    /// When the buffers or the ranks do not fit the schedule; lowering makes them fit.
    pub fn new(
        schedule: Arc<Schedule>,
        member: u32,
        ranks: Arc<[Rank]>,
        number: u32,
        buffers: Buffers,
        window: u32,
    ) -> RunningExchange {
        assert_eq!(ranks.len(), schedule.members() as usize, "one rank for each member");
        assert!(member < schedule.members(), "member {member} of {}", schedule.members());
        // Where a member holds a part, ranges outside of it are refused when a step names them.
        let fits = (buffers.first + buffers.output.len()) as u64 <= schedule.elements();
        assert!(!buffers.in_place || fits, "the collective's elements");
        let window = window.clamp(1, schedule.lanes().max(1));
        let slot = |_| Slot { lane: None, held: None, receives: Vec::new(), from: 0, sends: Vec::new() };
        let slots = (0..window).map(slot).collect();
        let sent = vec![ExchangeTraffic::default(); ranks.len()];
        RunningExchange { schedule, member, ranks, number, buffers, slots, first: 0, next: 0, sent }
    }

    /// Starts the next run, with the same buffers.
    ///
    /// # Panics
    /// When the previous run is not done.
    pub fn restart(&mut self) {
        assert!(self.first == self.next, "an exchange is restarted while lanes are in flight");
        (self.first, self.next) = (0, 0);
    }

    /// Uses `data` as the buffer of the run that starts.
    pub(crate) fn turn_to(&mut self, data: RegionMut) {
        debug_assert!(self.buffers.in_place && data.len() == self.buffers.output.len());
        (self.buffers.input, self.buffers.output) = (Regions::one(data.read()), Regions::one(data));
    }

    /// Makes all progress possible without waiting.
    ///
    /// # Errors
    /// When the job has ended; the exchange cannot be used any more.
    ///
    /// # Panics
    /// When the schedule is a library's, whose sends copy: use [`Transport::library_allreduce`] for it.
    pub fn progress(&mut self, transport: &mut dyn Transport) -> Result<Progress, TransportError> {
        assert!(!self.schedule.buffered_sends(), "a library's collective is called, not run by its steps");
        transport.poll()?;
        self.turn(transport)
    }

    /// As [`RunningExchange::progress`], after one poll that serves all exchanges of a rank: with a poll for each, one
    /// exchange's poll would consume the events of another, and the wait that follows would sleep through them.
    ///
    /// # Errors
    /// As there.
    pub fn turn(&mut self, transport: &mut dyn Transport) -> Result<Progress, TransportError> {
        let lanes = self.schedule.lanes();
        let window = self.slots.len() as u32;
        for lane in self.first..self.next {
            self.advance(lane, transport)?;
        }
        loop {
            while self.first < self.next && self.slots[(self.first % window) as usize].lane.is_none() {
                self.first += 1;
            }
            if self.next == lanes || self.next - self.first == window {
                break;
            }
            self.slots[(self.next % window) as usize].lane = Some(self.schedule.lane(self.member, self.next));
            self.next += 1;
            self.advance(self.next - 1, transport)?;
        }
        Ok(if self.first == lanes { Progress::Done } else { Progress::Waiting })
    }

    /// Runs to the end, blocking.
    ///
    /// # Errors
    /// When the job has ended.
    pub fn complete(&mut self, transport: &mut dyn Transport) -> Result<(), TransportError> {
        while self.progress(transport)? == Progress::Waiting {
            transport.wait(None)?;
        }
        Ok(())
    }

    /// Sends the next messages as those of exchange `number`; used for injected faults only.
    pub(crate) fn pose_as(&mut self, number: u32) {
        self.number = number;
    }

    /// Traffic to each member over all runs so far.
    pub fn sent(&self) -> impl Iterator<Item = (Rank, &ExchangeTraffic)> {
        self.ranks.iter().copied().zip(&self.sent)
    }

    /// The outstanding messages as (lane, rank), for error messages about stalled jobs.
    pub fn waits(&self) -> impl Iterator<Item = (u32, Rank)> {
        let window = self.slots.len() as u32;
        (self.first..self.next).filter_map(move |lane| {
            let slot = &self.slots[(lane % window) as usize];
            (!slot.receives.is_empty()).then(|| (lane, self.ranks[slot.from as usize]))
        })
    }

    /// Advances a lane until it waits or is done; its slot is empty then.
    fn advance(&mut self, lane: u32, transport: &mut dyn Transport) -> Result<(), TransportError> {
        let window = self.slots.len() as u32;
        let index = lane % window;
        let tag = Tag::exchange(self.number, index);
        let slot = &mut self.slots[index as usize];
        let Some(steps) = &mut slot.lane else { return Ok(()) };
        loop {
            while let Some(id) = slot.receives.last() {
                if !transport.recv_done(*id)? {
                    return Ok(());
                }
                slot.receives.pop();
            }
            let step = slot.held.take().or_else(|| {
                steps.next().map(|step| (step.action, step.peer, self.buffers.range(step.start, step.end)))
            });
            let Some((action, peer, range)) = step else {
                retire(&mut slot.sends, transport)?;
                if slot.sends.is_empty() {
                    slot.lane = None;
                }
                return Ok(());
            };
            let rank = self.ranks[peer as usize];
            if action == Action::Send {
                let traffic = &mut self.sent[peer as usize];
                traffic.messages += 1;
                for part in self.buffers.input.cut(&range) {
                    traffic.bytes += part.bytes() as u64;
                    slot.sends.push((transport.post_send(rank, tag, part)?, range.clone()));
                }
                continue;
            }
            // The peer has already received these sends (the checker proves it); the transport may not have noticed
            // yet.
            if self.buffers.in_place && overlaps(&slot.sends, &range) {
                retire(&mut slot.sends, transport)?;
                if overlaps(&slot.sends, &range) {
                    slot.held = Some((action, peer, range));
                    return Ok(());
                }
            }
            let sum = action == Action::RecvSum;
            let scratch = if sum && !self.buffers.scratch.is_empty() {
                let chunk = self.schedule.chunk_elements() as usize;
                self.buffers.scratch.part(index as usize * chunk..index as usize * chunk + range.len())
            } else {
                RegionMut::empty()
            };
            let combine = if sum { Combine::Sum } else { Combine::Copy };
            slot.from = peer;
            for part in self.buffers.output.cut(&range) {
                slot.receives.push(transport.post_recv(rank, tag, part, combine, scratch)?);
            }
        }
    }
}

fn overlaps(sends: &[(SendId, Range<usize>)], range: &Range<usize>) -> bool {
    sends.iter().any(|(_, sent)| sent.start < range.end && range.start < sent.end)
}

/// Removes the sends that are complete.
fn retire(sends: &mut Vec<(SendId, Range<usize>)>, transport: &mut dyn Transport) -> Result<(), TransportError> {
    let mut failure = None;
    sends.retain(|(id, _)| {
        transport.send_done(*id).map(|done| !done).unwrap_or_else(|error| {
            failure = Some(error);
            true
        })
    });
    failure.map_or(Ok(()), Err)
}
