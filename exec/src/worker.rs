//! Interprets one rank's tasks, makes progress on exchanges between them, and records when each began and ended.
//!
//! Follows the rules that the simulator simulates: tasks of the compute stream run in program order, one at a time; an
//! exchange starts as soon as the tasks in its `after` are done; progress of exchanges comes before the next compute
//! task.

mod ahead;
mod batch_claims;
mod compute;
mod dealing;
mod deferred;
mod evaluation;
mod exchanges;
mod groups;
mod learning;
mod periodic;
mod saving;
mod shuffle;
mod waiting;

use std::sync::PoisonError;
use std::time::Instant;

use lockstep_models::{
    AccuracyMonitor, Claim, Decision, Driver, Multiplied, Need, Observation, Op, PeriodicSpan, Role, RunControl, Span,
    Stream, TaskId,
};
use lockstep_topology::Time;

use crate::error::ExecError;
use crate::exchange::ExchangeTraffic;
use crate::flight::Recorder;
use crate::rank_memory::RankMemory;
use crate::replica::Evaluation;
use crate::setup::Setup;
use crate::snapshot::{Log, Order};
use crate::transport::Transport;
use deferred::Deferred;
use exchanges::Slot;
use learning::Beside;
use saving::Orders;
use shuffle::Store;

/// What a worker returns, apart from its memory.
pub(crate) struct Outcome {
    pub spans: Vec<Span>,
    pub periodic: Vec<PeriodicSpan>,
    /// By iteration: the sum of sample losses, one sum per worker whose loss this rank computes.
    pub losses: Vec<f64>,
    /// The micro-batches that it has claimed.
    pub claims: Vec<Claim>,
    /// Evaluations at the ends of epochs; on rank 0 alone.
    pub evaluations: Vec<Evaluation>,
    /// Steps since training began after which learners restarted from the average model.
    pub restarts: Vec<u64>,
    /// The decisions made from accuracies; rank 0's counts.
    pub accuracy_monitor: AccuracyMonitor,
    /// Whether the average model has moved since it began, and so has a previous value.
    pub moves: bool,
    /// Whether it was stopped early.
    pub stopped: bool,
    /// Per peer rank.
    pub sent: Vec<ExchangeTraffic>,
    /// The same for work between steps.
    pub periodic_sent: Vec<ExchangeTraffic>,
    /// Messages sent directly from a device's memory, without a copy on the host.
    pub direct: u64,
}

/// The worker of one rank.
pub(crate) struct Worker<'a> {
    setup: &'a Setup<'a>,
    role: &'a Role,
    transport: &'a mut dyn Transport,
    clock: Instant,
    flight: &'a Recorder,
    memory: &'a mut RankMemory,
    slots: Vec<Slot>,
    /// Completed runs of each task, over iterations and repetitions.
    done: Vec<u64>,
    /// The dependencies of each task, and how often it runs in an iteration.
    needs: Vec<(Vec<Need>, u32)>,
    /// When each task last completed.
    ended: Vec<Time>,
    iteration: u32,
    /// In a pipeline stage: by step of its list, the context of the micro-batch.
    contexts: Vec<u32>,
    /// Iterations granted by the driver; no exchange may start beyond them.
    granted: u32,
    /// The synchronisation stream.
    beside: Beside,
    spans: Vec<Span>,
    /// The sums of all iterations, [`losses_of`](lockstep_models::Program::losses_of) each.
    losses: Vec<f64>,
    /// Losses and times that an asynchronous device has not reported yet.
    deferred: Deferred,
    /// The micro-batch of the current repetition, as a number within the global batch.
    micro_batch: u32,
    /// Samples taken in this iteration.
    samples: f64,
    /// Its parameters with factors of their own for rate and decay.
    multiplied: Vec<Multiplied>,
    /// The iteration whose average has no momentum: there is no z_prev yet.
    without_momentum: u32,
    accuracy_monitor: AccuracyMonitor,
    orders: Orders,
    /// By task: whether its gradients are added to earlier ones, in the first repetition and in others.
    adds: Vec<[bool; 2]>,
    /// The step, the pass (`None`: its own micro-batch) and the micro-batch whose samples the replica holds now.
    turned: Option<(u64, Option<u32>, u32)>,
    /// Its part of the samples, where ranks hold parts in memory.
    store: Option<Store>,
    /// Work between steps: when its tasks ran, and what it sent to each rank.
    periodic: Vec<PeriodicSpan>,
    periodic_sent: Vec<ExchangeTraffic>,
}

impl<'a> Worker<'a> {
    /// Prepares the rank of this endpoint; `clock` is the run's time zero.
    pub(crate) fn new(
        setup: &'a Setup<'a>,
        transport: &'a mut dyn Transport,
        memory: &'a mut RankMemory,
        clock: Instant,
    ) -> Result<Self, ExecError> {
        let program = setup.program;
        let role = &program.roles[program.role_of(transport.rank().0)];
        let flight = setup.guard.flights.of(transport.rank().0);
        let beside = role.tasks.iter().enumerate().filter(|(_, task)| task.stream == Stream::Synchronisation);
        let begun = setup
            .options
            .start
            .and_then(|state| state.average.as_ref())
            .is_some_and(|(_, previous)| previous.is_some());
        let multiplied = program.multiplied(transport.rank().0, &setup.options.optimizer.no_decay);
        let loops = role.loops();
        let mut worker = Worker {
            setup,
            role,
            transport,
            clock,
            flight,
            memory,
            slots: Vec::new(),
            done: vec![0; role.tasks.len()],
            needs: (0..role.tasks.len()).map(|task| (loops.needs(task), loops.runs_of(task))).collect(),
            ended: vec![Time::ZERO; role.tasks.len()],
            iteration: 0,
            contexts: role.order().map_or(Vec::new(), |order| order.contexts()),
            granted: 0,
            beside: Beside::new(beside.map(|(task, _)| task).collect()),
            spans: Vec::new(),
            losses: Vec::new(),
            deferred: Deferred::default(),
            micro_batch: 0,
            samples: 0.0,
            multiplied,
            without_momentum: if begun { u32::MAX } else { 0 },
            accuracy_monitor: setup.accuracy_monitor.clone(),
            orders: Orders::default(),
            adds: (0..role.tasks.len())
                .map(|task| [false, true].map(|again| role.adds_gradients(task, again)))
                .collect(),
            turned: None,
            store: None,
            periodic: Vec::new(),
            periodic_sent: vec![ExchangeTraffic::default(); program.ranks() as usize],
        };
        worker.meet_groups()?;
        let numbers = program.exchange_numbers().swap_remove(program.role_of(worker.transport.rank().0));
        for (task, exchange) in role.exchanges() {
            worker.prepare(numbers[task].unwrap_or_default(), task, exchange)?;
        }
        Ok(worker)
    }

    /// Runs until the driver stops it.
    pub(crate) fn run(mut self) -> Result<Outcome, ExecError> {
        let program = self.setup.program;
        let rank = self.transport.rank().0;
        if self.memory.replica.is_some() {
            self.store = Store::load(self.setup, rank, self.setup.first)?;
        }
        self.fill_ring()?;
        let (mut log, mut stopped) = (Log::default(), false);
        loop {
            let at = self.now();
            let observation = Observation { rank, iteration: self.iteration, at };
            let decision = self.driver(|driver| driver.next(&observation));
            let Decision::Run { batch } = decision else { break };
            self.announce(batch + 1)?;
            self.granted = self.iteration + 1;
            self.samples = 0.0;
            self.losses.resize(self.losses.len() + program.losses_of(rank), 0.0);
            self.shuffle_before(batch)?;
            self.iterate(batch)?;
            self.end_iteration(batch)?;
            self.collect_finished(1)?;
            self.iteration += 1;
            // A rank with nothing to compute must not run ahead of its exchanges.
            self.wait_until(|worker| worker.slots.iter().all(|slot| slot.keeps_up(worker.iteration)))?;
            let order = self.heed()?;
            let (evaluation, control) = self.review(batch + 1)?;
            log.evaluations.extend(evaluation);
            if control == RunControl::Restart {
                log.restarts.push(batch + 1);
                self.restart()?;
                self.without_momentum = self.iteration;
            }
            let reached = control == RunControl::Stop;
            if reached || order != Order::Continue {
                self.save(batch + 1, &log)?;
            }
            stopped = order == Order::SaveAndStop;
            if reached || stopped {
                break;
            }
        }
        self.collect_finished(0)?;
        self.wait_until(Worker::is_idle)?;
        self.end_orders()?;
        self.note_prepared();
        self.leave_groups()?;
        let Log { evaluations, restarts, .. } = log;
        let (accuracy_monitor, moves) = (self.accuracy_monitor.clone(), self.without_momentum != self.iteration);
        let (sent, direct, claims, losses) = (self.sent(), self.direct_messages(), self.claims(), self.losses);
        let (spans, periodic, periodic_sent) = (self.spans, self.periodic, self.periodic_sent);
        Ok(Outcome {
            sent,
            periodic_sent,
            direct,
            spans,
            periodic,
            losses,
            claims,
            evaluations,
            restarts,
            accuracy_monitor,
            moves,
            stopped,
        })
    }

    fn iterate(&mut self, batch: u64) -> Result<(), ExecError> {
        let tasks = &self.role.tasks;
        let mut task = 0;
        while task < tasks.len() {
            if let Op::Schedule(order) = &tasks[task].op {
                for (at, step) in order.steps.iter().enumerate() {
                    self.begin_repetition(step.micro_batch, false)?;
                    if let Some(replica) = &mut self.memory.replica {
                        replica.turn_to_context(self.contexts[at] as usize)?;
                    }
                    for inner in order.tasks_of(step).map(|inner| task + 1 + inner) {
                        if tasks[inner].stream == Stream::Compute {
                            self.step(inner, step.micro_batch, batch)?;
                        }
                    }
                }
                task += order.tasks();
            } else if let Op::Repeat { count, body, claimed } = tasks[task].op {
                for repetition in 0..count {
                    self.begin_repetition(repetition, claimed)?;
                    for inner in (task + 1..=task + body).filter(|inner| tasks[*inner].stream == Stream::Compute) {
                        self.step(inner, repetition, batch)?;
                    }
                }
                task += body;
            } else if tasks[task].stream == Stream::Compute {
                // Outside of loops there is one micro-batch.
                if let Op::Load { .. } = tasks[task].op {
                    self.begin_repetition(0, false)?;
                }
                self.step(task, 0, batch)?;
            }
            task += 1;
        }
        Ok(())
    }

    /// Waits for the dependencies of a compute task, then runs it.
    fn step(&mut self, task: TaskId, repetition: u32, batch: u64) -> Result<(), ExecError> {
        if repetition == 0 && self.role.tasks[task].op.skips_first() {
            self.done[task] += 1;
            return Ok(());
        }
        while self.progress()? {}
        let iteration = self.iteration;
        let input = self.take_input(task, repetition, batch)?;
        self.wait_until(|worker| worker.satisfied(task, iteration, repetition))?;
        let start = self.now();
        let ready = self.ready(task);
        let record = self.flight.begin(task, iteration, start);
        let from = self.mark()?;
        if let Some(fault) =
            self.setup.options.observer.fault().filter(|fault| fault.strikes(self.transport.rank().0, batch))
        {
            fault.strike();
        }
        self.execute(task, repetition, batch)?;
        let end = self.note_span(task, (iteration, repetition), ready, start, record);
        // Input spans go before the load's, which was recorded last.
        let last = self.spans.len() - 1;
        self.spans.splice(last..last, input);
        self.note_marks(from)?;
        if let Op::Load { .. } = self.role.tasks[task].op {
            self.expect_after(task, repetition, batch)?;
        }
        self.done[task] += 1;
        self.ended[task] = end;
        Ok(())
    }

    /// Records that the task that began as `record` has ended, and returns when.
    fn note_span(
        &mut self,
        task: TaskId,
        (iteration, repetition): (u32, u32),
        ready: Time,
        start: Time,
        record: u64,
    ) -> Time {
        let (rank, end) = (self.transport.rank().0, self.now());
        self.flight.end(record, end);
        self.spans.push(Span { rank, task: task as u32, iteration, repetition, ready, start, end });
        end
    }

    /// Calls the driver of this process.
    fn driver<T>(&self, ask: impl FnOnce(&mut Driver) -> T) -> T {
        ask(&mut self.setup.driver.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.elapsed().as_nanos() as u64)
    }
}
