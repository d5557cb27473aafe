//! Writes what bounds the lines of a plot, in a sentence after its caption, from the predictions.

use crate::plot::Plot;
use lockstep_report::PlotRow;
use lockstep_report::svg::tick;

/// The caption of a plot, and what bounds its predicted points.
pub fn bounds_line(plot: &Plot, points: &[PlotRow]) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for line in &plot.lines {
        let own = |row: &&PlotRow| row.figure == plot.name && row.line == line.name && row.source == "predicted";
        let bound = along(points.iter().filter(own));
        if !bound.is_empty() {
            lines.push((&line.name, bound));
        }
    }
    let caption = &plot.caption;
    match lines.split_first() {
        None => caption.clone(),
        Some(((_, first), others)) if others.iter().all(|(_, bound)| bound == first) => {
            format!("{caption} Predicted bound: {first}.")
        }
        Some(_) => {
            let each: Vec<String> = lines.iter().map(|(name, bound)| format!("{name}: {bound}")).collect();
            format!("{caption} Predicted bounds: {}.", each.join("; "))
        }
    }
}

/// What bounds the points of a line, and where it changes; which of several equal devices does not matter.
fn along<'a>(row: impl Iterator<Item = &'a PlotRow>) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for row in row {
        let Some(bound) = &row.bound else { continue };
        let kind: String = bound.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if kind == last {
            continue;
        }
        if !last.is_empty() {
            let from = row.x_name.clone().unwrap_or_else(|| tick(row.x));
            text += &format!(", from {from} on ");
        }
        text += bound;
        last = kind;
    }
    text
}
