//! `RunsFile`: writes the rows of a trained sweep as CSV, one run at a time, to a file from which an interrupted sweep
//! resumes.
//!
//! A run's rows are one write, so an interrupted sweep leaves whole runs and at most one torn run, which is cut off. A
//! row that belongs to no run of this sweep is refused: it comes from another experiment, or from this one before it
//! was changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::path::Path;

use lockstep_experiment::shard::SweepShard;
use lockstep_report::lines::{Lines, wrong};
use lockstep_report::output::write_atomically;
use lockstep_report::{CsvForm, EpochRow};
use lockstep_topology::{ErrorPlace, InputError, RECORD};

use super::plan::{Planned, share};
use super::run::has_settings_of;

/// An open file of runs.
#[derive(Debug)]
pub struct RunsFile {
    lines: Lines,
    form: CsvForm<EpochRow>,
    /// The rows of completed runs.
    rows: Vec<EpochRow>,
}

impl RunsFile {
    /// Opens the file at `path` for the runs of `plan`, or for those of a shard, and reads its rows; a new file is
    /// created with the first run.
    ///
    /// # Errors
    /// A name that is not `.csv`; a file of another kind or in use, a row of another sweep or shard, a row that was
    /// changed.
    pub fn open(path: &Path, plan: &[Planned], shard: Option<SweepShard>) -> Result<RunsFile, InputError> {
        if path.extension().is_none_or(|extension| extension != "csv") {
            return Err(wrong(path, "must end in .csv"));
        }
        let (mut lines, form) = (Lines::open(path)?, CsvForm::of(&EpochRow::default()));
        let (rows, whole) = match lines.reader() {
            None => (Vec::new(), 0),
            Some(mut reader) => {
                let mut bytes = Vec::new();
                let read = reader.rewind().and_then(|()| reader.take(RECORD.0 + 1).read_to_end(&mut bytes));
                read.map_err(|error| wrong(path, &format!("cannot be read: {error}")))?;
                if bytes.len() as u64 > RECORD.0 {
                    return Err(wrong(path, &format!("is longer than the {RECORD} of such a file: name another")));
                }
                known(path, &String::from_utf8_lossy(&bytes), &form, plan, shard)?
            }
        };
        lines.keep(whole)?;
        Ok(RunsFile { lines, form, rows })
    }

    /// Whether it has the rows of `planned`.
    pub fn has(&self, planned: &Planned) -> bool {
        self.rows.iter().any(|row| row.run == planned.run)
    }

    /// Adds the rows of a run.
    ///
    /// # Errors
    /// For example a full disk; a partial write is undone.
    pub fn add(&mut self, rows: Vec<EpochRow>) -> Result<(), InputError> {
        let header = if self.lines.is_empty() { self.form.header() } else { String::new() };
        let text = rows.iter().map(|row| self.form.line(row));
        self.lines.add(&std::iter::once(header).chain(text).collect::<String>())?;
        self.lines.sync()?;
        self.rows.extend(rows);
        Ok(())
    }

    /// Rewrites the file at `path` atomically, with these rows.
    ///
    /// # Errors
    /// For example a full disk; the file is left as it was.
    pub fn replace(path: &Path, rows: &[EpochRow]) -> Result<(), InputError> {
        let form = CsvForm::of(&EpochRow::default());
        write_atomically(ErrorPlace::Flag("out"), path, |file| {
            file.write_all(form.header().as_bytes())?;
            rows.iter().try_for_each(|row| file.write_all(form.line(row).as_bytes()))
        })
    }

    /// The rows of all completed runs.
    pub fn rows(&self) -> &[EpochRow] {
        &self.rows
    }
}

/// The errors of a file of rows by line, from 0.
struct Faults<'a> {
    path: &'a Path,
    plan: &'a [Planned],
    shard: Option<SweepShard>,
    /// The seeds of the runs that belong in the file.
    seeds: BTreeMap<&'a str, u64>,
}

impl Faults<'_> {
    fn foreign(&self, line: usize) -> InputError {
        let message = format!(
            "line {} is of no run of this sweep: name another file, or remove the rows of what was changed",
            line + 1
        );
        wrong(self.path, &message)
    }

    /// A row of another shard, or of no run.
    fn elsewhere(&self, line: usize, row: &EpochRow) -> InputError {
        match self.shard {
            Some(shard)
                if !self.seeds.contains_key(row.run.as_str())
                    && self.plan.iter().any(|planned| planned.run == row.run) =>
            {
                let message = format!(
                    "line {} is of another shard than {shard}: was the file copied or renamed? Remove it, and run this shard",
                    line + 1
                );
                wrong(self.path, &message)
            }
            _ => self.foreign(line),
        }
    }

    fn changed(&self, line: usize) -> InputError {
        let message = format!("line {} was changed after it was written: remove the rows of its run", line + 1);
        wrong(self.path, &message)
    }
}

/// The rows of whole runs in `text`, and the number of bytes up to their end.
fn known(
    path: &Path,
    text: &str,
    form: &CsvForm<EpochRow>,
    plan: &[Planned],
    shard: Option<SweepShard>,
) -> Result<(Vec<EpochRow>, u64), InputError> {
    let seeds: BTreeMap<&str, u64> =
        share(plan, shard).iter().map(|planned| (planned.run.as_str(), planned.seed)).collect();
    let faults = Faults { path, plan, shard, seeds };
    let seeds = &faults.seeds;
    // The settings of a row are those of its run.
    let planned = |row: &EpochRow| {
        let of = plan.iter().find(|planned| planned.run == row.run);
        of.is_some_and(|of| has_settings_of(of, row))
    };
    // The former name of a column stays readable for one release.
    let former = form.header().replace("test_error_pct", "error_pct");
    let header = if text.starts_with(&former) { former } else { form.header() };
    if !text.starts_with(&header) {
        // Torn when the last run was interrupted, unless it was never our file.
        return if header.starts_with(text) { Ok((Vec::new(), 0)) } else { Err(faults.foreign(0)) };
    }
    let (mut rows, mut run, mut whole, mut at) = (Vec::new(), Vec::new(), header.len(), header.len());
    let mut done: BTreeSet<String> = BTreeSet::new();
    for (number, line) in text[header.len()..].split_inclusive('\n').enumerate().map(|(line, text)| (line + 1, text)) {
        let Some(bare) = line.strip_suffix('\n') else {
            let ours = seeds.keys().any(|run| run.starts_with(line) || line.starts_with(&format!("{run},")));
            if !ours {
                return Err(faults.foreign(number));
            }
            break;
        };
        let row = form.row(bare).filter(|row| form.line(row) == line);
        let Some(row) = row else { return Err(faults.changed(number)) };
        if seeds.get(row.run.as_str()) != Some(&row.seed) || done.contains(&row.run) {
            return Err(faults.elsewhere(number, &row));
        }
        let ordered = row.diverged_step.is_some() || row.epoch as usize == run.len() + 1;
        if !ordered || !planned(&row) {
            return Err(faults.changed(number));
        }
        at += line.len();
        if run.first().is_some_and(|first: &EpochRow| first.run != row.run) {
            // Only a torn line has no end, and nothing follows it.
            return Err(faults.foreign(number));
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
