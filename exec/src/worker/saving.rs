//! Saves the state during training: when a step begins, rank 0 decides whether the state is saved after it and whether
//! the run ends there.
//!
//! All ranks must stop after the same step, and none may wait for a message when there is no order. So rank 0 sends its
//! order before it computes the step, and the others read it after they have computed it; it has arrived by then. Rank
//! 0 alone writes: where all ranks train one model their copies are equal, a file renamed by one process is complete or
//! absent, and any number of ranks can resume from a single file.

use std::time::Instant;

use lockstep_models::{Op, Periodic};
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
use crate::whole::assemble;

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
                    let state = worker.state(steps, &collected)?;
                    worker.setup.options.observer.keep(Snapshot {
                        steps,
                        state,
                        log: Log { claims: claims.clone(), ..log.clone() },
                    })?;
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
    fn state(&mut self, steps: u64, all: &Collected) -> Result<State, ExecError> {
        let (program, seed) = (self.setup.program, self.setup.options.seed);
        let (mut weights, mut velocity, mut average) = (collected(all, Periodic::WEIGHTS).to_vec(), Vec::new(), None);
        if let Some(shared) = program.shared_models(self.transport.rank().0) {
            if weights.is_empty() {
                weights = vec![self.memory.trained().parameters()?];
            }
            let moves = self.without_momentum != self.iteration;
            let previous = if moves { Some(self.memory.model(shared.previous)?) } else { None };
            average = Some((self.memory.model(shared.average)?, previous));
        } else {
            let replica = self.memory.trained();
            let mut whole = None;
            if program.is_in_parts() {
                whole = Some(assemble(program, replica, collected(all, Periodic::MODEL), seed)?);
            }
            let replica = whole.as_mut().unwrap_or(replica);
            (weights, velocity) = (vec![replica.parameters()?], replica.velocity()?);
        }
        let statistics = self.statistics_of_all(all)?;
        let references = collected(all, Periodic::REFERENCES).iter().filter(|model| !model.is_empty());
        let position = Position::after(steps, program.global_batch(), self.setup.run_length.steps_per_epoch);
        let (references, accuracy_monitor) = (references.cloned().collect(), self.accuracy_monitor.clone());
        let buffers = self.memory.state_buffers(program)?;
        Ok(State { position, weights, statistics, velocity, average, references, buffers, accuracy_monitor })
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
