//! The driver's log: which learner got which batch of a run, a line of JSON each, to be kept and made again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lockstep_models::Claim;
use lockstep_topology::{ErrorPlace, InputError, RECORD, Time, read_text};
use serde::{Deserialize, Serialize};

use crate::experiment::{Configuration, Experiment};
use lockstep_report::output::write_atomically;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    iteration: u32,
    rank: u32,
    /// Its number within the iteration's global batch.
    micro_batch: u32,
    /// Picoseconds since the run began.
    at_ps: u64,
}

/// Flags of runs whose learners claim their batches.
#[derive(Debug, Clone, Args)]
pub struct DriverFlags {
    /// Write which learner got which batch, a line of JSON each (--strategy sma:first-come or sma:round-robin)
    #[arg(long, value_name = "FILE")]
    driver_log: Option<PathBuf>,
    /// Give learners the batches that such a log says, predicted or measured
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

impl DriverFlags {
    /// The file that is written, by its flag.
    pub fn output(&self) -> (&'static str, Option<&Path>) {
        ("--driver-log", self.driver_log.as_deref())
    }

    /// Reads the log that is replayed, and refuses what a log cannot be of.
    ///
    /// # Errors
    /// A file that cannot be read or written; several configurations or seeds; ranks that claim nothing.
    pub fn apply(&self, experiment: &mut Experiment, configurations: &[Configuration]) -> Result<(), InputError> {
        let asked = [("--driver-log", &self.driver_log), ("--replay", &self.replay)];
        for (flag, path) in asked.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            let refused = |message: &str| Err(InputError::new(flag, path.display().to_string(), message));
            let [configuration] = configurations else {
                return refused("a log is of one configuration: take one model, batch, algorithm and number of ranks");
            };
            if experiment.seeds > 1 || !experiment.scenarios.is_empty() {
                return refused("a log is of one run: take one seed and no scenarios");
            }
            if !configuration.program()?.claims() {
                return refused(
                    "only learners that are served first come, or in turn, leave a log: take --strategy sma:first-come",
                );
            }
        }
        experiment.replay = self.replay.as_deref().map(load).transpose()?;
        Ok(())
    }

    /// Writes the claims of the run, where that is asked for.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, claims: &[Claim]) -> Result<(), InputError> {
        let Some(path) = &self.driver_log else { return Ok(()) };
        write_atomically("--driver-log", path, |out| {
            for Claim { iteration, rank, micro_batch, at } in claims {
                let line = Line { iteration: *iteration, rank: *rank, micro_batch: *micro_batch, at_ps: at.0 };
                writeln!(out, "{}", serde_json::to_string(&line)?)?;
            }
            Ok(())
        })
    }
}

/// The claims in the file at `path`.
fn load(path: &Path) -> Result<Arc<[Claim]>, InputError> {
    let shown = path.display().to_string();
    let text = read_text(path, RECORD)
        .map_err(|error| InputError::flag("replay", &*shown, error.told("name what --driver-log wrote")))?;
    parse(&shown, &text)
}

/// The claims in `text`, the content of the log that errors call `shown`.
///
/// # Errors
/// The first line that is none of a log.
pub fn parse(shown: &str, text: &str) -> Result<Arc<[Claim]>, InputError> {
    let claim = |(number, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(Line { iteration, rank, micro_batch, at_ps }) => Ok(Claim { iteration, rank, micro_batch, at: Time(at_ps) }),
        Err(error) => {
            let message = format!("is no line of a log: {error}; replay what --driver-log wrote");
            Err(InputError::new(ErrorPlace::line(shown, number + 1), line, message))
        }
    };
    text.lines().enumerate().map(claim).collect()
}
