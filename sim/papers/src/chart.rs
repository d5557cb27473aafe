//! Draws the chart of a paper's rows: predicted over published, on a logarithmic axis.

use std::fmt::Write as _;

use lockstep_report::PaperRow;
use lockstep_report::svg::{PlotAxis, TextBox, escaped, shortened, significant, width};

/// Width of the chart, the longest names beside its axis, the axis's end, and the height of a row, in points.
const WIDTH: f64 = 460.0;
const NAMES: f64 = 240.0;
const RIGHT: f64 = 448.0;
const FONT: f64 = 12.0;
const LINE: f64 = 20.0;
const TOP: f64 = 44.0;
/// The axis ends at this ratio and its inverse, or farther out where a row is.
const LEAST_END: f64 = 1.2;
/// Ratios that are marked where there is space, the most important first.
const MARKED: [f64; 9] = [1.0, 0.8, 1.25, 0.5, 2.0, 0.1, 10.0, 0.01, 100.0];

/// An SVG with a dot for each row that is simulated; hollow where it does not count. Empty without such rows.
pub(super) fn ratios(rows: &[&PaperRow]) -> String {
    let simulated = |row: &&&PaperRow| row.bound.is_some() && row.error_pct.is_some();
    let dots: Vec<(&PaperRow, f64)> = rows
        .iter()
        .filter(simulated)
        .filter_map(|row| Some((*row, 1.0 + row.error_pct? / 100.0)))
        .filter(|(_, ratio)| *ratio > 0.0)
        .collect();
    if dots.is_empty() {
        return String::new();
    }
    let end = dots.iter().map(|(_, ratio)| ratio.max(1.0 / ratio)).fold(LEAST_END, f64::max) * 1.05;
    let left = dots.iter().map(|(row, _)| width(FONT, &row.row)).fold(60.0, f64::max).min(NAMES) + 16.0;
    let axis = PlotAxis::around_one(end, left, RIGHT);
    let height = TOP + LINE * dots.len() as f64 + 14.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-size=\"{FONT}\" \
         font-family=\"sans-serif\"><title>predicted over published</title>\n"
    );
    let _ = writeln!(
        out,
        "<text x=\"4\" y=\"16\" data-axis=\"x\" class=\"soft\">predicted over published, as a ratio; green: within 10 %</text>"
    );
    let (low, high) = (axis.at(1.0 / 1.1), axis.at(1.1));
    let _ = writeln!(
        out,
        "<rect x=\"{low:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" class=\"near\"/>",
        high - low,
        height - TOP - 8.0
    );
    let mut taken = Vec::new();
    for ratio in MARKED.into_iter().filter(|ratio| axis.holds(*ratio)) {
        let (x, bottom) = (axis.at(ratio), height - 8.0);
        let space = TextBox::around((x, TOP), FONT, &significant(ratio));
        if taken.iter().any(|other: &TextBox| other.meets(&space)) {
            continue;
        }
        taken.push(space);
        let class = if ratio == 1.0 { "even" } else { "grid" };
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" class=\"{class}\"/><text x=\"{x:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\" data-tick=\"x\" class=\"soft\">{}</text>",
            TOP - 8.0,
            significant(ratio)
        );
    }
    for (index, (row, ratio)) in dots.iter().enumerate() {
        let (x, y) = (axis.at(*ratio), TOP + LINE * (index as f64 + 0.5) + 3.0);
        let class = if row.counted { "p q0" } else { "p hollow q0" };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" class=\"ink\">{}</text><circle cx=\"{x:.1}\" cy=\"{y:.1}\" \
             r=\"4.5\" class=\"{class}\"><title>{}: {:+.1} %</title></circle>",
            left - 12.0,
            y + 4.0,
            escaped(&shortened(FONT, &row.row, left - 12.0)),
            escaped(&row.says),
            (ratio - 1.0) * 100.0,
        );
    }
    out + "</svg>\n"
}
