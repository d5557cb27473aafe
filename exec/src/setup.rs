//! What a run is asked for, what all workers of a process share of it, and when the model is judged on the way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstep_models::{Claim, Course, Driver, Judge, Optimizer, Program, Target};

use crate::data::{Dataset, Sampler};
use crate::device::{Cpus, Devices};
use crate::observer::Observer;
use crate::periodic::PeriodicPrograms;
use crate::pool::Arenas;
use crate::state::State;
use crate::watch::Guard;

/// What a run needs beside program and data.
pub struct RunOptions<'a> {
    /// Optimizer steps.
    pub steps: u32,
    /// Steps at the start that statistics leave out.
    pub warm_up: u32,
    /// Seed of initial parameters and sampling.
    pub seed: u64,
    /// What ranks compute on.
    pub devices: Arc<dyn Devices>,
    /// Threads of each rank.
    pub threads_per_rank: usize,
    /// Whether a device that answers before its work is done tells when each task began and ended; that costs a few
    /// microseconds a task. Without it the timeline says when tasks were handed over, and steps are timed as a whole.
    pub timed: bool,
    /// Where the learners of this process have their activations.
    pub arenas: Arenas,
    /// Learning rate and its schedule, momentum, weight decay.
    pub optimizer: Optimizer,
    /// Held-out samples on which the last epochs are judged.
    pub evaluations: Option<Evaluations<'a>>,
    /// The state that a resumed training starts with, in every process; `None` for a new one.
    pub start: Option<&'a State>,
    /// The claims of an earlier run, which are made again.
    pub replay: Option<&'a [Claim]>,
    /// A wait in which nothing moves for so long ends the run.
    pub stall_limit: Duration,
    /// Who follows the run from outside.
    pub observer: &'a dyn Observer,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        RunOptions {
            steps: 10,
            warm_up: 2,
            seed: 1,
            devices: Arc::new(Cpus),
            threads_per_rank: 1,
            timed: false,
            arenas: Arenas::default(),
            optimizer: Optimizer::default(),
            evaluations: None,
            start: None,
            replay: None,
            stall_limit: Duration::from_secs(60),
            observer: &(),
        }
    }
}

/// What a worker needs beside the program.
pub(crate) struct Setup<'a> {
    pub program: &'a Program,
    pub data: &'a Dataset,
    /// Which samples each micro-batch of each rank has.
    pub sampler: Sampler,
    pub options: &'a RunOptions<'a>,
    /// The sizes that the optimizer's rate follows.
    pub course: Course,
    /// Flight recorders and stall limit.
    pub guard: Guard<'a>,
    /// Asked by all ranks of the process; of several processes rank 0's alone hears claims.
    pub driver: Mutex<Driver>,
    /// The claims that are made again, where they are.
    pub replay: Option<&'a [Claim]>,
    /// The process of each rank, where there are several.
    pub hosts: Option<&'a [u32]>,
    /// What rank 0 thinks of accuracies.
    pub judge: Judge,
    /// What is done between steps.
    pub periodic: PeriodicPrograms,
    /// Steps that were done before this run.
    pub first: u64,
}

/// When a model is judged while it trains, and on what.
#[derive(Debug, Clone, Copy)]
pub struct Evaluations<'a> {
    /// The samples that judge.
    pub held_out: &'a Dataset,
    /// Number of epochs at the end of the run that are each followed by an evaluation.
    pub last_epochs: u32,
    /// Whether batch norm's statistics are recomputed over an epoch of training samples before each.
    pub recompute_bn: bool,
    /// The accuracy at whose sight a run ends; every epoch is judged then.
    pub target: Target,
}

impl Evaluations<'_> {
    /// Whether an epoch that is judged ends when `done` steps of the run are done.
    pub(crate) fn due(&self, done: u64, course: &Course) -> bool {
        let (epochs, all) = (done / course.steps_per_epoch, course.steps / course.steps_per_epoch);
        done.is_multiple_of(course.steps_per_epoch) && epochs + u64::from(self.last_epochs) > all
    }

    /// Whether it is looked for the target then.
    pub(crate) fn aims(&self, done: u64, course: &Course) -> bool {
        self.target.accuracy.is_some() && done.is_multiple_of(course.steps_per_epoch)
    }
}
