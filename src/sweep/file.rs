//! `RowsFile`: the rows of a sweep as they come, CSV or JSON lines, in a file that an interrupted sweep goes on with.
//!
//! Rows stand in the order of their points and each is one write of one line, so whatever ends a sweep leaves the beginning
//! of what the whole one would have written, and at most one line that is torn. That one is cut off; each other line must
//! be to the byte what this sweep writes. A lock keeps a second run away while the first one writes.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use lockstep_topology::InputError;

use crate::report::SweepRow;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    JsonLines,
}

/// An open file of rows.
#[derive(Debug)]
pub struct RowsFile {
    path: PathBuf,
    form: Form,
    sweep: String,
    /// Absent until there is a row to write.
    file: Option<File>,
    /// Bytes in whole lines.
    whole: u64,
}

impl RowsFile {
    /// The file at `path` for the rows of `sweep`; `known` gets those that are there already, which must be `points` at most.
    ///
    /// A file that does not exist appears with the first row.
    ///
    /// # Errors
    /// A name that is neither `.csv` nor `.jsonl`; a file of something else, of another sweep, or in use.
    pub fn open(
        path: &Path,
        sweep: &str,
        points: u64,
        mut known: impl FnMut(SweepRow),
    ) -> Result<RowsFile, InputError> {
        let form = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Form::Csv,
            Some("jsonl") => Form::JsonLines,
            _ => return Err(wrong(path, "must end in .csv or .jsonl")),
        };
        let mut rows = RowsFile { path: path.to_owned(), form, sweep: sweep.to_owned(), file: None, whole: 0 };
        match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(rows),
            Err(error) => Err(wrong(path, &format!("cannot be opened: {error}; name another file"))),
            Ok(file) => {
                rows.lock(&file)?;
                rows.go_on(file, points, &mut known)?;
                Ok(rows)
            }
        }
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

    /// Takes over what `file` holds.
    fn go_on(&mut self, file: File, points: u64, known: &mut impl FnMut(SweepRow)) -> Result<(), InputError> {
        let broken = |error: io::Error| wrong(&self.path, &format!("cannot be read: {error}"));
        let mut reader = BufReader::new(&file);
        let (mut line, mut lines, mut point) = (Vec::new(), 0u64, 0u64);
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(broken)? == 0 {
                break;
            }
            let expected = self.opening(lines, point);
            if line.last() != Some(&b'\n') {
                // Torn by whatever ended the last run, unless it never was ours.
                let shared = line.len().min(expected.len());
                if line[..shared] != expected.as_bytes()[..shared] {
                    return Err(self.foreign(lines));
                }
                break;
            }
            if !line.starts_with(expected.as_bytes()) {
                return Err(self.foreign(lines));
            }
            if !(self.form == Form::Csv && lines == 0) {
                let row = self.parse(&line).filter(|_| point < points);
                known(row.ok_or_else(|| self.damaged(lines))?);
                point += 1;
            }
            lines += 1;
            self.whole += line.len() as u64;
        }
        file.set_len(self.whole).map_err(broken)?;
        self.file = Some(file);
        Ok(())
    }

    /// How line `line` begins, on which the row of `point` stands.
    fn opening(&self, line: u64, point: u64) -> String {
        match self.form {
            Form::Csv if line == 0 => SweepRow::csv_header(),
            Form::Csv => format!("{},{point},", self.sweep),
            Form::JsonLines => format!("{{\"sweep\":\"{}\",\"point\":{point},", self.sweep),
        }
    }

    fn parse(&self, line: &[u8]) -> Option<SweepRow> {
        let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let row = match self.form {
            Form::Csv => SweepRow::from_csv(text)?,
            Form::JsonLines => serde_json::from_str(text).ok()?,
        };
        (self.line(&row).as_bytes() == line).then_some(row)
    }

    fn line(&self, row: &SweepRow) -> String {
        match self.form {
            Form::Csv => row.csv_line(),
            Form::JsonLines => row.json_line(),
        }
    }

    fn foreign(&self, line: u64) -> InputError {
        let message = format!(
            "line {} is not of this sweep ({}): name another file, or remove this one to begin anew",
            line + 1,
            self.sweep
        );
        wrong(&self.path, &message)
    }

    fn damaged(&self, line: u64) -> InputError {
        wrong(&self.path, &format!("line {} was changed after it was written: remove it and all below it", line + 1))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// A full disk, say; what was written of the row is taken back.
    pub fn add(&mut self, row: &SweepRow) -> Result<(), InputError> {
        let mut text = self.line(row);
        if self.whole == 0 && self.form == Form::Csv {
            text.insert_str(0, &SweepRow::csv_header());
        }
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

fn wrong(path: &Path, message: &str) -> InputError {
    InputError::new("--out", path.display().to_string(), message)
}
