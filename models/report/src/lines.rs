//! `Lines`: appends whole lines to a file that belongs to one run at a time.
//!
//! An interrupted run leaves the beginning of the complete output and at most one torn line. Opening the file again
//! reads it and keeps its whole lines. A lock keeps a second run out while the first one writes. Devices and pipes keep
//! nothing, so they are only written to.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use lockstep_topology::{ErrorPlace, InputError};

use crate::output::{Destination, check_writable};

/// An open file of lines.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    place: Sink,
    /// Bytes in whole lines.
    whole: u64,
}

/// Where the lines go.
enum Sink {
    /// The file behind all links; absent until there is a line to write.
    File(PathBuf, Option<File>),
    /// A device or a pipe.
    Stream(Box<dyn Write + Send>),
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sink::File(path, file) => f.debug_tuple("File").field(path).field(file).finish(),
            Sink::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl Lines {
    /// Opens the file at `path`, of which nothing is kept yet; one that does not exist appears with the first line.
    ///
    /// # Errors
    /// A file that cannot be opened, or in use.
    pub fn open(path: &Path) -> Result<Lines, InputError> {
        let unopened = |error| wrong(path, &format!("cannot be opened: {error}; name another file"));
        let place = match check_writable(FLAG, path)? {
            Destination::File(behind) => {
                let file = match File::options().read(true).write(true).open(&behind) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    opened => Some(opened.map_err(unopened)?),
                };
                file.iter().try_for_each(|file| lock(path, file))?;
                Sink::File(behind, file)
            }
            stream => Sink::Stream(stream.stream().map_err(unopened)?),
        };
        Ok(Lines { path: path.to_owned(), place, whole: 0 })
    }

    fn file(&self) -> Option<&File> {
        if let Sink::File(_, file) = &self.place { file.as_ref() } else { None }
    }

    /// Reads the file from its beginning; `None` if there is none yet.
    pub fn reader(&self) -> Option<BufReader<&File>> {
        let mut file = self.file()?;
        // What cannot be rewound is read from another place, where no line is ours.
        let _ = file.rewind();
        Some(BufReader::new(file))
    }

    /// Keeps the first `whole` bytes, which end a line, and cuts off the rest.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn keep(&mut self, whole: u64) -> Result<(), InputError> {
        self.whole = whole;
        let cut = self.file().map_or(Ok(()), |file| file.set_len(whole));
        cut.map_err(|error| wrong(&self.path, &format!("cannot be read: {error}")))
    }

    /// Whether it has no line.
    pub fn is_empty(&self) -> bool {
        self.whole == 0
    }

    /// Adds whole lines.
    ///
    /// # Errors
    /// A full disk, for example; a partial write is undone.
    pub fn add(&mut self, text: &str) -> Result<(), InputError> {
        let path = &self.path;
        let written = match &mut self.place {
            Sink::Stream(stream) => stream.write_all(text.as_bytes()).and_then(|()| stream.flush()),
            Sink::File(behind, file) => {
                let file = match file {
                    Some(file) => file,
                    None => {
                        let made = File::options().read(true).write(true).create_new(true).open(behind);
                        let made = made.map_err(|error| wrong(path, &format!("cannot be created: {error}")))?;
                        lock(path, &made)?;
                        file.insert(made)
                    }
                };
                let written = file.seek(SeekFrom::Start(self.whole)).and_then(|_| file.write_all(text.as_bytes()));
                // The first error is the one to report.
                written.inspect_err(|_| drop(file.set_len(self.whole)))
            }
        };
        let reason = |error| format!("cannot be written: {error}; free some space; rerunning the command resumes");
        written.map_err(|error| wrong(path, &reason(error)))?;
        self.whole += text.len() as u64;
        Ok(())
    }

    /// Flushes everything to the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn sync(&self) -> Result<(), InputError> {
        let synced = self.file().map_or(Ok(()), File::sync_all);
        synced.map_err(|error| wrong(&self.path, &format!("cannot be written: {error}")))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // As with a checkpoint folder's lock: closing would not be enough while a process is being started.
        let _ = self.file().map(File::unlock);
    }
}

/// The flag that names the file.
const FLAG: ErrorPlace = ErrorPlace::Flag("out");

/// Locks a file for this run alone.
fn lock(path: &Path, file: &File) -> Result<(), InputError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(wrong(path, "is being written by another run: wait for it, or stop it")),
        // A file system without locks is no reason to refuse.
        _ => Ok(()),
    }
}

/// An error about the file at `path`.
pub fn wrong(path: &Path, message: &str) -> InputError {
    InputError::new(FLAG, path.display().to_string(), message)
}
