//! Defines flags for runs whose learners claim their batches: writing a log of the claims, and replaying one.

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_models::Claim;
use lockstep_topology::InputError;

use lockstep_experiment::{Configuration, Experiment, driver_log};

/// Flags of runs whose learners claim their batches.
#[derive(Debug, Clone, Args)]
pub(super) struct DriverFlags {
    /// Write which learner got which batch, a line of JSON each (--strategy sma:first-come or sma:round-robin)
    #[arg(long, value_name = "FILE")]
    driver_log: Option<PathBuf>,
    /// Assign batches to learners as a log of --driver-log says, predicted or measured
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

impl DriverFlags {
    /// The output file, with its flag.
    pub(super) fn output(&self) -> (&'static str, Option<&Path>) {
        ("--driver-log", self.driver_log.as_deref())
    }

    /// Reads the log to be replayed, and refuses configurations to which a log cannot apply.
    ///
    /// # Errors
    /// A file that cannot be read or written; several configurations or seeds; ranks that do not claim batches.
    pub(super) fn apply(
        &self,
        experiment: &mut Experiment,
        configurations: &[Configuration],
    ) -> Result<(), InputError> {
        let asked = [("--driver-log", &self.driver_log), ("--replay", &self.replay)];
        for (flag, path) in asked.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            let refused = |message: &str| Err(InputError::new(flag, path.display().to_string(), message));
            let [configuration] = configurations else {
                return refused("a log is of one configuration: use one model, batch, algorithm and number of ranks");
            };
            if experiment.seeds > 1 || !experiment.scenarios.is_empty() {
                return refused("a log is of one run: use one seed and no scenarios");
            }
            if !configuration.program()?.claims() {
                return refused(
                    "only learners that are served first come, or in turn, leave a log: use --strategy sma:first-come",
                );
            }
        }
        experiment.replay = self.replay.as_deref().map(driver_log::load).transpose()?;
        Ok(())
    }

    /// Writes the claims of the run, if requested.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn save(&self, claims: &[Claim]) -> Result<(), InputError> {
        self.driver_log.as_deref().map_or(Ok(()), |path| driver_log::save(claims, path))
    }
}
