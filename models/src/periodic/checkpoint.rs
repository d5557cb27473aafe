//! Builds the checkpoint: rank 0 collects the state of all ranks and writes it to its host's storage, while the
//! others wait.

use lockstep_topology::{Dtype, InputError};

use super::{Periodic, Work};
use crate::{After, Buffer, Op, Program};

impl Program {
    /// The checkpoint of the state: parameters, what the optimizer keeps unless ranks train models of their own, average and reference
    /// models, running statistics, in fp32 but for moments in bf16.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, Op, random_model};
    /// let model = Arc::new(random_model(7, false));
    /// let checkpoint = Job::new(model.clone(), 4, 8).program().unwrap().checkpoint().unwrap();
    /// // Every rank has all of the model, so rank 0 writes its own: parameters and momentum.
    /// let bytes = checkpoint.roles[0].tasks.iter().find_map(|task| match task.op {
    ///     Op::Save { bytes } => Some(bytes),
    ///     _ => None,
    /// });
    /// assert_eq!(bytes, Some(4 * (2 * model.parameter_elements() + 4 * model.statistics_elements())));
    /// ```
    ///
    /// # Errors
    /// None for a checked program.
    pub fn checkpoint(&self) -> Result<Program, InputError> {
        let mut work = Work::new(self);
        let (workers, elements) = (u64::from(self.workers()), self.whole_model().parameter_elements());
        let (mut weights, mut kept) = (elements, self.rule.states().len() as u64 * elements);
        if self.is_in_parts() {
            work.collect_model(Periodic::Checkpoint);
        }
        if self.averages() {
            work.collect_equal("collect weights", Periodic::WEIGHTS, elements);
            (weights, kept) = ((workers + 2) * elements, 0);
        }
        let statistics = self.model.statistics_elements();
        work.collect_equal("collect statistics", Periodic::STATISTICS, statistics);
        work.collect_references();
        let references = match Periodic::REFERENCES {
            Buffer::Declared(index) => work.buffers[index],
            _ => 0,
        };
        let after = work.first.len().checked_sub(1).map(|task| After { task, lag: 0 });
        let bytes = Dtype::F32.bytes(weights + workers * statistics + references) + self.moments.dtype().bytes(kept);
        let save = work.first("save".to_owned(), Op::Save { bytes });
        work.first[save].after.extend(after);
        let program = work.program(self);
        program.check()?;
        Ok(program)
    }
}
