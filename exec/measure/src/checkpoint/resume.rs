//! What a training that goes on must have in common with the one that was interrupted, and what it may do in another way.

use std::collections::BTreeMap;

use lockstep_experiment::{Configuration, Experiment, Length};
use lockstep_models::Claim;
use lockstep_topology::{ErrorPlace, InputError};

use super::Checkpoint;

/// The flag of a setting, which is its key in checkpoints.
fn flag(key: &'static str) -> String {
    ErrorPlace::Flag(key).to_string()
}

/// Values by flag that decide what is trained: with others it would be another training.
pub fn identity(experiment: &Experiment, configuration: &Configuration, seed: u64) -> BTreeMap<String, String> {
    let model = &configuration.job.model;
    let recipe = format!("{}; initial values: {}", experiment.optimizer, model.inits());
    let values = [
        ("model", format!("{} ({} parameters)", model.name(), model.parameter_elements())),
        ("strategy", configuration.job.strategy.to_string()),
        ("data", experiment.data.clone()),
        ("augment", experiment.augmentation.to_string()),
        ("seed", seed.to_string()),
        ("recipe", recipe),
    ];
    values.map(|(key, value)| (flag(key), value)).into()
}

/// Values by flag that may change: how many do the work, and how they meet.
pub fn setting(experiment: &Experiment, configuration: &Configuration) -> BTreeMap<String, String> {
    let job = &configuration.job;
    let length = match experiment.length {
        Length::Steps(steps) => ("steps", steps),
        Length::Epochs(epochs) => ("epochs", epochs),
    };
    let values = [
        (length.0, length.1.to_string()),
        ("ranks", job.workers.to_string()),
        ("batch_per_rank", job.batch_per_rank.to_string()),
        ("accumulate", job.accumulate.to_string()),
        ("algorithm", job.algorithm.to_string()),
        ("bucket", job.bucket.to_string()),
        ("sampling", job.sampling.to_string()),
    ];
    values.map(|(key, value)| (flag(key), value)).into()
}

impl Checkpoint {
    /// Refuses a training that is not the one of this checkpoint, which errors call `shown`.
    ///
    /// # Errors
    /// The first flag in which the two differ.
    pub fn check(&self, shown: &str, identity: &BTreeMap<String, String>) -> Result<(), InputError> {
        let other = identity.iter().find(|(flag, value)| self.identity.get(*flag) != Some(value));
        let Some((flag, value)) = other else { return Ok(()) };
        let before = self.identity.get(flag).map_or("nothing", String::as_str);
        let message =
            format!("the checkpoint {shown} was trained with {before}: give the same, or begin anew without --resume");
        Err(InputError::new(flag, value, message))
    }

    /// The label of the configuration that wrote it, where `configuration` goes on with it.
    pub fn label(&self, configuration: &Configuration) -> String {
        let of = |key| self.setting.get(&flag(key)).map_or("", String::as_str);
        configuration.label_with(of("ranks"), of("batch_per_rank"), of("algorithm"))
    }

    /// What is done in another way than before, in words; empty where nothing is.
    pub fn changes(&self, setting: &BTreeMap<String, String>) -> String {
        let changed = setting.iter().filter_map(|(flag, value)| {
            let before = self.setting.get(flag).filter(|before| *before != value)?;
            Some(format!("{flag} {value} in place of {before}"))
        });
        changed.collect::<Vec<_>>().join(", ")
    }
}

/// The claims of a whole training as those of a run that begins after `first` steps.
pub fn claims_from(claims: &[Claim], first: u64) -> Vec<Claim> {
    let later = |claim: &Claim| u64::from(claim.iteration) >= first;
    let shifted = |claim: &Claim| Claim { iteration: claim.iteration - first as u32, ..*claim };
    claims.iter().filter(|claim| later(claim)).map(shifted).collect()
}

/// The claims of a run that began after `first` steps, as those of the whole training behind `before`.
pub fn claims_behind(before: &[Claim], first: u64, claims: &[Claim]) -> Vec<Claim> {
    let shifted = |claim: &Claim| Claim { iteration: claim.iteration + first as u32, ..*claim };
    before.iter().copied().chain(claims.iter().map(shifted)).collect()
}
