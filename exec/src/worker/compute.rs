//! What a worker's compute tasks do to its replica.

use lockstep_models::{Op, Phase, TaskId};

use super::Worker;
use crate::data::Sampler;
use crate::device::cpu::Mode;
use crate::error::ExecError;

impl Worker<'_> {
    /// Runs a task of the compute stream; `batch` is the number of the step since training began.
    pub(super) fn execute(
        &mut self,
        task: TaskId,
        repetition: u32,
        sampler: Option<&mut Sampler>,
        batch: u64,
    ) -> Result<(), ExecError> {
        if let Op::Averaging { rule, range } = &self.role.tasks[task].op {
            self.learn(*rule, range, batch);
            return Ok(());
        }
        if let Op::Copy(copy) = &self.role.tasks[task].op {
            self.memory.copy(copy);
            return Ok(());
        }
        let (Some(replica), Some(sampler)) = (&mut self.memory.replica, sampler) else {
            unreachable!("check: ranks that only serve have no compute tasks");
        };
        match &self.role.tasks[task].op {
            Op::Load { .. } => {
                let mut indices = Vec::new();
                let each = self.setup.program.accumulate;
                let place = sampler.micro_batch(batch, self.micro_batch / each, self.micro_batch % each, &mut indices);
                replica.load(self.setup.data, &indices, place);
                self.samples += indices.len();
                if let Some(hook) = self.setup.on_load {
                    hook(self.transport.rank().0);
                }
            }
            Op::Compute { chain, phase: Phase::Forward, .. } => {
                if let Some(loss) = replica.forward(*chain, Mode::Train) {
                    if !loss.sum.is_finite() {
                        return Err(self.diverged(*chain, batch, loss.sum));
                    }
                    self.loss += loss.sum;
                }
            }
            Op::Compute { chain, phase, .. } => {
                let program = self.setup.program;
                let scale = 1.0 / program.gradient_samples() as f32;
                replica.backward(*chain, *phase, scale, repetition > 0 && program.averaging.is_none());
            }
            Op::Update { range } => {
                let step = self.setup.optimizer.step(batch, &self.setup.course);
                replica.update(range.start as usize..range.end as usize, &step);
            }
            Op::Repeat { .. } | Op::Exchange(_) | Op::Copy(_) | Op::Averaging { .. } => {
                unreachable!("not a task that the replica does")
            }
        }
        Ok(())
    }

    /// The error for a loss that is no finite number, found in the chain of the loss.
    fn diverged(&mut self, loss_chain: usize, step: u64, loss: f64) -> ExecError {
        let found = self.memory.replica.as_mut().and_then(|replica| replica.first_not_finite());
        let layers = self.setup.program.chain_name(found.unwrap_or(loss_chain));
        ExecError::Diverged { rank: self.transport.rank().0, step, loss, layers }
    }
}
