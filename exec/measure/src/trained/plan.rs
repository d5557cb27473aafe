//! `Planned`: describes one run of a trained sweep, with its identity.

use lockstep_data::Dataset;
use lockstep_experiment::shard::SweepShard;
use lockstep_experiment::trained::TrainedRun;
use lockstep_experiment::{Configuration, Experiment, Length, TransportKind};
use lockstep_models::Target;
use lockstep_topology::InputError;

use crate::rows::lay_out;

/// The most runs in a sweep.
const MOST: u64 = 100_000;

/// One run: a configuration of an arm with a seed.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Name of the arm.
    pub arm: String,
    /// The arm's experiment.
    pub experiment: Experiment,
    /// What to train and how.
    pub configuration: Configuration,
    /// Seed of initial parameters, of the order of samples and of dropout.
    pub seed: u64,
    /// The first digits of the SHA-256 of all settings that determine the training.
    pub run: String,
}

/// All runs, ordered by seed, then arm, then configuration, so that even an incomplete sweep compares all arms.
///
/// # Errors
/// An invalid arm, one whose runs are not by epochs, or one that is not reproducible.
pub fn plan(experiment: &Experiment) -> Result<Vec<Planned>, InputError> {
    let mut arms = Vec::new();
    for arm in experiment.arms() {
        let tokenizer = Dataset::tokenizer_sha256(&arm.experiment.data)?;
        let own = Experiment { judged_epochs: u32::MAX, target: Target::default(), tokenizer, ..arm.experiment };
        if let Length::Steps(steps) = own.length {
            let message = "each epoch is evaluated: give epochs instead of steps";
            return Err(own.locate(InputError::flag("steps", steps.to_string(), message)));
        }
        if own.tunes {
            let message = "depends on the machine's speed: give a number, or let learners join by growth";
            return Err(own.locate(InputError::flag("learners", "auto", message)));
        }
        if own.transport == TransportKind::Mpi {
            let message = "a trained sweep is one process: use threads, or exec run";
            return Err(own.locate(InputError::flag("transport", "mpi", message)));
        }
        let configurations = own.configurations()?;
        // A cluster that no run is left to read is checked too.
        lay_out(&own, &mut configurations.clone())?;
        arms.push((arm.name, own, configurations));
    }
    let each: usize = arms.iter().map(|(_, _, configurations)| configurations.len()).sum();
    if each as u64 * u64::from(experiment.seeds) > MOST {
        let message = format!("takes {each} runs that many times, and at most {MOST} are possible: use fewer");
        return Err(experiment.locate(InputError::flag("seeds", experiment.seeds.to_string(), message)));
    }
    let mut runs = Vec::new();
    for seed in (0..u64::from(experiment.seeds)).map(|more| experiment.seed.wrapping_add(more)) {
        for (arm, own, configurations) in &arms {
            runs.extend(configurations.iter().map(|configuration| Planned {
                arm: arm.clone(),
                experiment: own.clone(),
                configuration: configuration.clone(),
                seed,
                // Excludes the version of lockstep: later versions continue older files, and each row names the command
                // that made it.
                run: TrainedRun { experiment: own, configuration, seed }.of_arm(arm).hash(),
            }));
        }
    }
    Ok(runs)
}

/// The runs of a shard, or all.
pub fn share(plan: &[Planned], shard: Option<SweepShard>) -> Vec<&Planned> {
    match shard {
        Some(shard) => shard.rows(plan.len() as u32).map(|row| &plan[row as usize]).collect(),
        None => plan.iter().collect(),
    }
}
