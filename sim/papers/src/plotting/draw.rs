//! Draws a plot as SVG: lines and small dots are predicted, diamonds are published, hollow where a row does not count.
//!
//! Colours are the page's, so that light and dark mode work.

use std::fmt::Write as _;

use crate::plot::{Line, Plot};
use lockstep_report::PlotRow;
use lockstep_report::svg::{DASHES, Frame, PlotAxis, escaped, points, significant, tick};

/// Width of the picture and height of its plot, in points; narrow, so that a phone shows it at nearly its size.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 250.0;
const FRAME: Frame = Frame {
    left: 52.0,
    right: WIDTH - 14.0,
    top: 30.0,
    bottom: 30.0 + HEIGHT,
    lines: "class=\"grid\"",
    figures: " class=\"soft\"",
};
/// Colours of the page.
const COLOURS: usize = 7;
/// Width of a character and height of a line of text, in points.
const CHARACTER: f64 = 6.6;
const TEXT: f64 = 12.0;
/// Width of a line, and the distance below which another coincides with it.
const STROKE: f64 = 1.8;
const NEAR: f64 = 2.0;
/// Height of a line of the legend.
const LEGEND: f64 = 18.0;

/// The picture of a plot's points.
pub(crate) fn svg(plot: &Plot, all: &[PlotRow]) -> String {
    let own: Vec<&PlotRow> = all.iter().filter(|row| row.figure == plot.name).collect();
    let x = PlotAxis::of(own.iter().map(|row| row.x), plot.x.spacing, FRAME.left, FRAME.right);
    // Perfect scaling may leave the picture; predicted and published points may not.
    let y = own.iter().filter(|row| row.source != "perfect").map(|row| row.y);
    let y = PlotAxis::of(y, plot.y.spacing, FRAME.bottom, FRAME.top).begin(plot.y.from);
    let height = FRAME.bottom + 48.0 + LEGEND * plot.lines.len() as f64;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-size=\"12\" \
         font-family=\"sans-serif\"><title>{}</title>\n",
        escaped(&plot.title)
    );
    grid(&mut out, plot, &x, &y);
    let of = |line: &Line, source: &str| -> Vec<&PlotRow> {
        own.iter().copied().filter(|row| row.line == line.name && row.source.starts_with(source)).collect()
    };
    for (number, line) in plot.lines.iter().enumerate() {
        let (colour, dash) = (number % COLOURS, DASHES[(number / COLOURS).min(DASHES.len() - 1)]);
        let perfect: Vec<(f64, f64)> =
            of(line, "perfect").iter().filter(|row| y.holds(row.y)).map(|row| (x.at(row.x), y.at(row.y))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" class=\"l{colour} perfect\" stroke-dasharray=\"1 4\"/>",
            points(perfect.into_iter())
        );
        let predicted = of(line, "predicted");
        let places = points(predicted.iter().map(|row| (x.at(row.x), y.at(row.y))));
        // A line covered by others is visible on both sides of them.
        let lies_on = |other: &&Line| {
            let theirs = of(other, "predicted");
            predicted.iter().zip(&theirs).all(|(ours, theirs)| (y.at(ours.y) - y.at(theirs.y)).abs() < NEAR)
        };
        let width = STROKE * (1 + plot.lines[number + 1..].iter().filter(lies_on).count()) as f64;
        let _ = writeln!(out, "<polyline points=\"{places}\" class=\"l{colour}\" stroke-width=\"{width:.1}\"{dash}/>");
        for row in predicted {
            let bound = row.bound.iter().map(|by| format!(", bound by {by}")).collect::<String>();
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" class=\"d{colour}\"><title>{}, {} {}: {} {}{}</title></circle>",
                x.at(row.x),
                y.at(row.y),
                escaped(&line.name),
                escaped(&named(row)),
                escaped(&row.x_label),
                significant(row.y),
                escaped(&row.unit),
                escaped(&bound),
            );
        }
    }
    let mut taken: Vec<Text> = Vec::new();
    let published: Vec<(usize, &PlotRow)> = plot
        .lines
        .iter()
        .enumerate()
        .flat_map(|(number, line)| of(line, "published").into_iter().map(move |row| (number, row)))
        .collect();
    taken.extend(published.iter().map(|(_, row)| Text::around(x.at(row.x), y.at(row.y))));
    for (number, row) in published {
        point(&mut out, number % COLOURS, row, (x.at(row.x), y.at(row.y)), &mut taken);
    }
    legend(&mut out, plot);
    out + "</svg>\n"
}

/// The axis's name of a point's `x`.
fn named(row: &PlotRow) -> String {
    row.x_name.clone().unwrap_or_else(|| tick(row.x))
}

fn grid(out: &mut String, plot: &Plot, x: &PlotAxis, y: &PlotAxis) {
    let mut free_from = 0.0;
    for (value, name) in &plot.x.values {
        let name = name.clone().unwrap_or_else(|| tick(*value));
        let (at, half) = (x.at(*value), CHARACTER / 2.0 * name.chars().count() as f64);
        // A figure without space is left out.
        let shown = if at - half >= free_from { escaped(&name) } else { String::new() };
        if !shown.is_empty() {
            free_from = at + half + CHARACTER;
        }
        FRAME.upward(out, at, shown);
    }
    y.ticks().into_iter().for_each(|value| FRAME.across(out, y.at(value), tick(value)));
    let unit = if plot.y.unit.name == "1" { String::new() } else { format!(", {}", plot.y.unit.name) };
    let _ = writeln!(
        out,
        "<text x=\"4\" y=\"{}\" class=\"soft\">{}</text>\n<text x=\"{}\" y=\"{}\" text-anchor=\"end\" class=\"soft\">{}</text>",
        FRAME.top - 14.0,
        escaped(&format!("{}{unit}", plot.y.label)),
        FRAME.right,
        FRAME.bottom + 31.0,
        escaped(&plot.x.label),
    );
}

/// The position of a text or a mark on the picture.
#[derive(Debug, Clone, Copy)]
struct Text {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Text {
    fn around(x: f64, y: f64) -> Text {
        Text { left: x - 6.0, right: x + 6.0, top: y - 6.0, bottom: y + 6.0 }
    }

    fn meets(&self, other: &Text) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn fits(&self) -> bool {
        self.left >= FRAME.left
            && self.right <= FRAME.right
            && self.top >= FRAME.top - 8.0
            && self.bottom <= FRAME.bottom
    }
}

/// A published point with its row's name, where there is space for it.
fn point(out: &mut String, colour: usize, row: &PlotRow, (x, y): (f64, f64), taken: &mut Vec<Text>) {
    let name = row.row.as_deref().unwrap_or_default();
    let width = CHARACTER * name.chars().count() as f64;
    let place = |right: bool, down: f64| {
        let left = if right { x + 7.0 } else { x - 7.0 - width };
        Text { left, right: left + width, top: y + down - TEXT, bottom: y + down }
    };
    let downs = [-5.0, 16.0, 5.0, -19.0, 30.0, -33.0, 44.0, -47.0];
    let places = downs.into_iter().flat_map(|down| [place(true, down), place(false, down)]);
    let free = |text: &Text| text.fits() && taken.iter().all(|other| !other.meets(text));
    let text = places.into_iter().find(free).unwrap_or_else(|| place(false, -5.0));
    taken.push(text);
    let class = if row.counted == Some(false) { "p hollow" } else { "p" };
    let says = format!("{name}: {} ({} {})", row.says.as_deref().unwrap_or_default(), significant(row.y), row.unit);
    let _ = writeln!(
        out,
        "<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" class=\"{class} q{colour}\"><title>{}</title></path>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" class=\"name\">{}</text>",
        y - 5.0,
        escaped(&says),
        text.left,
        text.bottom - 2.0,
        escaped(name),
    );
}

fn legend(out: &mut String, plot: &Plot) {
    for (number, line) in plot.lines.iter().enumerate() {
        let down = FRAME.bottom + 48.0 + LEGEND * number as f64;
        let (colour, dash) = (number % COLOURS, DASHES[(number / COLOURS).min(DASHES.len() - 1)]);
        let perfect = if line.perfect { " (dotted: perfect scaling)" } else { "" };
        let _ = writeln!(
            out,
            "<line x1=\"{0}\" y1=\"{down}\" x2=\"{1}\" y2=\"{down}\" class=\"l{colour}\"{dash}/>\
             <text x=\"{2}\" y=\"{3}\" class=\"ink\">{4}{perfect}</text>",
            FRAME.left,
            FRAME.left + 22.0,
            FRAME.left + 30.0,
            down + 4.0,
            escaped(&line.name),
        );
    }
}
