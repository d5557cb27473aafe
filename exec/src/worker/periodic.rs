//! Runs the tasks of the work between steps, and records when each began and ended.

use lockstep_models::{Exchange, Periodic, PeriodicSpan, Program, Span, TaskId};
use lockstep_topology::{Rank, Time};

use super::Worker;
use crate::error::ExecError;
use crate::exchange::ExchangeTraffic;
use crate::periodic::{Collected, collect};
use crate::whole::own_pieces;

impl Worker<'_> {
    /// Runs a task of periodic work and records its span.
    pub(super) fn timed<T>(
        &mut self,
        kind: Periodic,
        run_of: (TaskId, u32),
        run: impl FnOnce(&mut Self) -> Result<T, ExecError>,
    ) -> Result<T, ExecError> {
        let start = self.now();
        let value = run(self)?;
        self.note_periodic(kind, run_of, start);
        Ok(value)
    }

    /// Records that a task of periodic work that began at `start` has ended.
    pub(super) fn note_periodic(&mut self, kind: Periodic, (task, repetition): (TaskId, u32), start: Time) {
        let (rank, iteration, end) = (self.transport.rank().0, self.iteration, self.now());
        let span = Span { rank, task: task as u32, iteration, repetition, ready: start, start, end };
        self.periodic.push(PeriodicSpan { kind, span });
    }

    /// Adds traffic of periodic work to its totals.
    pub(super) fn count_sent(&mut self, sent: impl Iterator<Item = (Rank, ExchangeTraffic)>) {
        for (to, traffic) in sent {
            let all = &mut self.periodic_sent[to.0 as usize];
            all.messages += traffic.messages;
            all.bytes += traffic.bytes;
        }
    }

    /// Runs the exchanges of `program`, periodic work, by which rank 0 collects values.
    pub(super) fn collect(&mut self, kind: Periodic, program: &Program) -> Result<Collected, ExecError> {
        let role = &program.roles[program.role_of(self.transport.rank().0)];
        let mut all = Collected::new();
        for (task, exchange) in role.exchanges() {
            let values = self.timed(kind, (task, 0), |worker| {
                let own = worker.own_values(kind, exchange)?;
                let number = worker.setup.periodic.number;
                let gathered = collect(worker.transport, (program, exchange, number), own)?;
                worker.count_sent(gathered.sent.into_iter());
                Ok(gathered.parts)
            })?;
            all.push((exchange.buffer, values));
        }
        Ok(all)
    }

    /// The values that this rank sends to rank 0 in an exchange.
    fn own_values(&mut self, kind: Periodic, exchange: &Exchange) -> Result<Vec<f32>, ExecError> {
        let (program, rank) = (self.setup.program, self.transport.rank().0);
        if exchange.buffer == Periodic::REFERENCES {
            let reference = program.shared_models(rank).and_then(|shared| shared.reference);
            return Ok(reference.map(|model| self.memory.model(model)).transpose()?.unwrap_or_default());
        }
        let replica = self.memory.trained();
        Ok(match exchange.buffer {
            Periodic::MODEL => own_pieces(program, replica, rank, kind)?,
            Periodic::WEIGHTS => replica.parameters()?,
            Periodic::STATISTICS => replica.statistics()?,
            other => unreachable!("periodic work collects no {other:?}"),
        })
    }
}
