//! Defines the row of `lockstep papers`.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A row of `papers`: a published figure beside what is predicted for it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PaperRow {
    /// Which paper.
    pub paper: String,
    /// The row's name.
    pub row: String,
    /// What the paper says.
    pub says: String,
    /// Where it says so.
    pub cite: String,
    /// The paper's figure; `null` for orderings.
    pub published: Option<f64>,
    /// Ours.
    pub predicted: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// Predicted against published, in percent of the published figure.
    pub error_pct: Option<f64>,
    /// Whether an ordering comes out.
    pub holds: Option<bool>,
    /// Why the error does not count: `c` contradiction, `o` ordering, `s` statistical, `=` computed, `anchor`, `fitted`,
    /// `same as` another row.
    pub mark: Option<String>,
    /// Whether it counts.
    pub counted: bool,
    /// Whether a parameter is fitted to the row, and the prediction is of a fit to the other rows alone.
    pub left_out: bool,
    /// What bounds the step.
    pub bound: Option<String>,
}

impl Row for PaperRow {
    const SETTING: &'static [&'static str] = &["paper"];
    const BELOW: &'static [&'static str] = &["cite"];
}
