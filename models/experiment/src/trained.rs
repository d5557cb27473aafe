//! Defines which trainings a setting distinguishes (`Trained`), and a training with its identity (`TrainedRun`).

use lockstep_models::{Axis, Job};

use crate::configuration::Configuration;
use crate::experiment::Experiment;

/// Which trainings a setting distinguishes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trained {
    /// It decides what is trained: a checkpoint is resumed with the same value only.
    As,
    /// It decides how: a checkpoint may be resumed with another value.
    With,
    /// It distinguishes the runs of a trained sweep, and checkpoints do not hold it.
    Apart,
}

/// A setting's value in a training; `None` where another setting is given instead.
pub type Value = fn(&TrainedRun<'_>) -> Option<String>;

/// A training that is to be identified.
#[derive(Clone, Copy)]
pub struct TrainedRun<'a> {
    /// Its experiment.
    pub experiment: &'a Experiment,
    /// What is trained and how.
    pub configuration: &'a Configuration,
    /// The seed of initial parameters, of the order of the samples and of dropout.
    pub seed: u64,
}

impl TrainedRun<'_> {
    /// Rates, momentum, decays and initial values, in full.
    pub fn recipe(&self) -> String {
        let model = &self.configuration.job.model;
        let own = model.multipliers().map_or_else(String::new, |own| format!(", {own}"));
        format!("{}{own}; initial values: {}", self.experiment.optimizer, model.inits())
    }
}

/// A value of the job about the stages of its pipeline, where it has some.
pub(crate) fn in_stages(run: &TrainedRun<'_>, says: impl Fn(&Job) -> String) -> Option<String> {
    let job = &run.configuration.job;
    let has_stages = job.mesh.as_ref().is_some_and(|mesh| mesh.size(Axis::Pipeline) > 1);
    has_stages.then(|| says(job))
}
