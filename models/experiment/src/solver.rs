//! Applies Caffe's solvers as a setting: the values of a `solver.prototxt`, for settings that nothing else sets.

use lockstep_readers::Solver;
use lockstep_topology::InputError;
use lockstep_topology::document::Entry;

use crate::batch::Batch;
use crate::experiment::{Experiment, Length};
use crate::setting::{Reading, SettingEntry};

/// A solver by its file.
pub(crate) struct BySolver;

impl Reading for BySolver {
    fn take(&self, experiment: &mut Experiment, _: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        texts.iter().try_for_each(|path| experiment.solve(Solver::load(path)?))
    }

    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        let solver = Solver::load(entry.text()?).map_err(|error| match error.place {
            lockstep_topology::ErrorPlace::Flag(_) => entry.error(error.message),
            _ => error,
        })?;
        experiment.solve(solver).map_err(|error| entry.error(error.message))
    }
}

impl Experiment {
    /// Trains by the solver. Its optimizer counts as a recipe's does; its net, batch, length, seed and weights only
    /// where nothing else sets them. As with Caffe on several GPUs, each rank takes the net's batch.
    pub(crate) fn solve(&mut self, solver: Solver) -> Result<(), InputError> {
        if self.recipe.is_some() {
            let message = "a recipe says how to train too: give one of the two";
            return Err(InputError::flag("solver", solver.file, message));
        }
        let says = |key: &str| self.places.contains_key(key);
        let (model, accumulate, seed, weights) = (says("model"), says("accumulate"), says("seed"), says("weights"));
        let (batch, length) = (says("batch_per_rank") || says("global_batch"), says("steps") || says("epochs"));
        if !model {
            self.model.clone_from(&solver.net);
        }
        if let (Some(samples), false) = (solver.batch, batch) {
            self.batch = Batch::PerRank(vec![samples]);
        }
        if !accumulate {
            self.accumulate = solver.accumulate;
        }
        if let (Some(steps), false) = (solver.steps, length) {
            self.length = Length::Steps(steps);
        }
        self.seed = solver.seed.filter(|_| !seed).unwrap_or(self.seed);
        if !weights && solver.weights.is_some() {
            self.weights.clone_from(&solver.weights);
        }
        self.optimizer = solver.optimizer.clone();
        self.solver = Some(solver);
        Ok(())
    }

    /// What in the solver has no effect here, a line each.
    pub fn account_of_solver(&self) -> Vec<String> {
        let of = |solver: &Solver| solver.notes.iter().map(|note| format!("{}: {note}", solver.file)).collect();
        self.solver.as_ref().map_or_else(Vec::new, of)
    }
}

#[cfg(test)]
mod tests;
