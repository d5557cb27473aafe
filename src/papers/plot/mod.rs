//! Plots: the shapes of a paper's figures, from predictions of the same machine as its rows.
//!
//! A plot is lines of configurations that differ in one key, and points, each of which is a row whose configuration stands on the
//! line. So a point is a number of the paper's text or follows from two of them; nothing can be read off an image.

mod across;
mod bounds;
mod draw;
mod exchange;
mod point;
mod published;
mod read;
#[cfg(test)]
mod tests;

use std::path::Path;

use lockstep_topology::{DESCRIPTION, ErrorPlace, InputError, read_text};

use super::{Paper, Row, Shipped, Unit};
use crate::experiment::Experiment;
use lockstep_report::svg::Spacing;

pub use bounds::told;
pub(super) use draw::svg;
pub(super) use point::predicted;

/// One plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Its short name, by which notebooks find it.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The paper's figure or section whose axes it has.
    pub like: String,
    /// What bounds its lines.
    pub caption: String,
    /// To the right.
    pub(crate) x: Across,
    /// Upwards.
    pub(crate) y: Upwards,
    /// In the order of the legend.
    pub(crate) lines: Vec<Line>,
}

/// The axis to the right.
#[derive(Debug, Clone)]
pub(crate) struct Across {
    pub(crate) label: String,
    pub(crate) spacing: Spacing,
    /// The values, and what they are called where that is not their number.
    pub(crate) values: Vec<(f64, Option<String>)>,
}

/// The axis upwards.
#[derive(Debug, Clone)]
pub(crate) struct Upwards {
    pub(crate) label: String,
    pub(crate) spacing: Spacing,
    pub(crate) unit: Unit,
    /// Where a linear axis begins.
    pub(crate) from: f64,
}

/// A line: what is predicted at each value of the axis, and the published figures that stand beside it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) of: Of,
    /// Whether the line that perfect scaling would be goes with it.
    pub(crate) perfect: bool,
    pub(crate) points: Vec<Point>,
}

/// What stands at each value of the axis to the right.
#[derive(Debug, Clone)]
pub(crate) enum Of {
    /// A quantity of a configuration, as of a row that nobody has published.
    Rows(Vec<Row>),
    /// An allreduce alone.
    Exchanges(Vec<Exchange>),
}

/// An allreduce of the experiment's first configuration, alone on the machine.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) at: Experiment,
    pub(crate) bytes: u64,
    /// Whether its bytes per second are asked for, not its seconds.
    pub(crate) rate: bool,
    /// File and line.
    pub(crate) place: ErrorPlace,
}

/// A published figure on a line.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// Its row's name.
    pub(crate) row: String,
    pub(crate) x: f64,
    /// In the axis's unit; none where the figure published is `x`, so that the point stands on the line.
    pub(crate) y: Option<f64>,
}

impl Plot {
    /// The plots of a paper: those that come with lockstep, or those of the file `NAME.figures.toml` beside its own, if it is there.
    ///
    /// # Errors
    /// An unreadable file, unknown or missing keys, units that do not fit, points that no line goes by: with file, line and cure.
    pub fn of(paper: &Paper, file: &str) -> Result<Vec<Plot>, InputError> {
        if let Some(shipped) = Shipped::called(file) {
            return read::parse(paper, &format!("experiments/papers/{file}.figures.toml"), shipped.figures);
        }
        let beside = Path::new(file).with_extension("figures.toml");
        match read_text(&beside, DESCRIPTION) {
            Ok(text) => read::parse(paper, &beside.display().to_string(), &text),
            Err(error) if error.is_missing() => Ok(Vec::new()),
            Err(error) => {
                let message = error.told("it holds the paper's figures");
                Err(InputError::new("PAPER", beside.display().to_string(), message))
            }
        }
    }

    /// The configurations that it shows.
    pub(crate) fn experiments(&self) -> impl Iterator<Item = &Experiment> {
        self.lines.iter().flat_map(|line| match &line.of {
            Of::Rows(rows) => rows.iter().flat_map(Row::experiments).collect::<Vec<_>>(),
            Of::Exchanges(exchanges) => exchanges.iter().map(|exchange| &exchange.at).collect(),
        })
    }
}
