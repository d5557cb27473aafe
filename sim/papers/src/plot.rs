//! `Plot`: describes a paper's plot. Lines of configurations that differ in one key, and published points on them.

use lockstep_report::svg::Spacing;
use lockstep_topology::ErrorPlace;

use super::row::CaseRow;
use super::unit::Unit;
use lockstep_experiment::Experiment;

/// One plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Its short name, used by notebooks.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The paper's figure or section with the same axes.
    pub like: String,
    /// The caption, about what bounds its lines.
    pub caption: String,
    /// The horizontal axis.
    pub(super) x: Across,
    /// The vertical axis.
    pub(super) y: Upwards,
    /// In the order of the legend.
    pub(super) lines: Vec<Line>,
}

/// The horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct Across {
    pub(super) label: String,
    pub(super) spacing: Spacing,
    /// The values, and their names where these are not the numbers.
    pub(super) values: Vec<(f64, Option<String>)>,
}

/// The vertical axis.
#[derive(Debug, Clone)]
pub(super) struct Upwards {
    pub(super) label: String,
    pub(super) spacing: Spacing,
    pub(super) unit: Unit,
    /// The start of a linear axis.
    pub(super) from: f64,
}

impl Upwards {
    /// Its name with the unit in words.
    pub(super) fn name(&self) -> String {
        if self.unit.words.is_empty() { self.label.clone() } else { format!("{}, {}", self.label, self.unit.words) }
    }
}

/// A line: what is predicted at each value of the axis, and the published figures drawn beside it.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) of: Of,
    /// Whether a line of perfect scaling is drawn with it.
    pub(super) perfect: bool,
    pub(super) points: Vec<Point>,
}

/// The values of a line, in the order of the horizontal axis.
#[derive(Debug, Clone)]
pub(super) enum Of {
    /// A predicted quantity of a configuration, without a published value.
    Rows(Vec<CaseRow>),
    /// An allreduce alone.
    Exchanges(Vec<Exchange>),
}

/// An allreduce of the experiment's first configuration, alone on the machine.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) at: Experiment,
    pub(super) bytes: u64,
    /// Whether it shows bytes per second instead of seconds.
    pub(super) rate: bool,
    /// File and line.
    pub(super) place: ErrorPlace,
}

/// A published figure on a line.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// Its row's name.
    pub(super) row: String,
    pub(super) x: f64,
    /// In the axis's unit; `None` where the published figure is `x`, so that the point is on the line.
    pub(super) y: Option<f64>,
}

impl Plot {
    /// The configurations that it shows.
    pub(super) fn experiments(&self) -> impl Iterator<Item = &Experiment> {
        self.lines.iter().flat_map(|line| match &line.of {
            Of::Rows(rows) => rows.iter().flat_map(CaseRow::experiments).collect::<Vec<_>>(),
            Of::Exchanges(exchanges) => exchanges.iter().map(|exchange| &exchange.at).collect(),
        })
    }
}
