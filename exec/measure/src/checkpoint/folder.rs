//! Manages the folder of a run's checkpoints: when the next one is written, how, and which are read and deleted.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockstep_exec::{Pins, available_memory};
use lockstep_report::output::replace_atomically;
use lockstep_topology::{Bytes, ErrorPlace, InputError, read_bytes};

use super::{Checkpoint, Lock};

/// Number of checkpoints kept: the last one, and the one before in case the last one is damaged.
const KEPT: usize = 2;

/// How often the state is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// After this many steps.
    Steps(u64),
    /// After the first step that ends this long after the previous checkpoint.
    Time(Duration),
}

impl FromStr for Every {
    type Err = String;

    /// Reads `100`, `100steps` and `30s`.
    fn from_str(text: &str) -> Result<Every, String> {
        let cure = || format!("{text:?}: write a number of steps or of seconds above 0, such as 100, 100steps or 30s");
        let text = text.trim();
        let number = |digits: &str| digits.trim().parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(cure);
        match text.strip_suffix("steps").or_else(|| text.strip_suffix("step")) {
            Some(steps) => number(steps).map(Every::Steps),
            None => match text.strip_suffix('s') {
                Some(seconds) => number(seconds).map(|seconds| Every::Time(Duration::from_secs(seconds))),
                None => number(text).map(Every::Steps),
            },
        }
    }
}

/// The destination of a run's checkpoints, and their interval.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    every: Every,
    /// The processors of the thread that opened it, which is not bound as ranks are.
    pins: Pins,
    _lock: Lock,
    last: Mutex<Instant>,
    /// Whether checkpoints of later steps in the folder belong to a run that has been abandoned.
    goes_back: bool,
}

impl Folder {
    /// Opens the folder for writing, creating it if needed; no other run may write there until this is dropped. Deletes
    /// drafts that an interrupted run has left. The second value names a run that did not end normally.
    ///
    /// # Errors
    /// A folder that cannot be created or written, or that another run writes to.
    pub fn open(path: &Path, every: Every) -> Result<(Folder, Option<String>), InputError> {
        fs::create_dir_all(path).map_err(|error| {
            let message = format!("cannot be created: {error}; name a folder that can be written");
            InputError::flag("checkpoint", path.display().to_string(), message)
        })?;
        let (lock, dead) = Lock::take(path)?;
        let is_draft = |name: &String| name.starts_with("step-") && name.ends_with(".tmp");
        for draft in names(path).unwrap_or_default().into_iter().filter(is_draft) {
            // A draft that remains takes space and does no harm.
            let _ = fs::remove_file(path.join(draft));
        }
        let last = Mutex::new(Instant::now());
        Ok((
            Folder { path: path.to_owned(), every, pins: Pins::of_this_thread(), _lock: lock, last, goes_back: false },
            dead,
        ))
    }

    /// The same for a run that resumes from the checkpoint at `from`: if that is in this folder, checkpoints of later
    /// steps are deleted when the next one is written. With a larger batch there are fewer steps, and the latest
    /// checkpoint must be the one with the most steps.
    #[must_use]
    pub fn resumed_from(self, from: &Path) -> Folder {
        let same = |folder: &Path| folder.canonicalize().ok() == self.path.canonicalize().ok();
        let goes_back = from.parent().is_some_and(same);
        Folder { goes_back, ..self }
    }

    /// Whether the state after `steps` steps is to be saved.
    pub fn is_due(&self, steps: u64) -> bool {
        match self.every {
            Every::Steps(every) => steps.is_multiple_of(every),
            Every::Time(every) => self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= every,
        }
    }

    /// Writes the checkpoint after `steps` steps with `fill`, then deletes all but the last two; returns its path.
    /// `fill` is given an empty file and the processors for a second thread.
    ///
    /// # Errors
    /// A disk that is full or fails; existing checkpoints are kept.
    pub fn keep(&self, steps: u64, fill: impl FnOnce(&File, &Pins) -> io::Result<()>) -> Result<PathBuf, InputError> {
        let path = self.path.join(name(steps));
        let before = list(&self.path).ok().and_then(|all| all.last().cloned());
        let written = replace_atomically(ErrorPlace::Flag("checkpoint"), &path, |file| fill(file, &self.pins));
        written.map_err(|error| {
            let left = before.map_or("there is no earlier one".to_owned(), |(_, path)| {
                format!("the last good checkpoint is {}", path.display())
            });
            InputError { message: format!("{}; {left}", error.message), ..error }
        })?;
        // The new name itself must survive a power cut before older checkpoints are deleted.
        let kept = File::open(&self.path).and_then(|folder| folder.sync_all());
        if kept.is_ok() {
            let all = list(&self.path).unwrap_or_default();
            let gone = all.iter().filter(|(at, _)| *at < steps).rev().skip(KEPT - 1);
            let left = all.iter().filter(|(at, _)| self.goes_back && *at > steps);
            gone.chain(left).for_each(|(_, old)| drop(fs::remove_file(old)));
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(path)
    }
}

fn name(steps: u64) -> String {
    format!("step-{steps:010}.safetensors")
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(folder)?.collect();
    Ok(entries?.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// The checkpoints of a folder with their steps, the latest last.
fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let steps = |name: &str| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse::<u64>().ok();
    let mut all: Vec<_> = names(folder)?.iter().filter_map(|name| Some((steps(name)?, folder.join(name)))).collect();
    all.sort();
    Ok(all)
}

/// The longest checkpoint that is read: one that fits in the memory left.
fn most() -> Bytes {
    Bytes(available_memory().unwrap_or(u64::MAX - 1))
}

/// The latest intact checkpoint of a folder, or the one in a file, with its path; `passed` is called for damaged ones.
///
/// # Errors
/// None there, none intact, or the latest one has a newer version.
pub fn latest(path: &Path, mut passed: impl FnMut(&InputError)) -> Result<(Checkpoint, PathBuf), InputError> {
    let wrong = |message: String| InputError::flag("resume", path.display().to_string(), message);
    let cure = &format!("name the folder that {} named, or a file in it", ErrorPlace::Flag("checkpoint"));
    if !path.is_dir() {
        let bytes = read_bytes(path, most()).map_err(|error| wrong(error.with_cure(cure)))?;
        return Ok((Checkpoint::from_bytes(&path.display().to_string(), &bytes)?, path.to_owned()));
    }
    let all = list(path).map_err(|error| wrong(format!("cannot be read: {error}; {cure}")))?;
    let mut last = None;
    for (_, path) in all.into_iter().rev() {
        let shown = path.display().to_string();
        let read = read_bytes(&path, most()).map_err(|error| InputError::new(&*shown, "", error.with_cure("")));
        match read.and_then(|bytes| Checkpoint::from_bytes(&shown, &bytes)) {
            Ok(checkpoint) => return Ok((checkpoint, path)),
            // Earlier checkpoints would be of the newer program too.
            Err(error) if error.message.contains("of the format") => return Err(error),
            Err(error) => {
                passed(&error);
                last = Some(error);
            }
        }
    }
    Err(last.unwrap_or_else(|| wrong(format!("holds no checkpoint: {cure}"))))
}
