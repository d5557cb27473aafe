//! Checks which settings a resumed training must share with the interrupted one, and lists those that it changes.

use std::collections::BTreeMap;

use lockstep_experiment::Configuration;
use lockstep_models::{Claim, Moments};
use lockstep_topology::{ErrorPlace, InputError};

use super::Checkpoint;

/// The flag of a setting, which is its key in checkpoints.
fn flag(key: &'static str) -> String {
    ErrorPlace::Flag(key).to_string()
}

impl Checkpoint {
    /// Refuses a training that is not that of this checkpoint, which errors call `shown`.
    ///
    /// # Errors
    /// The first flag in which the two differ.
    pub fn check(&self, shown: &str, identity: &BTreeMap<String, String>) -> Result<(), InputError> {
        // Files hold the format itself, and the identity only what is not fp32.
        let (moments, own) = (flag("moments"), self.state.moments);
        let wanted = identity.get(&moments).cloned().unwrap_or_else(|| Moments::F32.to_string());
        if self.state.average.is_none() && wanted != own.name() {
            let message = format!(
                "the checkpoint {shown} holds moments in {own}: give the same, or start over without {}",
                ErrorPlace::Flag("resume")
            );
            return Err(InputError::new(moments, wanted, message));
        }
        let other = identity.iter().find(|(flag, value)| self.identity.get(*flag) != Some(value));
        let Some((flag, value)) = other else { return Ok(()) };
        let before = self.identity.get(flag).map_or("nothing", String::as_str);
        let resume = ErrorPlace::Flag("resume");
        let message =
            format!("the checkpoint {shown} was trained with {before}: give the same, or start over without {resume}");
        Err(InputError::new(flag, value, message))
    }

    /// The label of the configuration that wrote it, given that `configuration` resumes it.
    pub fn label(&self, configuration: &Configuration) -> String {
        let of = |key| self.setting.get(&flag(key)).map_or("", String::as_str);
        configuration.label_with(of("ranks"), of("batch_per_rank"), of("algorithm"))
    }

    /// The settings that change, in words; empty where none does.
    pub fn changes(&self, setting: &BTreeMap<String, String>) -> String {
        let changed = setting.iter().filter_map(|(flag, value)| {
            let before = self.setting.get(flag).filter(|before| *before != value)?;
            Some(format!("{flag} {value} instead of {before}"))
        });
        changed.collect::<Vec<_>>().join(", ")
    }
}

/// Converts the claims of a whole training to those of a run that begins after `first` steps.
pub fn claims_from(claims: &[Claim], first: u64) -> Vec<Claim> {
    let later = |claim: &Claim| u64::from(claim.iteration) >= first;
    let shifted = |claim: &Claim| Claim { iteration: claim.iteration - first as u32, ..*claim };
    claims.iter().filter(|claim| later(claim)).map(shifted).collect()
}

/// Appends the claims of a run that began after `first` steps to `before`, numbered within the whole training.
pub fn claims_behind(before: &[Claim], first: u64, claims: &[Claim]) -> Vec<Claim> {
    let shifted = |claim: &Claim| Claim { iteration: claim.iteration + first as u32, ..*claim };
    before.iter().copied().chain(claims.iter().map(shifted)).collect()
}
