//! Evaluation on the way: at the ends of the last epochs the model is judged on held-out samples (Goyal et al. 2017, §5.1).

use lockstep_models::Judgement;
use lockstep_topology::Rank;

use super::Worker;
use crate::error::ExecError;
use crate::flight::Aside;
use crate::replica::Evaluation;
use crate::setup::Evaluations;
use crate::transport::control;
use crate::whole::{assemble, mean_statistics};

/// Kind of the messages that carry running statistics.
const STATISTICS: u32 = 6;
/// Kind of the messages that carry rank 0's judgement.
const JUDGEMENT: u32 = 7;

impl Worker<'_> {
    /// What follows when `done` steps are done since training began, the same on all ranks: an evaluation for the record (rank
    /// 0 alone has it) at the end of an epoch that is judged or looked at for the target, the end of the run at the target, and at a step of the rate a
    /// restart of learners whose average model did not improve.
    pub(super) fn review(&mut self, done: u64) -> Result<(Option<Evaluation>, Judgement), ExecError> {
        let Some(when) = self.setup.options.evaluations else { return Ok((None, Judgement::GoOn)) };
        let course = &self.setup.course;
        let falls = self.setup.program.averaging.is_some() && self.setup.options.optimizer.falls_at(done, course);
        let due = when.due(done, course);
        let aims = when.aims(done, course);
        if !(due || falls || aims) {
            return Ok((None, Judgement::GoOn));
        }
        let record = self.flight.begin_aside(Aside::Evaluation, self.iteration, self.now());
        let evaluation = self.evaluate(when)?;
        // What rank 0 says also keeps others from running into the stall limit while it is at it.
        let judgement = match &evaluation {
            Some(evaluation) => {
                let judgement = self.judge.judge(evaluation.accuracy(), aims, falls);
                for rank in 1..self.setup.program.ranks() {
                    control::send(self.transport, Rank(rank), JUDGEMENT, judgement as u64)?;
                }
                judgement
            }
            None => match control::receive(self.transport, Rank(0), JUDGEMENT)? {
                word if word == Judgement::Restart as u64 => Judgement::Restart,
                word if word == Judgement::Stop as u64 => Judgement::Stop,
                _ => Judgement::GoOn,
            },
        };
        self.flight.end(record, self.now());
        // The last epochs of a run that the target ends are known when it ends.
        Ok((evaluation.filter(|_| due || aims), judgement))
    }

    /// Judges the model, which is the average model where learners have their own, with the workers' mean running statistics;
    /// the result is rank 0's. Training goes on as if nothing had been: all that ranks have stays as it was.
    fn evaluate(&mut self, when: Evaluations<'_>) -> Result<Option<Evaluation>, ExecError> {
        self.settle(0)?;
        self.wait_until(Worker::settled)?;
        let own = self.memory.replica.as_mut().map(|replica| replica.statistics()).transpose()?;
        let averages = self.setup.program.averaging.is_some();
        let mut result = None;
        let mut whole = match &mut self.memory.replica {
            Some(replica) => assemble(self.transport, self.setup.program, replica, self.setup.options.seed)?,
            None => None,
        };
        let Some(own) = own else { return Ok(None) };
        let all = control::collect(self.transport, self.setup.program.workers(), STATISTICS, own.clone())?;
        if self.transport.rank().0 == 0 {
            let learner = if averages { Some(self.memory.be_average()?) } else { None };
            if let Some(replica) = whole.as_mut().or(self.memory.replica.as_mut()) {
                let all: Vec<&[f32]> = all.iter().map(Vec::as_slice).collect();
                replica.set_statistics(&mean_statistics(self.setup.program, &all))?;
                if when.recompute_bn {
                    replica.recompute_statistics(self.setup.data)?;
                }
                result = Some(replica.evaluate(when.held_out)?);
            }
            if let Some(replica) = self.memory.replica.as_mut().filter(|_| whole.is_none()) {
                replica.set_statistics(&own)?;
            }
            if let Some(own) = learner {
                self.memory.be_learner(&own)?;
            }
        }
        Ok(result)
    }
}
