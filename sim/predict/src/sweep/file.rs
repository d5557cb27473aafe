//! `RowsFile`: writes the rows of a sweep as they come, as CSV or JSON lines, to a file that an interrupted
//! sweep resumes.
//!
//! Rows are in the order of their points and each is one write of one line, so an interrupted sweep leaves the
//! beginning of the complete file and at most one torn line. That one is cut off; each other line must be to the byte
//! what this sweep writes.

use std::io;
use std::path::Path;

use lockstep_topology::{ErrorPlace, InputError, LINE, read_line};

use lockstep_report::lines::{Lines, wrong};
use lockstep_report::output::write_atomically;
use lockstep_report::{CsvForm, SweepRow};

/// A column that files of earlier builds lack. Such a file keeps its columns.
const ADDED: &str = "exposed_input_s";

/// How rows are written.
#[derive(Debug)]
enum Form {
    Csv(CsvForm<SweepRow>),
    JsonLines,
}

impl Form {
    /// By the ending of the file's name.
    fn of(path: &Path) -> Result<Form, InputError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Form::Csv(CsvForm::of(&SweepRow::default()))),
            Some("jsonl") => Ok(Form::JsonLines),
            _ => Err(wrong(path, "must end in .csv or .jsonl")),
        }
    }

    fn line(&self, row: &SweepRow) -> String {
        match self {
            Form::Csv(form) => form.line(row),
            Form::JsonLines => row.json_line(),
        }
    }
}

/// An open file of rows.
#[derive(Debug)]
pub struct RowsFile {
    form: Form,
    sweep: String,
    lines: Lines,
}

impl RowsFile {
    /// Opens the file at `path` for the rows of these points of `sweep`; `known` gets the rows that it already holds,
    /// the first of them, and says whether their settings are those of their points.
    ///
    /// A file that does not exist appears with the first row.
    ///
    /// # Errors
    /// A name that is neither `.csv` nor `.jsonl`; a file of something else, of another sweep, or in use.
    pub fn open(
        path: &Path,
        sweep: &str,
        points: &[u32],
        mut known: impl FnMut(SweepRow) -> bool,
    ) -> Result<RowsFile, InputError> {
        let mut rows = RowsFile { form: Form::of(path)?, sweep: sweep.to_owned(), lines: Lines::open(path)? };
        rows.keep_columns()?;
        let whole = rows.known(points, &mut known)?;
        rows.lines.keep(whole)?;
        Ok(rows)
    }

    /// Takes the columns of a CSV file of an earlier build.
    fn keep_columns(&mut self) -> Result<(), InputError> {
        let Form::Csv(form) = &self.form else { return Ok(()) };
        let (earlier, mut first) = (form.without(ADDED), Vec::new());
        if let Some(mut reader) = self.lines.reader() {
            let read = read_line(&mut reader, &mut first, LINE);
            read.map_err(|error| wrong(self.path(), &format!("cannot be read: {error}")))?;
        }
        if first == earlier.header().as_bytes() {
            self.form = Form::Csv(earlier);
        }
        Ok(())
    }

    /// Passes on the rows that the file holds, and returns how many bytes of it are whole lines.
    fn known(&self, points: &[u32], known: &mut impl FnMut(SweepRow) -> bool) -> Result<u64, InputError> {
        let broken = |error: io::Error| wrong(self.path(), &format!("cannot be read: {error}"));
        let (mut line, mut lines, mut points, mut whole) = (Vec::new(), 0u64, points.iter(), 0u64);
        let mut due = points.next();
        let Some(mut reader) = self.lines.reader() else { return Ok(0) };
        loop {
            line.clear();
            if read_line(&mut reader, &mut line, LINE).map_err(broken)? == 0 {
                break;
            }
            let expected = self.opening(lines, due);
            if line.last() != Some(&b'\n') {
                // Torn where the last run was interrupted, unless it is not ours.
                let shared = line.len().min(expected.len());
                if line[..shared] != expected.as_bytes()[..shared] {
                    return Err(self.foreign(lines, &line));
                }
                break;
            }
            if !line.starts_with(expected.as_bytes()) {
                return Err(self.foreign(lines, &line));
            }
            if lines > 0 || matches!(self.form, Form::JsonLines) {
                let row = self.parse(&line).filter(|_| due.is_some());
                if !known(row.ok_or_else(|| self.damaged(lines))?) {
                    return Err(self.damaged(lines));
                }
                due = points.next();
            }
            lines += 1;
            whole += line.len() as u64;
        }
        Ok(whole)
    }

    /// The expected beginning of line `line`, for the row of `point`; after the last one any row of the sweep.
    fn opening(&self, line: u64, point: Option<&u32>) -> String {
        let point = |before: &str| point.map_or_else(String::new, |point| format!("{before}{point},"));
        match &self.form {
            Form::Csv(form) if line == 0 => form.header(),
            Form::Csv(_) => format!("{},{}", self.sweep, point("")),
            Form::JsonLines => format!("{{\"sweep\":\"{}\",{}", self.sweep, point("\"point\":")),
        }
    }

    fn parse(&self, line: &[u8]) -> Option<SweepRow> {
        let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let row = match &self.form {
            Form::Csv(form) => form.row(text)?,
            Form::JsonLines => serde_json::from_str(text).ok()?,
        };
        let own = self.form.line(&row);
        let is_own = own.as_bytes() == line || own.replace(&format!("\"{ADDED}\":null,"), "").as_bytes() == line;
        is_own.then_some(row)
    }

    fn foreign(&self, line: u64, text: &[u8]) -> InputError {
        let what = match text.starts_with(self.opening(1, None).as_bytes()) {
            true => "of another point than is due there, as in the file of another shard",
            false => "not of this sweep",
        };
        let message = format!(
            "line {} is {what} ({}): name another file, or remove this one to start over",
            line + 1,
            self.sweep
        );
        wrong(self.path(), &message)
    }

    fn damaged(&self, line: u64) -> InputError {
        wrong(self.path(), &format!("line {} was changed after it was written: remove it and all below it", line + 1))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// A full disk, for example; a partial write is undone.
    pub fn add(&mut self, row: &SweepRow) -> Result<(), InputError> {
        let mut text = self.form.line(row);
        if let (true, Form::Csv(form)) = (self.lines.is_empty(), &self.form) {
            text.insert_str(0, &form.header());
        }
        self.lines.add(&text)
    }

    /// Rewrites the file at `path`, in one step, with all rows of a sweep.
    ///
    /// # Errors
    /// A name of another ending, a full disk.
    pub fn replace(path: &Path, rows: &[SweepRow]) -> Result<(), InputError> {
        let form = Form::of(path)?;
        write_atomically(ErrorPlace::Flag("out"), path, |file| {
            if let Form::Csv(form) = &form {
                file.write_all(form.header().as_bytes())?;
            }
            rows.iter().try_for_each(|row| file.write_all(form.line(row).as_bytes()))
        })
    }

    /// Flushes everything to the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn sync(&self) -> Result<(), InputError> {
        self.lines.sync()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.lines.path()
    }
}
