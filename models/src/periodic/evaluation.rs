//! Builds the evaluation: rank 0 collects the model and runs it forward over held-out samples, while the others wait.

use lockstep_topology::InputError;

use super::{Periodic, Work};
use crate::{After, Job, Op, Phase, Program, Role};

impl Program {
    /// The evaluation over `held_out` samples; before it batch norm's statistics are recomputed over a number of
    /// micro-batches, 0 for none.
    ///
    /// The last micro-batch is filled up, so each takes as long as any other.
    ///
    /// # Errors
    /// A model that one rank cannot run.
    pub fn evaluation(&self, held_out: u64, micro_batches_of_statistics: u64) -> Result<Program, InputError> {
        let mut work = Work::new(self);
        let alone;
        let judged = if self.is_in_parts() {
            work.collect_model(Periodic::Evaluation);
            alone = Job::new(self.whole_model().clone(), 1, self.batch_per_rank).program()?;
            &alone
        } else {
            self
        };
        work.collect_equal("collect statistics", Periodic::STATISTICS, self.model.statistics_elements());
        let role = &judged.roles[judged.role_of(0)];
        if micro_batches_of_statistics > 0 && judged.model.statistics_elements() > 0 {
            work.forward(judged, role, "statistics: ", micro_batches_of_statistics, false);
        }
        work.forward(judged, role, "", held_out.div_ceil(u64::from(self.batch_per_rank)), true);
        let program = work.program(judged);
        program.check()?;
        Ok(program)
    }

    /// The phase in which an evaluation computes a chain. Training finds the losses of some output layers in the backward pass.
    pub fn evaluation_phase(&self, chain: usize) -> Phase {
        let head = self.model.node(self.chains[chain][0]).layer.rule().kind();
        if head.loss_in_backward { Phase::Evaluate } else { Phase::Forward }
    }
}

impl Work<'_> {
    /// Forward passes of rank 0 over a number of micro-batches; without the loss unless `judges`.
    fn forward(&mut self, judged: &Program, role: &Role, prefix: &str, micro_batches: u64, judges: bool) {
        let samples = self.of.batch_per_rank;
        let last = judged.chains.len() - 1;
        let chains = (0..judged.chains.len()).filter(|chain| judges || *chain != last);
        let passes = chains.filter(|chain| {
            let is_forward =
                |op: &Op| matches!(op, Op::Compute { chain: of, phase: Phase::Forward, .. } if of == chain);
            role.tasks.iter().any(|task| is_forward(&task.op))
        });
        let passes: Vec<usize> = passes.collect();
        let count = u32::try_from(micro_batches.max(1)).unwrap_or(u32::MAX);
        let after = self.first.len().checked_sub(1).map(|task| After { task, lag: 0 });
        let repeat = Op::Repeat { count, body: passes.len() + 1, claimed: false };
        let repeat = self.first(format!("{prefix}micro-batches"), repeat);
        self.first[repeat].after.extend(after);
        self.first(format!("{prefix}load"), Op::Load { samples, pass: None, into: None });
        for chain in passes {
            let phase = judged.evaluation_phase(chain);
            let op = Op::Compute { chain, phase, samples, pass: None };
            self.first(format!("{prefix}{} {}", phase.name(), judged.chain_name(chain)), op);
        }
    }
}
