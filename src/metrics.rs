//! Metrics of a run while it goes on: a line of JSON a step, appended to a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lockstep_topology::InputError;
use serde::Serialize;

/// A line of the file.
#[derive(Debug, Serialize)]
struct Line<'a> {
    configuration: &'a str,
    seed: u64,
    /// Steps since training began.
    step: u64,
    /// Mean over the samples of rank 0; nothing where it is no number.
    loss: Option<f64>,
    /// Of the last step.
    images_per_s: f64,
    /// Since the file was opened.
    elapsed_s: f64,
}

/// A file of metrics.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    begun: Instant,
    /// Nothing after an error; and when the last line was written.
    file: Mutex<(Option<File>, Instant)>,
}

impl Metrics {
    /// Appends to the file at `path`, which is made if it does not exist.
    ///
    /// # Errors
    /// A place that cannot be written.
    pub fn open(path: &Path) -> Result<Metrics, InputError> {
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
            let message = format!("cannot be written: {error}; name a file in a folder that exists and is writable");
            InputError::new("--metrics", path.display().to_string(), message)
        })?;
        let begun = Instant::now();
        Ok(Metrics { path: path.to_owned(), begun, file: Mutex::new((Some(file), begun)) })
    }

    /// Appends a line: `step` steps are done since training began, the last one with this loss and so many samples.
    pub fn step(&self, (configuration, seed): (&str, u64), step: u64, loss: f64, samples: u64) {
        let mut state = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(file), before) = &mut *state else { return };
        let now = Instant::now();
        let images_per_s = samples as f64 / now.duration_since(*before).as_secs_f64().max(1e-9);
        *before = now;
        let elapsed_s = now.duration_since(self.begun).as_secs_f64();
        let line = Line { configuration, seed, step, loss: loss.is_finite().then_some(loss), images_per_s, elapsed_s };
        let text = serde_json::to_string(&line).unwrap_or_default();
        // In one call, so that whoever follows the file never sees half a line.
        if let Err(error) = file.write_all(format!("{text}\n").as_bytes()) {
            eprintln!("--metrics: {}: cannot be written any more: {error}; training goes on", self.path.display());
            state.0 = None;
        }
    }
}
