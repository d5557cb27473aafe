//! Evaluation on the way: at the ends of the last epochs the model is judged on held-out samples (Goyal et al. 2017, §5.1).

use lockstep_models::{Judgement, Op, Periodic, Program, Stream};
use lockstep_topology::Rank;

use super::Worker;
use crate::device::Mode;
use crate::error::ExecError;
use crate::flight::Aside;
use crate::periodic::collected;
use crate::replica::{Evaluation, Replica};
use crate::setup::Evaluations;
use crate::transport::control;
use crate::whole::{assemble, mean_statistics};

/// Kind of the messages that carry rank 0's judgement.
const JUDGEMENT: u32 = 7;

impl Worker<'_> {
    /// What follows when `done` steps are done since training began, the same on all ranks: an evaluation for the record (rank
    /// 0 alone has it) at the end of an epoch that is judged or looked at for the target, the end of the run at the target, and at a step of the rate a
    /// restart of learners whose average model did not improve.
    pub(super) fn review(&mut self, done: u64) -> Result<(Option<Evaluation>, Judgement), ExecError> {
        let Some(when) = self.setup.options.evaluations else { return Ok((None, Judgement::GoOn)) };
        let course = &self.setup.course;
        let falls = self.setup.program.averages() && self.setup.options.optimizer.falls_at(done, course);
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
        let setup = self.setup;
        let rank = self.transport.rank().0;
        let Some(work) = setup.periodic.evaluation.as_ref().filter(|work| rank < work.ranks()) else {
            return Ok(None);
        };
        let all = self.collect(Periodic::Evaluation, work)?;
        if rank != 0 {
            return Ok(None);
        }
        let own = self.memory.trained().statistics()?;
        let mut whole = None;
        if setup.program.is_in_parts() {
            let others = collected(&all, Periodic::MODEL);
            whole = Some(assemble(setup.program, self.memory.trained(), others, setup.options.seed)?);
        }
        let learner = setup.program.shared_models(rank).map(|shared| self.memory.be_average(shared)).transpose()?;
        let of_all = self.statistics_of_all(&all)?;
        let of_all: Vec<&[f32]> = of_all.iter().map(Vec::as_slice).collect();
        let judged = whole.as_mut().unwrap_or(self.memory.trained());
        judged.set_statistics(&mean_statistics(setup.program, &of_all))?;
        let evaluation = self.judge(work, whole.as_mut(), when)?;
        if whole.is_none() {
            self.memory.trained().set_statistics(&own)?;
        }
        if let Some(own) = learner {
            self.memory.be_learner(&own)?;
        }
        Ok(Some(evaluation))
    }

    /// Runs the forward passes of `work`, on rank 0, of the replica at hand or of the whole model where ranks have parts.
    fn judge(
        &mut self,
        work: &Program,
        mut whole: Option<&mut Replica>,
        when: Evaluations<'_>,
    ) -> Result<Evaluation, ExecError> {
        let role = &work.roles[0];
        let (train, mut evaluation) = (self.setup.data, Evaluation::of(when.held_out));
        let sampler = self.memory.trained().sampler_for_statistics(train)?;
        let loops = |task: usize| role.tasks[..task].iter().filter(|task| matches!(task.op, Op::Repeat { .. })).count();
        for (task, repetition) in role.runs().filter(|(task, _)| role.tasks[*task].stream == Stream::Compute) {
            // Statistics are computed in a loop of their own before the one that judges.
            let judges = loops(task) == loops(role.tasks.len());
            self.timed(Periodic::Evaluation, (task, repetition), |worker| {
                let replica = match &mut whole {
                    Some(whole) => whole,
                    None => worker.memory.trained(),
                };
                match role.tasks[task].op {
                    Op::Compute { chain, .. } if judges => {
                        replica.judge(chain, when.held_out, repetition, &mut evaluation)?;
                    }
                    Op::Compute { chain, .. } => {
                        replica.forward(chain, Mode::Statistics { batch: repetition }).map(drop)?;
                    }
                    _ if judges => replica.load_held_out(when.held_out, repetition)?,
                    _ => replica.load_for_statistics(train, &sampler, repetition)?,
                }
                Ok(())
            })?;
        }
        whole.unwrap_or(self.memory.trained()).device().release();
        Ok(evaluation)
    }
}
