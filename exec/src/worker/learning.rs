//! Claims batches, synchronizes learners beside the compute stream, and evaluates formulas.

use lockstep_models::{Buffer, Elementwise, Op, RunLength, SquareSum, Squares, StepNumbers, TaskId, multiplied_parts};

use super::{Setup, Worker};
use crate::error::ExecError;

/// The tasks of the synchronisation stream, and the next one of them.
pub(super) struct Beside {
    tasks: Vec<TaskId>,
    /// The current iteration; all earlier ones are done.
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
    /// Whether no exchange is in flight and every iteration that was begun is synchronized.
    pub(super) fn is_idle(&self) -> bool {
        let synchronised = self.beside.tasks.is_empty() || self.beside.iteration >= self.granted;
        synchronised && self.slots.iter().all(|slot| !slot.running && slot.started == slot.until(self.iteration))
    }

    /// Runs the tasks of the synchronisation stream that are ready; returns whether there were any.
    pub(super) fn synchronise(&mut self) -> Result<bool, ExecError> {
        let mut moved = false;
        while let Some(&task) = self.beside.tasks.get(self.beside.next) {
            let iteration = self.beside.iteration;
            if iteration >= self.granted || !self.satisfied(task, iteration, 0) {
                break;
            }
            let (ready, start) = (self.ready(task), self.now());
            let record = self.flight.begin(task, iteration, start);
            let role = self.role;
            let Op::Elementwise(of) = &role.tasks[task].op else {
                unreachable!("check: the synchronisation stream has elementwise tasks alone");
            };
            self.evaluate_formula(of, (iteration, 0), self.setup.first + u64::from(iteration))?;
            let end = self.note_span(task, (iteration, 0), ready, start, record);
            (self.done[task], self.ended[task]) = (self.done[task] + 1, end);
            self.beside.step();
            moved = true;
        }
        Ok(moved)
    }

    /// Evaluates a formula on a range of buffers, in a repetition of an iteration that is step `batch` since training began.
    pub(super) fn evaluate_formula(
        &mut self,
        of: &Elementwise,
        (iteration, repetition): (u32, u32),
        batch: u64,
    ) -> Result<(), ExecError> {
        let Setup { options, run_length, program, .. } = self.setup;
        let run_length = RunLength { global_batch: program.update_batch(of.range.start), ..*run_length };
        let (again, moved) = (repetition > 0, iteration != self.without_momentum);
        let clip = if of.formula.clips() { self.clip_coefficient()? } else { 1.0 };
        let numbers = StepNumbers { clip, again, moved, ..options.optimizer.numbers(batch, &run_length) };
        let own = program.own_part(&of.range, of.shared, self.transport.rank().0);
        // Most models have no multipliers: then this is one part, the whole range.
        let multiplied = if of.formula.learns() { &*self.multiplied } else { &[] };
        for (part, multipliers) in multiplied_parts(own, multiplied) {
            let numbers = StepNumbers { sgd: numbers.sgd.times(multipliers), ..numbers };
            self.memory.trained().apply(part.start as usize..part.end as usize, &of.formula.bind(&numbers))?;
        }
        Ok(())
    }

    /// Adds the squares of the rank's own elements of a range of gradients to their sum.
    pub(super) fn sum_squares(&mut self, of: &Squares) -> Result<(), ExecError> {
        let counted = self.setup.program.counted(of, self.transport.rank().0);
        let replica = self.memory.trained();
        let mut sum = match of.begins {
            true => SquareSum::zero(),
            false => SquareSum::from_elements(&replica.values_of(Buffer::Norm)?),
        };
        for range in counted {
            replica.add_squares(of.buffer, &(range.start as usize..range.end as usize), &mut sum)?;
        }
        Ok(replica.set_values_of(Buffer::Norm, &sum.elements())?)
    }

    /// The factor that clips gradients of the norm that all ranks' sums give.
    fn clip_coefficient(&mut self) -> Result<f64, ExecError> {
        let sum = SquareSum::from_elements(&self.memory.trained().values_of(Buffer::Norm)?);
        Ok(self.setup.options.optimizer.clip_norm.map_or(1.0, |most| sum.clip_coefficient(most)))
    }

    /// Selects the micro-batch of a repetition: the rank's own, or the one that it claims.
    pub(super) fn begin_repetition(&mut self, repetition: u32, claimed: bool) -> Result<(), ExecError> {
        let rank = self.transport.rank().0;
        self.micro_batch = if claimed {
            // A rank with exchange work left is not free to claim.
            while self.progress()? {}
            self.claim()?
        } else {
            self.setup.program.source(rank) * self.setup.program.accumulate + repetition
        };
        Ok(())
    }
}
