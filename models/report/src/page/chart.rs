//! `Chart`: describes a chart of a page's rows: its kind, its axes with their units in words, its lines.

use serde::Serialize;

/// An axis of a chart.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ChartAxis {
    /// The column along it; of a vertical axis the lines name theirs, and this is the first.
    pub column: &'static str,
    /// The quantity, in words.
    pub name: &'static str,
    /// Its unit in words; empty: a number without a unit.
    pub unit: &'static str,
    /// How many of that unit a value of the column is for each of its own.
    pub factor: f64,
    /// Whether equal ratios are equal distances.
    pub log: bool,
}

impl ChartAxis {
    /// Seconds of a column, drawn in milliseconds.
    pub const fn milliseconds(column: &'static str, name: &'static str, log: bool) -> ChartAxis {
        ChartAxis { column, name, unit: "milliseconds", factor: 1e3, log }
    }

    /// A column drawn as it is.
    pub const fn of(column: &'static str, name: &'static str, unit: &'static str, log: bool) -> ChartAxis {
        ChartAxis { column, name, unit, factor: 1.0, log }
    }
}

/// What a chart draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// Lines along the horizontal axis.
    Lines,
    /// Points.
    Cloud,
    /// Points of one quantity on both axes, with the line on which both are equal.
    Diagonal,
    /// How many rows have which values.
    Histogram,
}

/// A chart of a report's rows.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Chart {
    /// The heading.
    pub title: &'static str,
    /// What it draws.
    pub kind: ChartKind,
    /// The horizontal axis.
    pub x: ChartAxis,
    /// The vertical axis.
    pub y: ChartAxis,
    /// Names and columns of what is drawn, the predicted one first.
    pub lines: &'static [(&'static str, &'static str)],
    /// The column whose values have a look each; `None`: combinations of the settings in which rows differ.
    pub by: Option<&'static str>,
}

/// Ranks along the horizontal axis.
const RANKS: ChartAxis = ChartAxis::of("ranks", "number of ranks", "", true);

impl Chart {
    /// Throughput and scaling efficiency by ranks.
    pub const SCALING: [Chart; 2] = [
        Chart {
            title: "Throughput by number of ranks",
            kind: ChartKind::Lines,
            x: RANKS,
            y: ChartAxis::of("images_per_s", "throughput", "images per second", true),
            lines: &[("throughput", "images_per_s")],
            by: None,
        },
        Chart::efficiency(&[("efficiency", "scaling_efficiency")]),
    ];

    /// Scaling efficiency by ranks, of these columns.
    pub const fn efficiency(lines: &'static [(&'static str, &'static str)]) -> Chart {
        Chart {
            title: "Scaling efficiency by number of ranks",
            kind: ChartKind::Lines,
            x: RANKS,
            y: ChartAxis::of("scaling_efficiency", "scaling efficiency", "share of perfect scaling", false),
            lines,
            by: None,
        }
    }

    /// How many rows have which error.
    pub const ERRORS: Chart = Chart {
        title: "Errors of predictions",
        kind: ChartKind::Histogram,
        x: ChartAxis::of("error_pct", "error of the prediction", "percent", false),
        y: ChartAxis::of("error_pct", "number of rows", "", false),
        lines: &[("error", "error_pct")],
        by: None,
    };
}
