//! Splits a log into runs of a program: its ranks, its header, its rows.

use std::borrow::Cow;

use lockstep_topology::InputError;

use super::lines::{self, Columns, RankLine};
use super::wrong;

/// A run of one program, with its table.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Run {
    /// The line of the header, else of the first row.
    pub(super) line: usize,
    pub(super) columns: Columns,
    /// Whether times are in milliseconds by the header.
    pub(super) is_in_ms: bool,
    /// Whether the first times are in place.
    pub(super) in_place_first: bool,
    /// Whether all times are in place.
    pub(super) in_place_only: bool,
    pub(super) rows: Vec<Row>,
    pub(super) ranks: Vec<RankLine>,
    /// `all_reduce`, or OSU's and Intel's name of the collective.
    pub(super) program: Option<(Family, String)>,
    /// Ranks by NCCL's own lines, or by Intel's.
    pub(super) stated_ranks: Option<u32>,
    pub(super) version: Option<(u32, u32)>,
    /// Values that came out wrong, by the last lines.
    pub(super) has_failed: bool,
}

/// Whose benchmark a table is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Family {
    /// nccl-tests, rccl-tests and those that print the same.
    #[default]
    Nccl,
    /// OSU's or Intel's benchmarks of MPI, whose sizes are of one rank.
    Mpi,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) cells: Vec<String>,
}

/// The runs in `text` that have rows.
///
/// # Errors
/// A row without its time.
pub(super) fn list(file: &str, text: &str) -> Result<Vec<Run>, InputError> {
    let mut reader = Reader { file, runs: Vec::new(), run: Run::default(), cut: None };
    for (line, text) in (1..).zip(text.lines()) {
        let text = plain(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        reader.read(line, &words)?;
    }
    reader.end_row()?;
    reader.next();
    Ok(reader.runs)
}

/// The line without colours and a table's bars.
fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '|', '`']) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends = part.find(|c: char| c.is_ascii_alphabetic()).filter(|_| part.starts_with('['));
        plain.push_str(ends.map_or(part, |at| &part[at + 1..]));
    }
    Cow::Owned(plain.replace(['|', '`'], " "))
}

struct Reader<'a> {
    file: &'a str,
    runs: Vec<Run>,
    run: Run,
    /// The row that other output cut off.
    cut: Option<Row>,
}

impl Reader<'_> {
    fn read(&mut self, line: usize, words: &[&str]) -> Result<(), InputError> {
        if let Some(columns) = Columns::of(words) {
            self.end_row()?;
            if !self.run.rows.is_empty() {
                // A further table of the same program: what was said of the ranks holds.
                let next = Run { rows: Vec::new(), has_failed: false, ..self.run.clone() };
                self.runs.push(std::mem::replace(&mut self.run, next));
            }
            (self.run.line, self.run.columns) = (line, columns);
            self.run.is_in_ms = words.iter().any(|word| word.contains("(ms)"));
            return Ok(());
        }
        if self.described(words)? {
            return Ok(());
        }
        // NCCL's lines list numbers too; of those, a row's beginning can only precede them.
        let is_of_nccl = words.iter().any(|word| matches!(*word, "INFO" | "WARN"));
        if !is_of_nccl && self.continued(words)? {
            return Ok(());
        }
        self.row(line, words)
    }

    /// Whether the line says something of the run, which is kept.
    fn described(&mut self, words: &[&str]) -> Result<bool, InputError> {
        let has = |of: &str| words.iter().any(|word| word.trim_start_matches('#') == of);
        if has("nThread") || has("devices") && has("Using") || has("starting:") {
            self.end_row()?;
            self.next();
        }
        if let Some(rank) = lines::rank(words) {
            if !self.run.rows.is_empty() {
                self.next();
            }
            self.run.ranks.push(rank);
            return Ok(true);
        }
        let number = |of: &str| {
            let at = words.iter().position(|word| *word == of)?;
            let skipped = words.get(at + 1).filter(|word| **word != "=").or_else(|| words.get(at + 2));
            skipped.and_then(|word| word.parse::<u32>().ok())
        };
        if has("INFO") || has("processes") {
            self.run.stated_ranks = self.run.stated_ranks.max(number("nranks").or_else(|| number("#processes")));
        }
        self.run.version = self.run.version.or_else(|| lines::version(words));
        if let Some((_, name)) = lines::title(words) {
            self.next();
            self.run.program = Some((Family::Mpi, name));
            return Ok(true);
        }
        if let Some(name) = lines::program(words).filter(|_| !has("concluded:")) {
            let is_other = self.run.program.as_ref().is_some_and(|(_, own)| *own != name);
            if !self.run.rows.is_empty() && is_other {
                self.end_row()?;
                self.next();
            }
            self.run.program = Some((Family::Nccl, name));
        }
        self.run.has_failed |= has("FAILED") && has("bounds");
        if words.contains(&"(ms)") && !words.contains(&"(us)") {
            self.run.is_in_ms = true;
        }
        let at = |of: &str| words.iter().position(|word| word.trim_start_matches('#') == of);
        if let (Some(inside), Some(outside)) = (at("in-place"), at("out-of-place")) {
            self.run.in_place_first = inside < outside;
        }
        self.run.in_place_only |= at("in-place").is_some() && at("out-of-place").is_none();
        Ok(false)
    }

    /// Whether the line has the rest of the row that was cut off.
    fn continued(&mut self, words: &[&str]) -> Result<bool, InputError> {
        let (Some(row), rest @ [_, ..]) = (&mut self.cut, lines::trailing(words)) else { return Ok(false) };
        let missing = self.run.columns.cells - row.cells.len();
        if rest.len() != missing && (rest.len() != 4 || rest.len() > missing) {
            return Ok(false);
        }
        row.cells.extend(lines::owned(rest));
        if rest.len() == missing {
            self.end_row()?;
        }
        Ok(true)
    }

    fn row(&mut self, line: usize, words: &[&str]) -> Result<(), InputError> {
        let has_header = self.run.columns.cells > 0;
        let columns = if has_header { self.run.columns.clone() } else { Columns::usual() };
        let Some(cells) = columns.row(words) else { return Ok(()) };
        if !has_header {
            if cells.len() != columns.cells {
                let message = "comes before the header, the line with size and time: keep that line";
                return Err(wrong(self.file, line, &cells[0], message));
            }
            (self.run.line, self.run.columns) = (line, columns);
        }
        self.end_row()?;
        let is_whole = cells.len() == self.run.columns.cells;
        self.cut = Some(Row { line, cells });
        if is_whole { self.end_row() } else { Ok(()) }
    }

    /// Keeps the row that was begun.
    fn end_row(&mut self) -> Result<(), InputError> {
        let Some(row) = self.cut.take() else { return Ok(()) };
        if self.run.columns.times.first().is_none_or(|time| row.cells.len() <= *time) {
            let message = "has no time: the line was truncated: complete it, or leave it out";
            return Err(wrong(self.file, row.line, &row.cells[0], message));
        }
        self.run.rows.push(row);
        Ok(())
    }

    /// Begins another run if this one has rows.
    fn next(&mut self) {
        if !self.run.rows.is_empty() {
            self.runs.push(std::mem::take(&mut self.run));
        }
    }
}
