//! Saves and loads the log of the auto-tuner: its observations of each run, with which a later run makes the same
//! decisions and trains the same bits.

use std::path::Path;

use lockstep_models::Trial;
use lockstep_topology::{ErrorPlace, InputError, RECORD, read_text};
use serde::{Deserialize, Serialize};

use lockstep_report::output::write_atomically;

/// What was observed of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// The configuration, as progress lines name it.
    pub configuration: String,
    /// Its seed.
    pub seed: u64,
    /// The most learners of each device, by its cores and memory; empty in logs of earlier versions, which are repeated
    /// with the limits of the present machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub most: Vec<u32>,
    /// Observations in order; after the last one it converged, or the run ended.
    pub trials: Vec<Trial>,
}

impl Logged {
    /// The runs in the log at `path`.
    ///
    /// # Errors
    /// A file that cannot be read or is none.
    pub fn load(path: &Path) -> Result<Vec<Logged>, InputError> {
        let error = |message: String| InputError::flag("replay_tuner", path.display().to_string(), message);
        let text = read_text(path, RECORD)
            .map_err(|fault| error(fault.with_cure("name what exec run wrote as its log of the tuner")))?;
        serde_json::from_str(&text).map_err(|fault| error(format!("is not a log of the tuner: {fault}")))
    }

    /// Writes runs to `path`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(runs: &[Logged], path: &Path) -> Result<(), InputError> {
        write_atomically(ErrorPlace::Flag("tuner_log"), path, |file| {
            serde_json::to_writer_pretty(&mut *file, runs)?;
            file.write_all(b"\n")
        })
    }
}
