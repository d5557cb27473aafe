//! `Report`: formats the rows of a command's answer as table, CSV or JSON.
//!
//! A row is a serde struct whose field names carry the units; all three forms come from the one serialization, so that
//! a column is called the same everywhere and no form can forget one.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use lockstep_topology::{InputError, printable, printable_json};
use schemars::JsonSchema;
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

use crate::columns::{Columns, Row, factors};
use crate::failure::Failure;
use crate::{csv, table};

/// The version of the JSON form; it grows when a key changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// The width of tables where it was set.
static WIDTH: OnceLock<usize> = OnceLock::new();

/// Sets the width of tables, in characters, instead of the terminal's. The first call counts.
pub fn set_width(characters: usize) {
    // A later call changes nothing.
    let _ = WIDTH.set(characters);
}

/// The width of tables, in characters: that of [`set_width`] or of the terminal, if there is one.
pub fn width() -> Option<usize> {
    let terminal = || terminal_size_of(io::stdout()).map(|(Width(width), _)| width.into());
    WIDTH.get().copied().or_else(terminal)
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people, rounded.
    #[default]
    Table,
    /// A header and a line per row, in full precision.
    Csv,
    /// `{"version": 1, "rows": [...]}`, in full precision.
    Json,
}

/// The answer of a command.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Report<R> {
    /// Version of this form: 1.
    pub version: u32,
    /// One row per configuration, or per thing listed.
    pub rows: Vec<R>,
    /// What the figures rest on, in sentences.
    pub notes: Vec<String>,
}

impl<R: Row> Report<R> {
    /// A report of these rows.
    pub fn new(rows: Vec<R>, notes: Vec<String>) -> Report<R> {
        Report { version: VERSION, rows, notes }
    }

    /// The report as text that ends with a newline.
    pub fn render(&self, format: Format) -> String {
        self.render_within(format, None)
    }

    /// The same; a table that is wider than `width` characters continues below.
    fn render_within(&self, format: Format, width: Option<usize>) -> String {
        match format {
            Format::Table => {
                let columns = Columns::of(&self.rows).with_bars(R::BARS).without(R::BELOW);
                let mut text = table::render(&columns, &[R::SETTING, R::OWN_SETTING].concat(), &factors::<R>(), width);
                for note in &self.notes {
                    text.push_str(&format!("note: {note}\n"));
                }
                text
            }
            Format::Csv => csv::render(&Columns::of(&self.rows)),
            Format::Json => match serde_json::to_string_pretty(self) {
                Ok(text) => text + "\n",
                Err(error) => unreachable!("rows are plain structs: {error}"),
            },
        }
    }

    /// Prints the report on standard output, a table within the width of [`set_width`] or of the terminal.
    ///
    /// # Errors
    /// See [`print()`].
    pub fn print(&self, format: Format) -> Result<(), Failure> {
        let text = self.render_within(format, width());
        match format {
            Format::Table => print(&text),
            Format::Json => write(&printable_json(&text)),
            // Other programs read the values as they are.
            Format::Csv if io::stdout().is_terminal() => print(&text),
            Format::Csv => write(&text),
        }
    }
}

/// Writes `text`, without control characters but ends of lines and tabs, to standard output; a reader that has gone away
/// (`| head`) is no error.
///
/// # Errors
/// Standard output that cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    write(&printable(text))
}

fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let message = format!("cannot be written: {error}; make room, or send it elsewhere");
            Err(InputError::new("standard output", "", message).into())
        }
        _ => Ok(()),
    }
}
