//! Saves and loads the driver's log: which learner got which batch of a run, a line of JSON each, for replay.

use std::path::Path;
use std::sync::Arc;

use lockstep_models::Claim;
use lockstep_topology::{ErrorPlace, InputError, RECORD, Time, read_text};
use serde::{Deserialize, Serialize};

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

/// Writes the claims of a run to `path`.
///
/// # Errors
/// A file that cannot be written.
pub fn save(claims: &[Claim], path: &Path) -> Result<(), InputError> {
    write_atomically(ErrorPlace::Flag("driver_log"), path, |out| {
        for Claim { iteration, rank, micro_batch, at } in claims {
            let line = Line { iteration: *iteration, rank: *rank, micro_batch: *micro_batch, at_ps: at.0 };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
        Ok(())
    })
}

/// The claims in the file at `path`.
///
/// # Errors
/// A file that cannot be read or is none.
pub fn load(path: &Path) -> Result<Arc<[Claim]>, InputError> {
    let shown = path.display().to_string();
    let text = read_text(path, RECORD)
        .map_err(|error| InputError::flag("replay", &*shown, error.with_cure("name a log of the driver")))?;
    parse(&shown, &text)
}

/// The claims in `text`, the content of the log that errors call `shown`.
///
/// # Errors
/// The first line that does not belong to a log.
pub fn parse(shown: &str, text: &str) -> Result<Arc<[Claim]>, InputError> {
    let claim = |(number, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(Line { iteration, rank, micro_batch, at_ps }) => Ok(Claim { iteration, rank, micro_batch, at: Time(at_ps) }),
        Err(error) => {
            let message = format!("is not a line of a log: {error}; replay a log of the driver");
            Err(InputError::new(ErrorPlace::line(shown, number + 1), line, message))
        }
    };
    text.lines().enumerate().map(claim).collect()
}
