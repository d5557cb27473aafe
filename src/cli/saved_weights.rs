//! Writes the weights that a run has trained to the file that `--save-weights` names.

use std::path::Path;

use lockstep_experiment::{Configuration, Experiment};
use lockstep_measure::training::MeasuredTraining;
use lockstep_readers::WeightLayout;
use lockstep_report::output::write_atomically;
use lockstep_topology::InputError;

/// The file, and how the weights of the model lie in it.
pub(super) struct SavedWeights<'a> {
    path: &'a Path,
    layout: WeightLayout,
}

impl<'a> SavedWeights<'a> {
    /// What is to be written for the only run.
    ///
    /// # Errors
    /// Several runs, a device that learns nothing, or a model that is no decoder of transformers.
    pub(super) fn new(
        path: &'a Path,
        experiment: &Experiment,
        configurations: &[Configuration],
    ) -> Result<SavedWeights<'a>, InputError> {
        let refused = |message: &str| Err(InputError::flag("save_weights", path.display().to_string(), message));
        if configurations.len() != 1 || experiment.seeds > 1 {
            return refused("has the weights of one run: use one configuration and one seed");
        }
        if !experiment.device.learns() {
            return refused("is of trained weights, and the null device computes nothing: leave one of the two out");
        }
        Ok(SavedWeights { path, layout: WeightLayout::of(&configurations[0].job.model)? })
    }

    /// Writes the parameters that a run ended with.
    ///
    /// # Errors
    /// A full disk, or another error of the system.
    pub(super) fn write(&self, measured: &MeasuredTraining) -> Result<(), InputError> {
        let parameters = &measured.run.parameters;
        write_atomically("--save-weights", self.path, |out| self.layout.write(parameters, out))
    }
}
