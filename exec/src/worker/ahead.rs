//! What a worker will load next, so that its samples are made while it computes on these.

use lockstep_models::{Op, TaskId};

use super::compute::samples_of;
use super::{Setup, Worker};
use crate::data::Feed;
use crate::error::ExecError;

impl Worker<'_> {
    /// Has what follows the load `task` in `repetition` of step `batch` made ahead. A worker that claims its batches does not know what
    /// follows.
    pub(super) fn expect_after(&mut self, task: TaskId, repetition: u32, batch: u64) -> Result<(), ExecError> {
        if !Feed::makes(self.setup.data) {
            return Ok(());
        }
        let Some(loads) = self.loads() else { return Ok(()) };
        let Some(now) = loads.iter().position(|load| *load == (task, repetition)) else { return Ok(()) };
        let Setup { program, course, .. } = self.setup;
        let rank = self.transport.rank().0;
        let of_step = loads.len();
        let next = (now + 1..).map(|load| (batch + (load / of_step) as u64, loads[load % of_step]));
        let (setup, store, role) = (self.setup, &self.store, self.role);
        let ahead = next.take_while(|(batch, _)| *batch < course.steps);
        let ahead = ahead.map_while(|(batch, (task, repetition))| {
            let Op::Load { pass, .. } = role.tasks[task].op else { return None };
            let micro_batch = program.source(rank) * program.accumulate + repetition;
            let (mut indices, places) = samples_of(setup, batch, pass, (rank, micro_batch));
            if let Some(store) = store {
                // Behind a shuffle the rank holds others.
                indices = store.drawn_unshuffled(batch, micro_batch / program.accumulate, repetition)?;
            }
            Some((indices, places[0]))
        });
        let of = store.as_ref().map_or(self.setup.data, |store| store.data());
        Ok(self.memory.trained().expect(of, ahead)?)
    }

    /// The loads of an iteration in their order, with their repetitions; `None` where micro-batches are claimed.
    fn loads(&self) -> Option<Vec<(TaskId, u32)>> {
        let tasks = &self.role.tasks;
        let is_load = |task: &TaskId| matches!(tasks[*task].op, Op::Load { samples: 1.., .. });
        let (mut loads, mut task) = (Vec::new(), 0);
        while task < tasks.len() {
            match &tasks[task].op {
                Op::Repeat { claimed: true, .. } => return None,
                Op::Repeat { count, body, .. } => {
                    let body = task + 1..=task + body;
                    loads.extend((0..*count).flat_map(|run| body.clone().filter(is_load).map(move |task| (task, run))));
                    task = *body.end();
                }
                Op::Schedule(order) => {
                    for step in &order.steps {
                        let of_step = order.tasks_of(step).map(|inner| task + 1 + inner).filter(is_load);
                        loads.extend(of_step.map(|task| (task, step.micro_batch)));
                    }
                    task += order.tasks();
                }
                _ => loads.extend(Some(task).filter(is_load).map(|task| (task, 0))),
            }
            task += 1;
        }
        Some(loads)
    }
}
