//! What all workers of a process share of a run, and when the model is judged on the way.

use std::sync::Mutex;

use lockstep_models::{Claim, Course, Driver, Judge, Optimizer, Program, Target};

use crate::data::Dataset;
use crate::device::Devices;
use crate::observer::Observer;
use crate::pool::Arenas;
use crate::state::State;
use crate::watch::Guard;

/// What a worker needs beside the program.
pub(crate) struct Setup<'a> {
    pub program: &'a Program,
    pub data: &'a Dataset,
    pub optimizer: &'a Optimizer,
    /// The sizes that the optimizer's rate follows.
    pub course: Course,
    /// When the model is judged on the way.
    pub evaluations: Option<Evaluations<'a>>,
    pub seed: u64,
    pub devices: &'a dyn Devices,
    pub threads: usize,
    /// Whether a device that defers tells when each task began and ended.
    pub timed: bool,
    /// Where activations lie.
    pub arenas: &'a Arenas,
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
    /// Steps that were done before this run.
    pub first: u64,
    /// What training goes on from, unless it begins.
    pub start: Option<&'a State>,
    /// Who follows the run from outside.
    pub observer: &'a dyn Observer,
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
