//! The flags of a run's operation: checkpoints, and going on from one.

use std::path::PathBuf;

use clap::Args;
use lockstep_topology::InputError;

use super::flags::parsed;
use crate::checkpoint::{Every, Folder, latest};
use crate::experiment::{Configuration, Experiment};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::launch::Launch;
use crate::operation::Operation;

/// Flags of a run's operation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Operation")]
pub(super) struct OperationFlags {
    /// Keep the state of training in this folder, the last two of them; also at Ctrl-C and at the end
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// How often: a number of steps or of seconds, e.g. 100 or 30s [default: 300s]
    #[arg(long, value_parser = parsed::<Every>, value_name = "N[steps|s]", requires = "checkpoint")]
    checkpoint_every: Option<Every>,
    /// Go on from the latest checkpoint in this folder that is whole, or from this file; all processes read it
    #[arg(long, value_name = "DIR|FILE")]
    resume: Option<PathBuf>,
}

impl OperationFlags {
    /// Refuses what cannot be kept or gone on with, before any process joins another.
    ///
    /// # Errors
    /// Several configurations or seeds, a number of learners that is still to be found.
    pub(super) fn check(&self, experiment: &Experiment, configurations: &[Configuration]) -> Result<(), InputError> {
        let asked = [("--checkpoint", &self.checkpoint), ("--resume", &self.resume)];
        for (flag, path) in asked.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            let refused = |message: &str| Err(InputError::new(flag, path.display().to_string(), message));
            if configurations.len() != 1 || experiment.seeds > 1 {
                return refused("a checkpoint is of one run: take one configuration and one seed");
            }
            if experiment.tunes {
                return refused("a checkpoint is of a number of learners: give one in place of --learners auto");
            }
        }
        Ok(())
    }

    /// What is asked for, in this process of `launch`.
    ///
    /// # Errors
    /// A folder that cannot be written or is in use, no checkpoint that is whole, one of another training.
    pub(super) fn open(
        &self,
        experiment: &Experiment,
        configuration: &Configuration,
        launch: &Launch,
    ) -> Result<Operation, Failure> {
        let speaks = launch.speaks();
        let tell = |text: &str| {
            if speaks {
                eprintln!("{text}");
            }
        };
        let mut operation = Operation { saves: self.checkpoint.is_some(), ..Operation::default() };
        if let Some(path) = &self.resume {
            operation.resumed = Some(latest(path, |error| tell(&error.to_string()))?);
            let told = operation.check(experiment, configuration)?;
            told.iter().for_each(|told| tell(told));
        }
        if let Some(path) = &self.checkpoint {
            operation.interrupt = Interrupt::listen(speaks)?;
            if speaks {
                let every = self.checkpoint_every.unwrap_or(Every::Time(std::time::Duration::from_secs(300)));
                let (folder, dead) = Folder::open(path, every)?;
                dead.iter().for_each(|dead| tell(&format!("{dead} has ended without giving {} back", path.display())));
                operation.folder = Some(folder);
            }
        }
        Ok(operation)
    }
}
