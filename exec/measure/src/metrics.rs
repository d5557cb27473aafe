//! Appends metrics of a running training to a file: one line of JSON per step, each step of a training once.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lockstep_experiment::identity::Identity;
use lockstep_report::log::print_line;
use lockstep_report::output::{Destination, check_writable, unwritable};
use lockstep_topology::{ErrorPlace, InputError, LINE, read_line};
use serde::{Deserialize, Serialize};

/// The flag that names the file.
const FLAG: ErrorPlace = ErrorPlace::Flag("metrics");

/// How each line begins.
const BEGINNING: &[u8] = b"{\"configuration\":";

/// A line of the file.
#[derive(Debug, Serialize)]
struct Line<'a> {
    configuration: &'a str,
    seed: u64,
    /// Identifies the training; see [`training`].
    training: &'a str,
    /// Steps since training began.
    step: u64,
    /// Mean over the samples of rank 0; `None` where it is not finite.
    loss: Option<f64>,
    /// In the last step.
    images_per_s: f64,
    /// Since the file was opened.
    elapsed_s: f64,
}

/// The fields that decide whether a line is kept when a training resumes.
#[derive(Debug, Deserialize)]
struct LineKey {
    configuration: String,
    training: String,
    step: u64,
}

/// A training that resumes, or begins; lines after its checkpoint will be written again.
#[derive(Debug, Clone, Copy)]
pub struct Resumed<'a> {
    /// Identifies the training; see [`training`].
    pub training: &'a str,
    /// The resuming configuration, and the steps done in terms of its batch.
    pub now: (&'a str, u64),
    /// The configuration that wrote the checkpoint, and the steps done in terms of its batch.
    pub before: (&'a str, u64),
}

impl Resumed<'_> {
    /// The line's fields, if it is of this training.
    fn place(&self, line: &[u8]) -> Option<LineKey> {
        serde_json::from_slice(line).ok().filter(|place: &LineKey| place.training == self.training)
    }

    /// Whether the line is of the step after which the checkpoint was written.
    fn is_last(&self, line: &[u8]) -> bool {
        self.place(line).is_some_and(|place| (&*place.configuration, place.step) == self.before)
    }

    /// Whether the line is of a step that this training is about to repeat; `is_behind`: it comes after the last such
    /// step.
    fn repeats(&self, line: &[u8], is_behind: bool) -> bool {
        let beyond = |place: &LineKey, (of, done)| place.configuration == of && place.step > done;
        self.place(line).is_some_and(|place| is_behind || beyond(&place, self.now) || beyond(&place, self.before))
    }
}

/// A short identifier of a training, from the settings that determine it: the same for runs that resume each other.
pub fn training(values: &BTreeMap<String, String>) -> String {
    let mut identity = Identity::default();
    values.iter().for_each(|(flag, value)| identity.set(flag, value));
    identity.hash()
}

/// A file of metrics.
pub struct Metrics {
    path: PathBuf,
    destination: Destination,
    begun: Instant,
    /// The file, `None` after an error; and when the last line was written.
    file: Mutex<(Option<Box<dyn Write + Send>>, Instant)>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Opens the file at `path` for appending, creating it if needed.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub fn open(path: &Path) -> Result<Metrics, InputError> {
        let destination = check_writable(FLAG, path)?;
        let file = destination.stream().map_err(|error| unwritable(FLAG, path, &error))?;
        let begun = Instant::now();
        Ok(Metrics { path: path.to_owned(), destination, begun, file: Mutex::new((Some(file), begun)) })
    }

    /// Removes the lines that a resuming training wrote after its checkpoint, since it will write them again.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn resume(&self, resumed: Resumed<'_>) -> Result<(), InputError> {
        // A pipe is opened once: its reader ends when it is closed. What has been written into it stays.
        if !matches!(self.destination, Destination::File(_)) {
            return Ok(());
        }
        let mut state = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // The file is replaced by another.
        state.0 = None;
        let opened = forget(&self.destination, resumed).and_then(|()| self.destination.stream());
        state.0 = Some(opened.map_err(|error| unwritable(FLAG, &self.path, &error))?);
        Ok(())
    }

    /// Removes the lines of a training that begins, beyond its first `done` steps: an earlier start of it has ended without
    /// a checkpoint, or is repeated.
    ///
    /// # Errors
    /// As [`Metrics::resume`].
    pub fn begin(&self, training: &str, configuration: &str, done: u64) -> Result<(), InputError> {
        // No checkpoint: no line is its last one.
        self.resume(Resumed { training, now: (configuration, done), before: ("", 0) })
    }

    /// Appends a line: `step` steps are done since training began, the last one with this loss and number of samples.
    pub fn step(&self, (configuration, seed, training): (&str, u64, &str), step: u64, loss: f64, samples: u64) {
        let mut state = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(file), before) = &mut *state else { return };
        let now = Instant::now();
        let images_per_s = samples as f64 / now.duration_since(*before).as_secs_f64().max(1e-9);
        *before = now;
        let elapsed_s = now.duration_since(self.begun).as_secs_f64();
        let loss = loss.is_finite().then_some(loss);
        let line = Line { configuration, seed, training, step, loss, images_per_s, elapsed_s };
        let text = serde_json::to_string(&line).unwrap_or_default();
        // In one call, so that a reader of the file never sees half a line.
        if let Err(error) = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.flush()) {
            print_line(&format!(
                "{FLAG}: {}: cannot be written any more: {error}; training continues",
                self.path.display()
            ));
            state.0 = None;
        }
    }
}

/// Removes the lines that `resumed` repeats from a file, and the last line if it is torn.
fn forget(destination: &Destination, resumed: Resumed<'_>) -> io::Result<()> {
    let Destination::File(path) = destination else { return Ok(()) };
    let (mut count, mut last) = (0u64, None);
    each_line(path, |line| {
        count += 1;
        last = if resumed.is_last(line) { Some(count) } else { last };
        Ok(())
    })?;
    let each = |then: &mut dyn FnMut(bool, &[u8]) -> io::Result<()>| {
        let mut number = 0u64;
        each_line(path, |line| {
            number += 1;
            let goes = is_torn(line) || resumed.repeats(line, last.is_some_and(|last| number > last));
            then(goes, line)
        })
    };
    let mut some = false;
    each(&mut |goes, line| {
        some |= goes || !line.ends_with(b"\n");
        Ok(())
    })?;
    if !some {
        return Ok(());
    }
    destination.write(|out| {
        each(&mut |goes, line| match (goes, line.ends_with(b"\n")) {
            (true, _) => Ok(()),
            (false, true) => out.write_all(line),
            // What follows must not join a line of something else.
            (false, false) => out.write_all(&[line, b"\n"].concat()),
        })
    })
}

/// Whether a line is the beginning of one of ours: a run was killed while it wrote it.
fn is_torn(line: &[u8]) -> bool {
    let shared = line.len().min(BEGINNING.len());
    !line.ends_with(b"\n") && line[..shared] == BEGINNING[..shared]
}

/// Calls `each` for each line of a file, including its line end.
fn each_line(path: &Path, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let (mut from, mut line) = (BufReader::new(File::open(path)?), Vec::new());
    while read_line(&mut from, &mut line, LINE)? > 0 {
        each(&line)?;
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn steps(path: &Path) -> Vec<(String, u64, u64)> {
        let line = |text: &str| {
            let line: serde_json::Value = serde_json::from_str(text).unwrap();
            (
                line["training"].as_str().unwrap().to_owned(),
                line["seed"].as_u64().unwrap(),
                line["step"].as_u64().unwrap(),
            )
        };
        fs::read_to_string(path).unwrap().lines().map(line).collect()
    }

    /// Lines of other trainings, and lines that are not ours, are kept wherever they are.
    #[test]
    fn a_resumed_training_has_each_step_once() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_path_buf();
        let path = folder.join("m.jsonl");
        let (small, large) = ("mlp, 2 ranks x 16", "mlp, 2 ranks x 32");
        // From a checkpoint of this configuration after a number of steps.
        let write = |training: &str, before: Option<(&str, u64)>, label: &str, steps: std::ops::RangeInclusive<u64>| {
            let resumed = before.map(|before| Resumed { training, now: (label, steps.start() - 1), before });
            let metrics = Metrics::open(&path).unwrap();
            resumed.iter().for_each(|resumed| metrics.resume(*resumed).unwrap());
            steps.for_each(|step| metrics.step((label, 1, training), step, 0.5, 32));
        };
        write("aa", None, small, 1..=57);
        write("bb", None, small, 1..=60);
        write("aa", Some((small, 50)), small, 51..=55);
        let of = |training: &str| -> Vec<u64> {
            steps(&path).into_iter().filter(|line| line.0 == training).map(|line| line.2).collect()
        };
        assert_eq!(of("aa"), (1..=55).collect::<Vec<u64>>());
        assert_eq!(of("bb"), (1..=60).collect::<Vec<u64>>());
        // With twice the batch it has done half as many steps.
        write("aa", Some((small, 50)), large, 26..=27);
        assert_eq!(of("aa"), (1..=50).chain(26..=27).collect::<Vec<u64>>());
        write("aa", Some((large, 26)), large, 27..=28);
        assert_eq!(of("aa")[48..], [49, 50, 26, 27, 28]);
        // Back to the first checkpoint: all lines after it are removed.
        write("aa", Some((small, 50)), small, 51..=51);
        assert_eq!(of("aa"), (1..=51).collect::<Vec<u64>>());
    }

    #[test]
    fn a_truncated_line_is_removed_and_foreign_ones_are_kept() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_path_buf();
        let path = folder.join("m.jsonl");
        let resumed = Resumed { training: "aa", now: ("mlp", 1), before: ("mlp", 1) };
        Metrics::open(&path).unwrap().resume(resumed).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        let lines = "not ours\n{\"step\":9}\n{\"configuration\":\"mlp\",\"training\":\"aa\",\"step\":1}\n";
        fs::write(&path, format!("{lines}{{\"config")).unwrap();
        let metrics = Metrics::open(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("config"));
        metrics.resume(resumed).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), lines);
        // The last line of something else is kept, and ended.
        fs::write(&path, format!("{lines}last")).unwrap();
        Metrics::open(&path).unwrap().begin("bb", "mlp", 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{lines}last\n"));
        Metrics::open(&path).unwrap().begin("aa", "mlp", 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "not ours\n{\"step\":9}\nlast\n");
    }
}
