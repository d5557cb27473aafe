//! Evaluation on the way: at the ends of the last epochs the model is judged on held-out samples (Goyal et al. 2017, §5.1).

use lockstep_models::Course;
use lockstep_topology::Rank;

use super::Worker;
use crate::data::Dataset;
use crate::error::ExecError;
use crate::gather::mean;
use crate::replica::Evaluation;
use crate::transport::control;

/// Kind of the messages that carry running statistics.
const STATISTICS: u32 = 6;

/// When a model is judged while it trains, and on what.
#[derive(Debug, Clone, Copy)]
pub struct Evaluations<'a> {
    /// The samples that judge.
    pub held_out: &'a Dataset,
    /// So many epochs at the end of the run are each followed by an evaluation.
    pub last_epochs: u32,
    /// Whether batch norm's statistics are recomputed over an epoch of training samples before each.
    pub recompute_bn: bool,
}

impl Evaluations<'_> {
    /// Whether an epoch that is judged ends when `done` steps of the run are done.
    pub(super) fn due(&self, done: u64, course: &Course) -> bool {
        let (epochs, all) = (done / course.steps_per_epoch, course.steps / course.steps_per_epoch);
        done.is_multiple_of(course.steps_per_epoch) && epochs + u64::from(self.last_epochs) > all
    }
}

impl Worker<'_> {
    /// Judges the model with the workers' mean running statistics; the result is rank 0's. Training goes on as if nothing had
    /// been: every rank's own statistics stay as they were.
    pub(super) fn evaluate(&mut self) -> Result<Option<Evaluation>, ExecError> {
        let Some(when) = self.setup.evaluations else { return Ok(None) };
        self.wait_until(|worker| worker.slots.iter().all(|slot| !slot.running))?;
        let own = self.memory.replica.as_ref().map(|replica| replica.statistics().to_vec());
        let mut result = None;
        if let (0, Some(own)) = (self.transport.rank().0, &own) {
            let mut all = vec![own.clone()];
            for rank in 1..self.setup.program.workers {
                all.push(control::receive_elements(self.transport, Rank(rank), STATISTICS, own.len())?);
            }
            if let Some(replica) = &mut self.memory.replica {
                replica.set_statistics(&mean(all.iter().map(Vec::as_slice)));
                if when.recompute_bn {
                    replica.recompute_statistics(self.setup.data)?;
                }
                result = Some(replica.evaluate(when.held_out));
                replica.set_statistics(own);
            }
        } else if let Some(own) = own {
            control::send_elements(self.transport, Rank(0), STATISTICS, own)?;
        }
        // Nobody runs into the stall limit while rank 0 is at it.
        control::barrier(self.transport)?;
        Ok(result)
    }
}
