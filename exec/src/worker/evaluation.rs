//! Evaluates the model on held-out samples at the ends of the last epochs (Goyal et al. 2017, §5.1).

use lockstep_models::{Op, Periodic, Program, RunControl, Stream};
use lockstep_topology::Rank;

use super::Worker;
use crate::device::Mode;
use crate::error::ExecError;
use crate::flight::Aside;
use crate::periodic::collected;
use crate::replica::{Evaluation, Replica};
use crate::setup::Evaluations;
use crate::transport::control;
use crate::whole::{assemble, mean_statistics, one_rank};

/// Kind of the messages that carry rank 0's decision.
const RUN_CONTROL: u32 = 7;
/// Kind of the messages that carry the average model to the other learners of a device.
const AVERAGE: u32 = 16;

impl Worker<'_> {
    /// Evaluates the model after `done` steps since training began, if one is scheduled, and returns the decision that
    /// all ranks share. The evaluation for the record, on rank 0 alone, is made at the end of an epoch that is
    /// evaluated or checked against the target. The decision ends the run at the target and, at a drop of the learning
    /// rate, restarts learners whose average model did not improve.
    pub(super) fn review(&mut self, done: u64) -> Result<(Option<Evaluation>, RunControl), ExecError> {
        let Some(when) = self.setup.options.evaluations else { return Ok((None, RunControl::Continue)) };
        let run_length = &self.setup.run_length;
        let falls = self.setup.program.averages() && self.setup.options.optimizer.falls_at(done, run_length);
        let due = when.due(done, run_length);
        let aims = when.aims(done, run_length);
        if !(due || falls || aims) {
            return Ok((None, RunControl::Continue));
        }
        let record = self.flight.begin_aside(Aside::Evaluation, self.iteration, self.now());
        let evaluation = self.evaluate(when)?;
        // The message also keeps the other ranks below the stall limit while rank 0 evaluates.
        let control = match &evaluation {
            Some(evaluation) => {
                let control = self.accuracy_monitor.decide(evaluation.accuracy(), aims, falls);
                for rank in 1..self.setup.program.ranks() {
                    control::send(self.transport, Rank(rank), RUN_CONTROL, control as u64)?;
                }
                control
            }
            None => match control::receive(self.transport, Rank(0), RUN_CONTROL)? {
                word if word == RunControl::Restart as u64 => RunControl::Restart,
                word if word == RunControl::Stop as u64 => RunControl::Stop,
                _ => RunControl::Continue,
            },
        };
        self.flight.end(record, self.now());
        // Which epochs are the last ones of a run that ends at its target is known only when it ends.
        Ok((evaluation.filter(|_| due || aims), control))
    }

    /// Restarts the learner from the average model, which the first learner of its device has.
    pub(super) fn restart(&mut self) -> Result<(), ExecError> {
        let (program, rank) = (self.setup.program, self.transport.rank().0);
        let learners = program.learners_beside(rank);
        let average = match program.shared_models(rank) {
            Some(shared) => {
                let average = self.memory.model(shared.average)?;
                for other in learners.iter().filter(|other| *other != rank) {
                    control::send_elements(self.transport, Rank(other), AVERAGE, average.clone())?;
                }
                average
            }
            None => {
                let elements = program.model.parameter_elements() as usize;
                control::receive_elements(self.transport, Rank(learners.first()), AVERAGE, elements)?
            }
        };
        Ok(self.memory.restart(program, rank, &average)?)
    }

    /// Evaluates the model (with learners, the average model) with the mean of the workers' running statistics; the
    /// result is rank 0's. Restores all state, so training is not affected.
    fn evaluate(&mut self, when: Evaluations<'_>) -> Result<Option<Evaluation>, ExecError> {
        self.collect_finished(0)?;
        self.wait_until(Worker::is_idle)?;
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
            let replica = self.memory.trained();
            let all = assemble(setup.program, vec![replica.parameters()?], others);
            whole = Some(one_rank(setup.program, all, &own, (&replica.decoders(), setup.options.seed))?);
        }
        let learner = setup.program.shared_models(rank).map(|shared| self.memory.be_average(shared)).transpose()?;
        let of_all = self.statistics_of_all(&all)?;
        let of_all: Vec<&[f32]> = of_all.iter().map(Vec::as_slice).collect();
        let judged = whole.as_mut().unwrap_or(self.memory.trained());
        judged.set_statistics(&mean_statistics(setup.program, &of_all))?;
        let evaluation = self.evaluate_samples(work, whole.as_mut(), when)?;
        if whole.is_none() {
            self.memory.trained().set_statistics(&own)?;
        }
        if let Some(own) = learner {
            self.memory.be_learner(&own)?;
        }
        Ok(Some(evaluation))
    }

    /// Runs the forward passes of `work`: on rank 0's replica, or on the assembled model where ranks hold parts of it.
    fn evaluate_samples(
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
            // The last loop evaluates; the loop before it recomputes the statistics.
            let evaluates = loops(task) == loops(role.tasks.len());
            self.timed(Periodic::Evaluation, (task, repetition), |worker| {
                let replica = match &mut whole {
                    Some(whole) => whole,
                    None => worker.memory.trained(),
                };
                match role.tasks[task].op {
                    Op::Compute { chain, .. } if evaluates => {
                        replica.evaluate_batch(chain, when.held_out, repetition, &mut evaluation)?;
                    }
                    Op::Compute { chain, .. } => {
                        replica.forward(chain, Mode::Statistics { batch: repetition }).map(drop)?;
                    }
                    _ if evaluates => replica.load_held_out(when.held_out, repetition)?,
                    _ => replica.load_for_statistics(train, &sampler, repetition)?,
                }
                Ok(())
            })?;
        }
        whole.unwrap_or(self.memory.trained()).device().release();
        Ok(evaluation)
    }
}
