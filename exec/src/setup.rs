//! Defines the options of a run, the state that all workers of a process share, and when the model is evaluated during
//! training.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstep_models::{AccuracyMonitor, Claim, Driver, Optimizer, Program, RunLength, Target};

use crate::device::{Cpus, Devices};
use crate::input::{Decoders, Ring};
use crate::observer::Observer;
use crate::periodic::PeriodicPrograms;
use crate::pool::Arenas;
use crate::state::State;
use crate::watch::Guard;
use lockstep_data::{Dataset, Sampler};

/// Options of a run beside program and data.
pub struct RunOptions<'a> {
    /// Optimizer steps.
    pub steps: u32,
    /// Steps at the start that are left out of statistics.
    pub warm_up: u32,
    /// Seed of initial parameters and sampling.
    pub seed: u64,
    /// The devices that ranks compute on.
    pub devices: Arc<dyn Devices>,
    /// Threads of each rank.
    pub threads_per_rank: usize,
    /// Whether a device that runs asynchronously reports when each task began and ended, at a few microseconds per
    /// task. Without it the timeline holds the times at which tasks were submitted, and steps are timed as a whole.
    pub timed: bool,
    /// Where the learners of this process keep their activations.
    pub arenas: Arenas,
    /// Learning rate and its schedule, momentum, weight decay.
    pub optimizer: Optimizer,
    /// When to evaluate, and on which held-out samples.
    pub evaluations: Option<Evaluations<'a>>,
    /// The state that a resumed training starts with, in every process; `None` for a new one.
    pub start: Option<&'a State>,
    /// The claims of an earlier run, to be replayed.
    pub replay: Option<&'a [Claim]>,
    /// A run ends if a wait makes no progress for this long.
    pub stall_limit: Duration,
    /// The observer of steps, checkpoints and the end of the run.
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

/// What a worker needs beside the program, shared by the workers of a process.
pub(crate) struct Setup<'a> {
    pub program: &'a Program,
    pub data: &'a Dataset,
    /// The threads that prepare batches.
    pub decoders: Arc<Decoders>,
    /// Assigns samples to each micro-batch of each rank.
    pub sampler: Sampler,
    pub options: &'a RunOptions<'a>,
    /// The batch sizes and steps on which the learning rate depends.
    pub run_length: RunLength,
    /// Flight recorders and stall limit.
    pub guard: Guard<'a>,
    /// Called by all ranks of the process.
    pub driver: Mutex<Driver>,
    /// Batches that the learners of the process prepare for each other, where they claim them and read ahead.
    pub ring: Option<Ring>,
    /// Claims to be replayed, if any.
    pub replay: Option<&'a [Claim]>,
    /// Rank 0's decisions from accuracies.
    pub accuracy_monitor: AccuracyMonitor,
    /// The programs of the work between steps.
    pub periodic: PeriodicPrograms,
    /// Steps done before this run.
    pub first: u64,
}

/// When a model is evaluated during training, and on what.
#[derive(Debug, Clone, Copy)]
pub struct Evaluations<'a> {
    /// The held-out samples.
    pub held_out: &'a Dataset,
    /// Number of epochs at the end of the run that are each followed by an evaluation.
    pub last_epochs: u32,
    /// Whether batch norm's statistics are recomputed over an epoch of training samples before each.
    pub recompute_bn: bool,
    /// The accuracy that ends the run; if set, every epoch is evaluated.
    pub target: Target,
}

impl Evaluations<'_> {
    /// Whether step `done` of the run ends an epoch that is evaluated for the record.
    pub(crate) fn due(&self, done: u64, run_length: &RunLength) -> bool {
        let (epochs, all) = (done / run_length.steps_per_epoch, run_length.steps / run_length.steps_per_epoch);
        done.is_multiple_of(run_length.steps_per_epoch) && epochs + u64::from(self.last_epochs) > all
    }

    /// Whether accuracy is checked against the target after step `done`.
    pub(crate) fn aims(&self, done: u64, run_length: &RunLength) -> bool {
        self.target.accuracy.is_some() && done.is_multiple_of(run_length.steps_per_epoch)
    }
}
