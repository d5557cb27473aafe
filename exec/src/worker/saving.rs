//! Saves the state during training: when a step begins, rank 0 decides whether the state is saved after it and whether
//! the run ends there.
//!
//! All ranks must stop after the same step, and none may wait for a message when there is no order. So rank 0 sends its
//! order before it computes the step, and the others read it after they have computed it; it has arrived by then. Rank
//! 0 alone writes: where all ranks train one model their copies are equal, a file renamed by one process is complete or
//! absent, and any number of ranks can resume from a single file.

use std::borrow::Cow;
use std::time::Instant;

use lockstep_models::{Buffer, Op, Periodic};
use lockstep_topology::Rank;

use super::Worker;
use super::waiting::NAP;
use crate::claims::gather_claims;
use crate::error::ExecError;
use crate::flight::Aside;
use crate::periodic::{Collected, collected};
use crate::snapshot::{Log, ORDERS, Order, Snapshot};
use crate::state::{Position, State};
use crate::transport::{Combine, RegionMut, SendId, Tag, TransportError, control};
use crate::whole::{assemble, own_values};

/// Kind of the messages that carry orders.
const ORDER: u32 = 8;
/// Kind of the message that rank 0 has saved the state.
const KEPT: u32 = 11;

/// Orders of rank 0 that are in flight.
#[derive(Default)]
pub(super) struct Orders {
    sends: Vec<SendId>,
    /// Rank 0's order for the current step.
    own: Option<Order>,
}

impl Worker<'_> {
    /// On rank 0: decides what follows step `steps` (counted from 1), and sends the order to the others.
    pub(super) fn announce(&mut self, steps: u64) -> Result<(), ExecError> {
        if !self.setup.options.observer.saves() || self.transport.rank().0 != 0 {
            return Ok(());
        }
        let order = self.setup.options.observer.order(steps);
        self.orders.own = Some(order);
        self.retire_orders()?;
        let place = order as usize;
        for rank in 1..self.transport.ranks() {
            let word = self.memory.orders.region_to_read(place..place + 1);
            let id = self.transport.post_send(Rank(rank), Tag::control(ORDER), word)?;
            self.orders.sends.push(id);
        }
        Ok(())
    }

    /// The order for the step that has ended; the same on all ranks.
    pub(super) fn heed(&mut self) -> Result<Order, ExecError> {
        if !self.setup.options.observer.saves() {
            return Ok(Order::Continue);
        }
        if let Some(own) = self.orders.own.take() {
            return Ok(own);
        }
        let place = ORDERS.len();
        let into = self.memory.orders.region(place..place + 1);
        let id = self.transport.post_recv(Rank(0), Tag::control(ORDER), into, Combine::Copy, RegionMut::empty())?;
        loop {
            while self.progress()? {}
            if self.transport.recv_done(id)? {
                break;
            }
            self.transport.wait(Some(Instant::now() + NAP))?;
        }
        // SAFETY: the message is done, and there is no other.
        let word: u32 = unsafe { self.memory.orders.slice(place..place + 1) }[0];
        let order = ORDERS.get(word as usize).copied();
        order.ok_or_else(|| {
            let cause = format!("rank 0 ordered {word}, which is unknown");
            ExecError::Transport(TransportError::Aborted { rank: Rank(0), cause })
        })
    }

    /// Removes the sends of orders that are complete.
    fn retire_orders(&mut self) -> Result<(), ExecError> {
        let mut left = Vec::new();
        for id in std::mem::take(&mut self.orders.sends) {
            if !self.transport.send_done(id)? {
                left.push(id);
            }
        }
        self.orders.sends = left;
        Ok(())
    }

    /// Waits until all orders have arrived.
    pub(super) fn end_orders(&mut self) -> Result<(), ExecError> {
        loop {
            self.transport.poll()?;
            self.retire_orders()?;
            if self.orders.sends.is_empty() {
                return Ok(());
            }
            self.transport.wait(Some(Instant::now() + NAP))?;
        }
    }

    /// Passes the state after `steps` steps to the observer; every rank calls it and returns once the state is saved.
    pub(super) fn save(&mut self, steps: u64, log: &Log) -> Result<(), ExecError> {
        self.collect_finished(0)?;
        self.wait_until(Worker::is_idle)?;
        let record = self.flight.begin_aside(Aside::Saving, self.iteration, self.now());
        let (rank, program) = (self.transport.rank().0, &self.setup.periodic.checkpoint);
        let own = self.claims();
        let claims = if self.setup.program.claims() { gather_claims(self.transport, &own)? } else { None };
        let claims = self.setup.claims(self.iteration, claims.unwrap_or_default());
        if rank < program.ranks() {
            let collected = self.collect(Periodic::Checkpoint, program)?;
            let role = &program.roles[program.role_of(rank)];
            if let Some(save) = role.tasks.iter().position(|task| matches!(task.op, Op::Save { .. })) {
                self.timed(Periodic::Checkpoint, (save, 0), |worker| {
                    let observer = worker.setup.options.observer;
                    let state = worker.state(steps, &collected)?;
                    observer.keep(Snapshot { steps, state, log: Log { claims, ..log.clone() } })?;
                    Ok(())
                })?;
            }
        }
        if rank != 0 {
            // The message also keeps the other ranks below the stall limit while rank 0 writes.
            control::receive(self.transport, Rank(0), KEPT)?;
        }
        for other in (1..self.transport.ranks()).filter(|_| rank == 0) {
            control::send(self.transport, Rank(other), KEPT, steps)?;
        }
        self.flight.end(record, self.now());
        Ok(())
    }

    /// The state after `steps` steps, from rank 0's values and those that it collected.
    fn state<'w>(&'w mut self, steps: u64, all: &'w Collected) -> Result<State<Cow<'w, [f32]>>, ExecError> {
        let program = self.setup.program;
        let borrowed = |models: &'w [Vec<f32>]| models.iter().map(|model| Cow::Borrowed(model.as_slice()));
        let statistics = self.statistics_of_all(all)?.into_iter().map(Cow::Owned).collect();
        let position = Position::after(steps, program.global_batch(), self.setup.run_length.steps_per_epoch);
        let references = borrowed(collected(all, Periodic::REFERENCES)).filter(|model| !model.is_empty()).collect();
        let accuracy_monitor = self.accuracy_monitor.clone();
        let shared = program.shared_models(self.transport.rank().0);
        let moves = self.without_momentum != self.iteration;
        let mut weights: Vec<_> = borrowed(collected(all, Periodic::WEIGHTS)).collect();
        let mut states = Vec::new();
        let mut wanted = Vec::new();
        if let Some(shared) = shared {
            wanted.extend(weights.is_empty().then_some(Buffer::Parameters));
            wanted.extend([Some(shared.average), moves.then_some(shared.previous)].into_iter().flatten());
        } else if program.is_in_parts() {
            let (replica, parts) = (self.memory.trained(), collected(all, Periodic::MODEL));
            let mut all = assemble(program, own_values(replica)?, parts).into_iter().map(Cow::Owned);
            weights = all.by_ref().take(1).collect();
            states = all.collect();
        } else {
            wanted.push(Buffer::Parameters);
            wanted.extend((0..program.rule.states().len()).map(Buffer::State));
        }
        wanted.extend(program.state_buffers().map(|(buffer, _)| buffer));
        let mut models = self.memory.models(&wanted)?.into_iter();
        if weights.is_empty() {
            weights.extend(models.next());
        }
        let average = shared.and_then(|_| Some((models.next()?, if moves { models.next() } else { None })));
        if shared.is_none() && !program.is_in_parts() {
            states = models.by_ref().take(program.rule.states().len()).collect();
        }
        let buffers = models.collect();
        let moments = program.moments;
        Ok(State { position, weights, statistics, states, moments, average, references, buffers, accuracy_monitor })
    }

    /// The running statistics of all workers, on rank 0.
    pub(super) fn statistics_of_all(&mut self, all: &Collected) -> Result<Vec<Vec<f32>>, ExecError> {
        let statistics = collected(all, Periodic::STATISTICS);
        if !statistics.is_empty() {
            return Ok(statistics.to_vec());
        }
        let own = self.memory.trained().statistics()?;
        Ok(vec![own; self.setup.program.workers() as usize])
    }
}
