//! Runs a worker's exchanges: prepares each once, starts it when its dependencies are done, and advances it between
//! tasks.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{Buffer, Members, Program, Stream, TaskId, Turns};
use lockstep_topology::{Library, Rank, Time};

use super::Worker;
use crate::device::Arrival;
use crate::error::ExecError;
use crate::exchange::{Buffers, ExchangeTraffic, Progress, RunningExchange, scratch_elements};
use crate::fault::FaultKind;
use crate::transport::RegionMut;

/// An exchange task, its engine, and its progress.
pub(super) struct Slot {
    task: TaskId,
    exchange: RunningExchange,
    way: Way,
    pub(super) running: bool,
    /// The copy from the device to the host, while it is in flight.
    arrival: Option<Arrival>,
    buffer: Buffer,
    /// Its part of the buffer in the first run, and the parts of other runs.
    part: Range<usize>,
    turns: Turns,
    /// Runs started so far, and runs per iteration.
    pub(super) started: u32,
    each: u32,
    ready: Time,
    start: Time,
    /// Whether a task of the rank's compute stream waits for the run of the iteration before.
    is_awaited: bool,
    /// Its number in the flight recorder.
    record: u64,
}

/// How an exchange is performed.
enum Way {
    /// By its own steps, with messages from and to host memory.
    Steps,
    /// By its own steps, with messages from and to device memory.
    Direct,
    /// By the transport's library, in one blocking call.
    Library(Arc<[Rank]>, RegionMut),
    /// By the devices of a group among themselves, without the host.
    Devices(usize),
}

impl Slot {
    /// The number of runs in `iterations`.
    pub(super) fn until(&self, iterations: u32) -> u32 {
        iterations * self.each
    }

    /// Whether the rank may begin iteration `iteration`: the exchange has started in all before it, or its own passes
    /// will wait until it has.
    pub(super) fn keeps_up(&self, iteration: u32) -> bool {
        self.started + if self.is_awaited { self.each } else { 0 } >= self.until(iteration)
    }

    /// Its part of the buffer in the latest run.
    fn part(&self) -> Range<usize> {
        let by = self.turns.first(u64::from(self.started) - 1) as usize;
        self.part.start + by..self.part.end + by
    }
}

impl Worker<'_> {
    /// `number` is the exchange's in the program: members of other roles take part in it under other task ids.
    pub(super) fn prepare(
        &mut self,
        number: u32,
        task: TaskId,
        exchange: &lockstep_models::Exchange,
    ) -> Result<(), ExecError> {
        let program = self.setup.program;
        let rank = self.transport.rank().0;
        let group = program.group_of(exchange, rank);
        let schedule = program.schedule_among(exchange, &group)?;
        let (window, dtype) = (Program::window(exchange, &schedule), program.dtype(exchange.buffer));
        let held = match exchange.buffer {
            Buffer::Declared(index) => program.held(index, rank),
            _ => exchange.range.clone(),
        };
        let (start, end) = (held.start.max(exchange.range.start), held.end.min(exchange.range.end));
        let by_devices = exchange.algorithm.library() == Some(Library::Devices);
        let is_far = |rank| !self.transport.is_near(Rank(rank));
        let needed = if self.transport.needs_scratch() && !by_devices && group.iter().any(is_far) {
            scratch_elements(&schedule, window) as usize
        } else {
            0
        };
        let offset = if matches!(exchange.buffer, Buffer::Declared(_)) { held.start } else { 0 };
        let of_group = program.part_of(exchange, &group);
        let mut part = self.memory.place(exchange.buffer, &((start - offset) as usize..(end - offset) as usize));
        if !exchange.shared.is_empty() {
            part.start += (of_group.start - exchange.range.start) as usize;
            part.end = part.start + (of_group.end - of_group.start) as usize;
        }
        // The padding of the exchange follows the part.
        part.end += schedule.elements().saturating_sub(of_group.end - of_group.start) as usize;
        let is_direct = !by_devices && self.is_direct(exchange, &group)?;
        let on_device = if is_direct { self.memory.device().region(exchange.buffer, part.clone()) } else { None };
        let (data, scratch) = match on_device {
            _ if by_devices => (RegionMut::empty(), RegionMut::empty()),
            Some(data) if needed > 0 => (data, self.memory.device().receive_buffer(needed)?),
            Some(data) => (data, RegionMut::empty()),
            None => {
                (self.memory.device().host(exchange.buffer)?.region(part.clone()), self.memory.scratch(needed, dtype))
            }
        };
        let buffers = Buffers::in_place(data, scratch).from_element((start - exchange.range.start) as usize);
        let ranks: Arc<[Rank]> = group.iter().map(Rank).collect();
        let member = group.member(rank).expect("a rank belongs to its group");
        let way = match exchange.algorithm.library() {
            Some(Library::Transport) => Way::Library(ranks.clone(), data),
            Some(Library::Devices) => Way::Devices(self.device_group(exchange)),
            None if is_direct => Way::Direct,
            // The check before a run has refused a library that is predicted only.
            None | Some(Library::Predicted) => Way::Steps,
        };
        self.slots.push(Slot {
            task,
            exchange: RunningExchange::new(Arc::new(schedule), member, ranks, number, buffers, window),
            way,
            running: false,
            arrival: None,
            buffer: exchange.buffer,
            part,
            turns: exchange.turns,
            started: 0,
            each: self.needs[task].1,
            ready: Time::ZERO,
            start: Time::ZERO,
            is_awaited: self.role.is_awaited_next(task),
            record: 0,
        });
        Ok(())
    }

    /// Whether an exchange's messages go between devices, without a copy on the host. All members must have devices;
    /// those in this process must be able to access each other, and MPI must take device addresses if some members are
    /// elsewhere. Other processes may decide otherwise: each end chooses the memory of its side.
    fn is_direct(&self, exchange: &lockstep_models::Exchange, group: &Members) -> Result<bool, ExecError> {
        let program = self.setup.program;
        let trains = |rank| {
            let tasks = &program.roles[program.role_of(rank)].tasks;
            tasks.iter().any(|task| task.stream == Stream::Compute)
        };
        let near = |rank: &u32| self.transport.is_near(Rank(*rank));
        let library = exchange.algorithm.library().is_some();
        let meet = self.transport.takes_devices() || group.iter().all(|rank| near(&rank));
        Ok(meet
            && !library
            && group.iter().all(trains)
            && self.setup.options.devices.reach(&mut group.iter().filter(near))?)
    }

    /// Starts exchanges that are ready and advances those in flight; returns whether one started or ended.
    pub(super) fn progress(&mut self) -> Result<bool, ExecError> {
        self.transport.poll()?;
        let mut moved = false;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let (task, started) = (slot.task, slot.started);
            let (iteration, repetition) = (started / slot.each, started % slot.each);
            let due = !slot.running && iteration < self.granted && self.satisfied(task, iteration, repetition);
            if due && !self.is_left_out(index) {
                let (ready, start) = (self.ready(task), self.now());
                let slot = &mut self.slots[index];
                slot.exchange.restart();
                (slot.running, slot.started, slot.ready, slot.start) = (true, started + 1, ready, start);
                let (buffer, part) = (slot.buffer, slot.part());
                if slot.turns != Turns::ONE {
                    let device = self.memory.device();
                    let data = match (&slot.way, device.region(buffer, part.clone())) {
                        (Way::Direct, Some(data)) => data,
                        _ => device.host(buffer)?.region(part.clone()),
                    };
                    slot.exchange.turn_to(data);
                }
                slot.record = self.flight.begin_exchange(index, task, iteration, start);
                match slot.way {
                    Way::Devices(group) => self.memory.device().sum(group, buffer, part)?,
                    Way::Direct => slot.arrival = self.memory.device().fence()?,
                    _ => slot.arrival = self.memory.device().copy_to_host(buffer, part)?,
                }
                moved = true;
            }
            if !self.slots[index].running || !self.has_arrived(index)? {
                continue;
            }
            let slot = &mut self.slots[index];
            let ended = match &slot.way {
                Way::Steps | Way::Direct => slot.exchange.turn(self.transport)? == Progress::Done,
                Way::Library(ranks, data) => {
                    self.transport.library_allreduce(ranks, *data)?;
                    true
                }
                Way::Devices(group) => self.memory.device().is_ready(*group)?,
            };
            if ended {
                if !matches!(slot.way, Way::Devices(_) | Way::Direct) {
                    self.memory.device().copy_to_device(slot.buffer, slot.part())?;
                }
                slot.running = false;
                let run = ((slot.started - 1) / slot.each, (slot.started - 1) % slot.each);
                let (ready, start, record) = (slot.ready, slot.start, slot.record);
                let end = self.note_span(task, run, ready, start, record);
                (self.done[task], self.ended[task]) = (self.done[task] + 1, end);
                moved = true;
            }
        }
        Ok(self.synchronise()? || moved)
    }

    /// Whether the data of the role's exchange number `index` has been copied to the host; the exchange begins with
    /// that.
    fn has_arrived(&mut self, index: usize) -> Result<bool, ExecError> {
        let Some(arrival) = self.slots[index].arrival else { return Ok(true) };
        if !self.memory.device().arrived(arrival)? {
            return Ok(false);
        }
        let now = self.now();
        let slot = &mut self.slots[index];
        (slot.arrival, slot.ready, slot.start) = (None, now, now);
        Ok(true)
    }

    /// Whether a copy from the device or an exchange between devices is in flight, whose completion no message signals.
    pub(super) fn awaits_arrivals(&self) -> bool {
        let by_device = |slot: &Slot| slot.running && matches!(slot.way, Way::Devices(_));
        self.slots.iter().any(|slot| slot.arrival.is_some() || by_device(slot))
    }

    /// Messages sent from device memory so far.
    pub(super) fn direct_messages(&self) -> u64 {
        let direct = self.slots.iter().filter(|slot| matches!(slot.way, Way::Direct));
        direct.flat_map(|slot| slot.exchange.sent()).map(|(_, traffic)| traffic.messages).sum()
    }

    /// Messages sent so far.
    pub(super) fn messages(&self) -> u64 {
        self.slots.iter().flat_map(|slot| slot.exchange.sent()).map(|(_, traffic)| traffic.messages).sum()
    }

    /// Whether an injected fault keeps the role's exchange number `index` from starting; swaps the first two if that is
    /// the fault.
    fn is_left_out(&mut self, index: usize) -> bool {
        let step = self.setup.first + u64::from(self.slots[index].started / self.slots[index].each);
        let Some(fault) =
            self.setup.options.observer.fault().filter(|fault| fault.strikes(self.transport.rank().0, step))
        else {
            return false;
        };
        if fault.kind == FaultKind::Order && index < 2 {
            self.slots[index].exchange.pose_as(1 - index as u32);
        }
        fault.kind == FaultKind::Skip && index == 0
    }

    /// Records in the flight recorder which ranks exchanges and claims wait for.
    pub(super) fn record_waits(&self) {
        let mut peers: Vec<u32> = self
            .slots
            .iter()
            .filter(|slot| slot.running)
            .flat_map(|slot| slot.exchange.waits())
            .map(|(_, rank)| rank.0)
            .chain(self.missing_claims())
            .collect();
        peers.sort_unstable();
        peers.dedup();
        self.flight.wait_for(peers.into_iter());
    }

    pub(super) fn sent(&self) -> Vec<ExchangeTraffic> {
        let mut sent = vec![ExchangeTraffic::default(); self.setup.program.ranks() as usize];
        for slot in &self.slots {
            for (rank, traffic) in slot.exchange.sent() {
                sent[rank.0 as usize].messages += traffic.messages;
                sent[rank.0 as usize].bytes += traffic.bytes;
            }
        }
        sent
    }
}
