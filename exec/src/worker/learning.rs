//! What only learners do: they claim batches, follow the rules of model averaging, and synchronise beside the compute stream.

use std::ops::Range;

use lockstep_models::{AveragingRule, Buffer, Op, TaskId};

use super::{Setup, Worker};
use crate::device::Step;
use crate::error::ExecError;

/// The tasks of the synchronisation stream, and which of them comes next.
pub(super) struct Beside {
    tasks: Vec<TaskId>,
    /// All of the iterations before this one are done.
    pub(super) iteration: u32,
    next: usize,
}

impl Beside {
    /// The tasks that `stream` selects, in program order.
    pub(super) fn new(tasks: Vec<TaskId>) -> Beside {
        Beside { tasks, iteration: 0, next: 0 }
    }

    fn step(&mut self) {
        self.next += 1;
        if self.next == self.tasks.len() {
            (self.iteration, self.next) = (self.iteration + 1, 0);
        }
    }
}

impl Worker<'_> {
    /// Whether no exchange is in flight and every iteration that was begun is synchronised.
    pub(super) fn settled(&self) -> bool {
        let synchronised = self.beside.tasks.is_empty() || self.beside.iteration >= self.granted;
        synchronised && self.slots.iter().all(|slot| !slot.running)
    }

    /// Runs the tasks of the synchronisation stream that are ready; true if there were any.
    pub(super) fn synchronise(&mut self) -> Result<bool, ExecError> {
        let mut moved = false;
        while let Some(&task) = self.beside.tasks.get(self.beside.next) {
            let iteration = self.beside.iteration;
            if iteration >= self.granted || !self.satisfied(task, iteration) {
                break;
            }
            let (ready, start) = (self.ready(task), self.now());
            let record = self.flight.begin(task, iteration, start);
            self.average(task, iteration)?;
            let end = self.note_span(task, (iteration, 0), ready, start, record);
            (self.done[task], self.ended[task]) = (iteration + 1, end);
            self.beside.step();
            moved = true;
        }
        Ok(moved)
    }

    /// Does what the rule of a task of the synchronisation stream says.
    fn average(&mut self, task: TaskId, iteration: u32) -> Result<(), ExecError> {
        let (Op::Averaging { rule, range }, Some(averaging)) =
            (&self.role.tasks[task].op, self.setup.program.averaging)
        else {
            unreachable!("check: models are averaged where there are several");
        };
        let range = range.start as usize..range.end as usize;
        if let (AveragingRule::Reference, Some(alpha)) = (rule, averaging.reference_alpha) {
            let step = Step::MoveReference { alpha: alpha as f32 };
            return Ok(self.memory.device().step(range, &step)?);
        }
        let momentum = averaging.momentum.unwrap_or(self.setup.options.optimizer.momentum) as f32;
        let momentum = (iteration != self.without_momentum).then_some(momentum);
        Ok(self.memory.device().step(range, &Step::Average { momentum })?)
    }

    /// Does what the rule of a task of the compute stream says, in step `batch` since training began.
    pub(super) fn learn(&mut self, rule: AveragingRule, range: &Range<u64>, batch: u64) -> Result<(), ExecError> {
        let Setup { program, options, course, .. } = self.setup;
        let range = range.start as usize..range.end as usize;
        let step = options.optimizer.step(batch, course);
        let step = match rule {
            AveragingRule::Descend => Step::Descend(step),
            AveragingRule::Correct => {
                let alpha = program.averaging.map_or(0.0, |averaging| averaging.alpha as f32);
                Step::Correct { step, alpha, consensus: self.consensus(), learned: self.learned }
            }
            AveragingRule::Reference | AveragingRule::Average => {
                unreachable!("check: it stands on the synchronisation stream")
            }
        };
        Ok(self.memory.device().step(range, &step)?)
    }

    /// The model that this learner is corrected against.
    pub(super) fn consensus(&self) -> Buffer {
        self.setup.program.consensus(self.transport.rank().0)
    }

    /// Takes the micro-batch of a repetition: the rank's own, or the one that it gets where it claims; false if there is none
    /// left for it.
    pub(super) fn begin_repetition(&mut self, repetition: u32, claimed: bool) -> Result<bool, ExecError> {
        let rank = self.transport.rank().0;
        self.micro_batch = if claimed {
            // Who still has exchange work to do is not free.
            while self.progress()? {}
            let Some(micro_batch) = self.claim()? else { return Ok(false) };
            micro_batch
        } else {
            rank * self.setup.program.accumulate + repetition
        };
        self.learned = true;
        Ok(true)
    }

    /// Leaves out the repetitions that are left of `body`.
    pub(super) fn leave_out(&mut self, body: impl Iterator<Item = TaskId>) {
        body.for_each(|task| self.done[task] = self.iteration + 1);
    }
}
