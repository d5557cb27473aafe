//! Defines the row of `lockstep papers --figures`.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A point of one of a paper's figures, drawn from predictions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PlotRow {
    /// Which paper.
    pub paper: String,
    /// Which figure of it, a short name.
    pub figure: String,
    /// What the figure shows.
    pub title: String,
    /// The paper's figure or section whose axes it has.
    pub like: String,
    /// Which line of the figure.
    pub line: String,
    /// `predicted`; `published`: a number of the paper's text, or one that follows from two; `published x`: the number is `x`, and
    /// `y` what is predicted there; `perfect`: perfect scaling from the line's first point.
    pub source: String,
    /// To the right.
    pub x: f64,
    /// What the axis calls it, where that is not the number.
    pub x_name: Option<String>,
    /// Upwards, in `unit`.
    pub y: f64,
    /// Unit of `y`.
    pub unit: String,
    /// The horizontal axis.
    pub x_label: String,
    /// The vertical axis, with its unit in words.
    pub y_label: String,
    /// Whether equal ratios are equal distances to the right.
    pub x_log: bool,
    /// Whether equal ratios are equal distances upwards.
    pub y_log: bool,
    /// Where a linear axis upwards begins.
    pub y_from: f64,
    /// The row of `lockstep papers` that a published point is.
    pub row: Option<String>,
    /// What the paper says there.
    pub says: Option<String>,
    /// Whether the row's error counts: nothing is scaled or fitted to it, and the paper does not contradict itself.
    pub counted: Option<bool>,
    /// What bounds a predicted point.
    pub bound: Option<String>,
}

impl Row for PlotRow {
    const SETTING: &'static [&'static str] = &["paper"];
    const BELOW: &'static [&'static str] =
        &["title", "like", "x_name", "x_label", "y_label", "x_log", "y_log", "y_from", "says", "counted"];
}
