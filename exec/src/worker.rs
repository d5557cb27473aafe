//! A worker: interprets one rank's tasks, makes exchange progress between them, and notes when each began and ended.
//!
//! The rules are those that the simulator simulates: tasks of the compute stream run in program order, one at a time; an
//! exchange starts as soon as what it is `after` is done; whatever exchanges can do comes before the next compute task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_models::{Decision, Driver, Observation, Op, Phase, Program, Role, Span, Stream, TaskId};
use lockstep_topology::{Algorithm, Rank, Time};

use crate::arena::Arena;
use crate::data::{Dataset, Sampler};
use crate::device::cpu::{Mode, Sgd};
use crate::error::ExecError;
use crate::exchange::{Buffers, Exchange, Progress, Traffic, scratch_elements};
use crate::holdings::Memory;
use crate::transport::{RegionMut, Transport};

/// What a worker needs beside the program.
pub(crate) struct Setup<'a> {
    pub program: &'a Program,
    pub data: &'a Dataset,
    pub sgd: Sgd,
    pub seed: u64,
    pub threads: usize,
    pub stall_limit: Duration,
    pub driver: Driver,
    /// Called by rank 0 after each iteration with its number and mean local loss.
    pub progress: Option<&'a (dyn Fn(u32, f64) + Sync)>,
}

/// What a worker leaves beside its memory.
pub(crate) struct Outcome {
    pub spans: Vec<Span>,
    /// Sum of sample losses of each iteration on this rank.
    pub losses: Vec<f64>,
    /// Per peer rank.
    pub sent: Vec<Traffic>,
}

/// An exchange task, its machinery, and how far it is.
struct Slot {
    task: TaskId,
    exchange: Exchange,
    /// For a library's collective, which is one blocking call.
    library: Option<(Arc<[Rank]>, RegionMut)>,
    running: bool,
    /// Iterations that have been started.
    started: u32,
    ready: Time,
    start: Time,
}

/// One rank at work.
pub(crate) struct Worker<'a> {
    setup: &'a Setup<'a>,
    role: &'a Role,
    transport: &'a mut dyn Transport,
    clock: Instant,
    memory: &'a mut Memory,
    slots: Vec<Slot>,
    /// Iterations that each task has completed.
    done: Vec<u32>,
    /// When each task was last completed.
    ended: Vec<Time>,
    iteration: u32,
    /// Iterations that the driver has granted; no exchange may start beyond them.
    granted: u32,
    spans: Vec<Span>,
    loss: f64,
}

impl<'a> Worker<'a> {
    /// Prepares the rank at `transport`'s end; `clock` is the run's zero.
    pub(crate) fn new(
        setup: &'a Setup<'a>,
        transport: &'a mut dyn Transport,
        memory: &'a mut Memory,
        clock: Instant,
    ) -> Result<Self, ExecError> {
        let program = setup.program;
        let role = &program.roles[program.role_of(transport.rank().0)];
        let mut worker = Worker {
            setup,
            role,
            transport,
            clock,
            memory,
            slots: Vec::new(),
            done: vec![0; role.tasks.len()],
            ended: vec![Time::ZERO; role.tasks.len()],
            iteration: 0,
            granted: 0,
            spans: Vec::new(),
            loss: 0.0,
        };
        for (number, (task, exchange)) in role.exchanges().enumerate() {
            worker.prepare(number as u32, task, exchange)?;
        }
        Ok(worker)
    }

    /// `number` counts the role's exchanges: members of other roles meet in the same ones, under other task ids.
    fn prepare(&mut self, number: u32, task: TaskId, exchange: &lockstep_models::Exchange) -> Result<(), ExecError> {
        let program = self.setup.program;
        let group = &program.groups[exchange.group];
        let schedule = program.schedule(exchange)?;
        let window = Program::window(exchange, &schedule);
        let range = exchange.range.start as usize..exchange.range.end as usize;
        let needed = if self.transport.needs_scratch() { scratch_elements(&schedule, window) as usize } else { 0 };
        let scratch = Arena::new(vec![0.0; needed]);
        let data = self.memory.arena(exchange.buffer).region(range);
        let buffers = Buffers::in_place(data, scratch.region(0..needed));
        self.memory.scratch.push(scratch);
        let ranks: Arc<[Rank]> = group.ranks.iter().map(Rank).collect();
        let member = self.transport.rank().0 - group.ranks.first;
        let library = matches!(exchange.algorithm, Algorithm::Library(_)).then(|| (ranks.clone(), data));
        self.slots.push(Slot {
            task,
            exchange: Exchange::new(Arc::new(schedule), member, ranks, number, buffers, window),
            library,
            running: false,
            started: 0,
            ready: Time::ZERO,
            start: Time::ZERO,
        });
        Ok(())
    }

    /// Runs until the driver says stop.
    pub(crate) fn run(mut self) -> Result<Outcome, ExecError> {
        let program = self.setup.program;
        let rank = self.transport.rank().0;
        let mut driver = self.setup.driver.clone();
        let mut sampler = match self.memory.replica {
            None => None,
            Some(_) => Some(Sampler::new(
                self.setup.data.len(),
                program.batch_per_rank,
                program.accumulate,
                program.workers,
                self.setup.seed,
            )?),
        };
        let mut losses = Vec::new();
        loop {
            let at = self.now();
            let decision = driver.next(&Observation { rank, iteration: self.iteration, at });
            let Decision::Run { batch } = decision else { break };
            self.granted = self.iteration + 1;
            self.loss = 0.0;
            self.iterate(sampler.as_mut(), batch)?;
            losses.push(self.loss);
            if let (0, Some(report)) = (rank, self.setup.progress) {
                report(self.iteration, self.loss / f64::from(program.batch_per_rank * program.accumulate));
            }
            self.iteration += 1;
            // A rank with nothing to compute must not run ahead of its exchanges.
            let iteration = self.iteration;
            self.wait_until(|worker| worker.slots.iter().all(|slot| slot.started == iteration))?;
        }
        self.wait_until(|worker| worker.slots.iter().all(|slot| !slot.running))?;
        Ok(Outcome { sent: self.sent(), spans: self.spans, losses })
    }

    fn iterate(&mut self, mut sampler: Option<&mut Sampler>, batch: u64) -> Result<(), ExecError> {
        let tasks = &self.role.tasks;
        let mut task = 0;
        while task < tasks.len() {
            if let Op::Repeat { count, body } = tasks[task].op {
                for repetition in 0..count {
                    for inner in task + 1..=task + body {
                        self.step(inner, repetition, repetition + 1 == count, sampler.as_deref_mut(), batch)?;
                    }
                }
                task += body;
            } else if tasks[task].stream == Stream::Compute {
                self.step(task, 0, true, sampler.as_deref_mut(), batch)?;
            }
            task += 1;
        }
        Ok(())
    }

    /// Waits for what a compute task is after, then runs it.
    fn step(
        &mut self,
        task: TaskId,
        repetition: u32,
        last: bool,
        sampler: Option<&mut Sampler>,
        batch: u64,
    ) -> Result<(), ExecError> {
        while self.progress()? {}
        let iteration = self.iteration;
        self.wait_until(|worker| worker.satisfied(task, iteration))?;
        let start = self.now();
        let ready = self.ready(task);
        self.execute(task, repetition, sampler, batch)?;
        let end = self.now();
        self.spans.push(Span {
            rank: self.transport.rank().0,
            task: task as u32,
            iteration,
            repetition,
            ready,
            start,
            end,
        });
        if last {
            self.done[task] = iteration + 1;
            self.ended[task] = end;
        }
        Ok(())
    }

    fn execute(
        &mut self,
        task: TaskId,
        repetition: u32,
        sampler: Option<&mut Sampler>,
        batch: u64,
    ) -> Result<(), ExecError> {
        let (Some(replica), Some(sampler)) = (&mut self.memory.replica, sampler) else {
            unreachable!("check: ranks that only serve have no compute tasks");
        };
        match &self.role.tasks[task].op {
            Op::Load { .. } => {
                let mut indices = Vec::new();
                let place = sampler.micro_batch(batch, self.transport.rank().0, repetition, &mut indices);
                replica.load(self.setup.data, &indices, place);
            }
            Op::Compute { chain, phase: Phase::Forward, .. } => {
                if let Some(loss) = replica.forward(*chain, Mode::Train) {
                    self.loss += loss.sum;
                }
            }
            Op::Compute { chain, phase, .. } => {
                let scale = 1.0 / self.setup.program.global_batch() as f32;
                replica.backward(*chain, *phase, scale, repetition > 0);
            }
            Op::Update { range } => replica.update(range.start as usize..range.end as usize, &self.setup.sgd),
            Op::Repeat { .. } | Op::Exchange(_) => unreachable!("not a task of the compute stream"),
        }
        Ok(())
    }

    fn satisfied(&self, task: TaskId, iteration: u32) -> bool {
        self.role.tasks[task].after.iter().all(|after| self.done[after.task] + after.lag > iteration)
    }

    /// When the last thing that `task` is after ended, or the task before it on its stream.
    fn ready(&self, task: TaskId) -> Time {
        let after = self.role.tasks[task].after.iter().map(|after| self.ended[after.task]).max().unwrap_or(Time::ZERO);
        let before = self.spans.last().map_or(Time::ZERO, |span| span.end);
        if self.role.tasks[task].stream == Stream::Compute { after.max(before) } else { after }
    }

    /// Starts exchanges that are ready and moves those that run; true if one was started or ended.
    fn progress(&mut self) -> Result<bool, ExecError> {
        let mut moved = false;
        self.transport.poll()?;
        for index in 0..self.slots.len() {
            let (task, started) = (self.slots[index].task, self.slots[index].started);
            if !self.slots[index].running && started < self.granted && self.satisfied(task, started) {
                let (ready, start) = (self.ready(task), self.now());
                let slot = &mut self.slots[index];
                slot.exchange.restart();
                (slot.running, slot.started, slot.ready, slot.start) = (true, started + 1, ready, start);
                moved = true;
            }
            let slot = &mut self.slots[index];
            if !slot.running {
                continue;
            }
            let ended = match &slot.library {
                Some((ranks, data)) => {
                    self.transport.library_allreduce(ranks, *data)?;
                    true
                }
                None => slot.exchange.turn(self.transport)? == Progress::Done,
            };
            if ended {
                slot.running = false;
                let (iteration, ready, start) = (slot.started - 1, slot.ready, slot.start);
                let end = self.now();
                self.done[task] = iteration + 1;
                self.ended[task] = end;
                let rank = self.transport.rank().0;
                self.spans.push(Span { rank, task: task as u32, iteration, repetition: 0, ready, start, end });
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Makes progress until the condition holds; blocks where nothing moves, and gives up at the stall limit.
    fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> Result<(), ExecError> {
        let mut last_move = Instant::now();
        let mut messages = self.messages();
        while !condition(self) {
            if self.progress()? {
                last_move = Instant::now();
                continue;
            }
            // A long exchange moves message by message.
            let now = self.messages();
            if now != messages {
                (last_move, messages) = (Instant::now(), now);
            }
            let waited = last_move.elapsed();
            if waited > self.setup.stall_limit {
                let error = self.stall(waited.as_secs_f64());
                self.transport.abort(&error.to_string());
                return Err(error);
            }
            self.transport.wait(Some(Instant::now() + self.setup.stall_limit.min(Duration::from_millis(500))))?;
        }
        Ok(())
    }

    /// Messages sent so far.
    fn messages(&self) -> u64 {
        self.slots.iter().flat_map(|slot| slot.exchange.sent()).map(|traffic| traffic.messages).sum()
    }

    fn stall(&self, seconds: f64) -> ExecError {
        let waits = self.slots.iter().filter(|slot| slot.running).map(|slot| {
            let peers: Vec<String> =
                slot.exchange.waits().map(|(lane, rank)| format!("rank {} (lane {lane})", rank.0)).collect();
            format!("`{}` iteration {} for {}", self.role.tasks[slot.task].name, slot.started - 1, peers.join(", "))
        });
        let waiting = waits.collect::<Vec<_>>().join("; ");
        ExecError::Stall { rank: self.transport.rank().0, waiting, seconds }
    }

    fn sent(&self) -> Vec<Traffic> {
        let mut sent = vec![Traffic::default(); self.setup.program.ranks() as usize];
        for slot in &self.slots {
            let Op::Exchange(exchange) = &self.role.tasks[slot.task].op else { continue };
            let first = self.setup.program.groups[exchange.group].ranks.first as usize;
            for (peer, traffic) in slot.exchange.sent().iter().enumerate() {
                sent[first + peer].messages += traffic.messages;
                sent[first + peer].bytes += traffic.bytes;
            }
        }
        sent
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.elapsed().as_nanos() as u64)
    }
}
