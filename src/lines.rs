//! `Lines`: a file that grows by whole lines and belongs to one run at a time.
//!
//! What ends a run leaves the beginning of what the whole one would have written, and at most one line that is torn; whoever
//! opens the file reads it, and keeps as much as is whole. A lock keeps a second run away while the first one writes.

use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use lockstep_topology::InputError;

/// An open file of lines.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    /// Absent until there is a line to write.
    file: Option<File>,
    /// Bytes in whole lines.
    whole: u64,
}

impl Lines {
    /// The file at `path`, of which nothing is kept yet; one that does not exist appears with the first line.
    ///
    /// # Errors
    /// A file that cannot be opened, or in use.
    pub fn open(path: &Path) -> Result<Lines, InputError> {
        let mut lines = Lines { path: path.to_owned(), file: None, whole: 0 };
        match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(wrong(path, &format!("cannot be opened: {error}; name another file"))),
            Ok(file) => {
                lines.lock(&file)?;
                lines.file = Some(file);
            }
        }
        Ok(lines)
    }

    fn lock(&self, file: &File) -> Result<(), InputError> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(wrong(&self.path, "is being written by another run: wait for it, or stop it"))
            }
            // A file system without locks is no reason to refuse.
            _ => Ok(()),
        }
    }

    /// What stands in it, from its beginning; nothing if there is no file yet.
    pub fn reader(&self) -> Option<BufReader<&File>> {
        self.file.as_ref().map(BufReader::new)
    }

    /// Keeps the first `whole` bytes, which end a line, and cuts off what is behind them.
    ///
    /// # Errors
    /// What the disk says.
    pub fn keep(&mut self, whole: u64) -> Result<(), InputError> {
        self.whole = whole;
        let cut = self.file.as_ref().map_or(Ok(()), |file| file.set_len(whole));
        cut.map_err(|error| wrong(&self.path, &format!("cannot be read: {error}")))
    }

    /// Whether no line stands in it.
    pub fn is_empty(&self) -> bool {
        self.whole == 0
    }

    /// Adds whole lines.
    ///
    /// # Errors
    /// A full disk, say; what was written of them is taken back.
    pub fn add(&mut self, text: &str) -> Result<(), InputError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = File::options().read(true).write(true).create_new(true).open(&self.path);
                let file = file.map_err(|error| wrong(&self.path, &format!("cannot be made: {error}")))?;
                self.lock(&file)?;
                file
            }
        };
        let written = (&file).seek(SeekFrom::Start(self.whole)).and_then(|_| (&file).write_all(text.as_bytes()));
        if let Err(error) = written {
            // The first error is the one to tell.
            let _ = file.set_len(self.whole);
            let message = format!("cannot be written: {error}; make room, then the same command goes on from here");
            return Err(wrong(&self.path, &message));
        }
        self.whole += text.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    /// Puts everything on the disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn sync(&self) -> Result<(), InputError> {
        let synced = self.file.as_ref().map_or(Ok(()), File::sync_all);
        synced.map_err(|error| wrong(&self.path, &format!("cannot be written: {error}")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An error about the file at `path`.
pub fn wrong(path: &Path, message: &str) -> InputError {
    InputError::new("--out", path.display().to_string(), message)
}
