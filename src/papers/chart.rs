//! The chart of a paper's rows: each prediction over what was published, on a logarithmic axis.

use std::fmt::Write as _;

use super::html::{escaped, significant};
use crate::report::PaperRow;

/// Width of the chart, where its axis begins and ends, and the height of a row, in points.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 690.0;
const LINE: f64 = 20.0;
const TOP: f64 = 28.0;
/// The axis ends at this ratio and its inverse, or beyond where a row is.
const LEAST_END: f64 = 1.2;
/// Ratios that are marked.
const MARKED: [f64; 7] = [0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0];

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
    let at = |ratio: f64| LEFT + (RIGHT - LEFT) * (0.5 + 0.5 * ratio.ln() / end.ln());
    let height = TOP + LINE * dots.len() as f64 + 14.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-size=\"12\" \
         font-family=\"sans-serif\"><title>predicted over published</title>\n"
    );
    let _ = writeln!(out, "<text x=\"8\" y=\"18\" fill=\"#666\">predicted / published</text>");
    // Within ten percent.
    let (low, high) = (at(1.0 / 1.1), at(1.1));
    let _ = writeln!(
        out,
        "<rect x=\"{low:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#eef4ee\"/>",
        high - low,
        height - TOP - 8.0
    );
    for ratio in MARKED.into_iter().filter(|ratio| ratio.max(1.0 / ratio) <= end) {
        let (x, bottom) = (at(ratio), height - 8.0);
        let stroke = if ratio == 1.0 { "#444" } else { "#ccc" };
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"{stroke}\"/><text x=\"{x:.1}\" \
             y=\"18\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
            significant(ratio)
        );
    }
    for (index, (row, ratio)) in dots.iter().enumerate() {
        let (x, y) = (at(*ratio), TOP + LINE * (index as f64 + 0.5) + 3.0);
        let fill = if row.counted { "#0072b2" } else { "#fff" };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333\">{}</text><circle cx=\"{x:.1}\" cy=\"{y:.1}\" \
             r=\"4.5\" fill=\"{fill}\" stroke=\"#0072b2\" stroke-width=\"1.5\"><title>{}: {:+.1} %</title></circle>",
            LEFT - 12.0,
            y + 4.0,
            escaped(&row.row),
            escaped(&row.says),
            (ratio - 1.0) * 100.0,
        );
    }
    out + "</svg>\n"
}
