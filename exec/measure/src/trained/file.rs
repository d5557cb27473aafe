//! `RunsFile`: the rows of a trained sweep, CSV, a run's rows at a time, in a file that an interrupted sweep goes on with.
//!
//! A run's rows are one write, so whatever ends a sweep leaves whole runs and at most one that is torn, which is cut off. A
//! row that no run of this sweep has is refused: it was made by another experiment, or by this one before it was changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::path::Path;

use lockstep_experiment::shard::Shard;
use lockstep_report::lines::{Lines, wrong};
use lockstep_report::output::write_atomically;
use lockstep_report::{CsvForm, EpochRow};
use lockstep_topology::{ErrorPlace, InputError};

use super::plan::{Planned, share};

/// An open file of runs.
#[derive(Debug)]
pub struct RunsFile {
    lines: Lines,
    form: CsvForm<EpochRow>,
    /// The rows of runs that are done.
    rows: Vec<EpochRow>,
}

impl RunsFile {
    /// The file at `path` for the runs of `plan`, or for those of a shard, with the rows that it holds; one that does not exist
    /// appears with the first run.
    ///
    /// # Errors
    /// A name that is not `.csv`; a file of something else or in use, a row of another sweep or shard, a row that was changed.
    pub fn open(path: &Path, plan: &[Planned], shard: Option<Shard>) -> Result<RunsFile, InputError> {
        if path.extension().is_none_or(|extension| extension != "csv") {
            return Err(wrong(path, "must end in .csv"));
        }
        let (mut lines, form) = (Lines::open(path)?, CsvForm::of(&EpochRow::default()));
        let (rows, whole) = match lines.reader() {
            None => (Vec::new(), 0),
            Some(mut reader) => {
                let mut bytes = Vec::new();
                let read = reader.rewind().and_then(|()| reader.read_to_end(&mut bytes));
                read.map_err(|error| wrong(path, &format!("cannot be read: {error}")))?;
                known(path, &String::from_utf8_lossy(&bytes), &form, plan, shard)?
            }
        };
        lines.keep(whole)?;
        Ok(RunsFile { lines, form, rows })
    }

    /// Whether the rows of `planned` are there.
    pub fn has(&self, planned: &Planned) -> bool {
        self.rows.iter().any(|row| row.run == planned.run)
    }

    /// Adds the rows of a run.
    ///
    /// # Errors
    /// A full disk, say; what was written of them is taken back.
    pub fn add(&mut self, rows: Vec<EpochRow>) -> Result<(), InputError> {
        let header = if self.lines.is_empty() { self.form.header() } else { String::new() };
        let text = rows.iter().map(|row| self.form.line(row));
        self.lines.add(&std::iter::once(header).chain(text).collect::<String>())?;
        self.lines.sync()?;
        self.rows.extend(rows);
        Ok(())
    }

    /// Writes the file at `path` anew, in one step, with these rows.
    ///
    /// # Errors
    /// A full disk, say; the file stays as it was.
    pub fn replace(path: &Path, rows: &[EpochRow]) -> Result<(), InputError> {
        let form = CsvForm::of(&EpochRow::default());
        write_atomically(ErrorPlace::Flag("out"), path, |file| {
            file.write_all(form.header().as_bytes())?;
            rows.iter().try_for_each(|row| file.write_all(form.line(row).as_bytes()))
        })
    }

    /// The rows of all runs that are done.
    pub fn rows(&self) -> &[EpochRow] {
        &self.rows
    }
}

/// The rows of whole runs that stand in `text`, and the bytes up to their end.
fn known(
    path: &Path,
    text: &str,
    form: &CsvForm<EpochRow>,
    plan: &[Planned],
    shard: Option<Shard>,
) -> Result<(Vec<EpochRow>, u64), InputError> {
    let seeds: BTreeMap<&str, u64> =
        share(plan, shard).iter().map(|planned| (planned.run.as_str(), planned.seed)).collect();
    let foreign = |line: usize| {
        let message = format!(
            "line {} is of no run of this sweep: name another file, or remove the rows of what was changed",
            line + 1
        );
        wrong(path, &message)
    };
    let elsewhere = |line: usize, row: &EpochRow| match shard {
        Some(shard) if !seeds.contains_key(row.run.as_str()) && plan.iter().any(|planned| planned.run == row.run) => {
            let message = format!(
                "line {} is of another shard than {shard}: was the file copied or renamed? Remove it, and run this shard",
                line + 1
            );
            wrong(path, &message)
        }
        _ => foreign(line),
    };
    let header = form.header();
    if !text.starts_with(&header) {
        // Torn by whatever ended the last run, unless it never was ours.
        return if header.starts_with(text) { Ok((Vec::new(), 0)) } else { Err(foreign(0)) };
    }
    let (mut rows, mut run, mut whole, mut at) = (Vec::new(), Vec::new(), header.len(), header.len());
    let mut done: BTreeSet<String> = BTreeSet::new();
    for (number, line) in text[header.len()..].split_inclusive('\n').enumerate().map(|(line, text)| (line + 1, text)) {
        let Some(bare) = line.strip_suffix('\n') else {
            let ours = seeds.keys().any(|run| run.starts_with(line) || line.starts_with(&format!("{run},")));
            if !ours {
                return Err(foreign(number));
            }
            break;
        };
        let row = form.row(bare).filter(|row| form.line(row) == line);
        let Some(row) = row else {
            let message = format!("line {} was changed after it was written: remove the rows of its run", number + 1);
            return Err(wrong(path, &message));
        };
        if seeds.get(row.run.as_str()) != Some(&row.seed) || done.contains(&row.run) {
            return Err(elsewhere(number, &row));
        }
        at += line.len();
        if run.first().is_some_and(|first: &EpochRow| first.run != row.run) {
            // Only what was torn has no end, and nothing follows that.
            return Err(foreign(number));
        }
        let ends = row.ends_run();
        run.push(row);
        if ends {
            done.insert(run[0].run.clone());
            rows.append(&mut run);
            whole = at;
        }
    }
    Ok((rows, whole as u64))
}
