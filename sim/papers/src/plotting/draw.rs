//! Draws a plot as SVG: lines and small dots are predicted, diamonds are published, hollow where a row does not count.
//!
//! Colours are the page's, so that light and dark mode work.

use std::fmt::Write as _;

use crate::plot::{Line, Plot};
use lockstep_report::PlotRow;
use lockstep_report::svg::{Frame, Look, PlotAxis, TextBox, escaped, points, shortened, significant, tick, width};

/// Width of the picture and height of its plot, in points; narrow, so that a phone shows it at nearly its size.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 250.0;
const FRAME: Frame = Frame {
    left: 52.0,
    right: WIDTH - 14.0,
    top: 30.0,
    bottom: 30.0 + HEIGHT,
    font: 12.0,
    lines: "class=\"grid\"",
    figures: " class=\"soft\"",
    names: " class=\"soft\"",
};
/// Size of the names of published points.
const NAME: f64 = 11.0;
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
        let look = Look::of(number);
        let (colour, dash) = (look.colour, &look.dash);
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
        let _ = writeln!(
            out,
            "<polyline points=\"{places}\" data-series=\"{number}\" class=\"l{colour}\" stroke-width=\"{width:.1}\"{dash}/>"
        );
        for row in predicted {
            let bound = row.bound.iter().map(|by| format!(", bound by {by}")).collect::<String>();
            let says =
                format!("{}, {} {}: {} {}{bound}", line.name, named(row), row.x_label, significant(row.y), row.unit);
            let place = (x.at(row.x), y.at(row.y));
            look.mark(&mut out, place, 2.5, &format!("class=\"d{colour}\""), &escaped(&says));
        }
    }
    let mut taken: Vec<TextBox> = Vec::new();
    let published: Vec<(usize, &PlotRow)> = plot
        .lines
        .iter()
        .enumerate()
        .flat_map(|(number, line)| of(line, "published").into_iter().map(move |row| (number, row)))
        .collect();
    let marks: Vec<(f64, f64)> = published.iter().map(|(_, row)| (x.at(row.x), y.at(row.y))).collect();
    taken.extend(marks.iter().map(|(x, y)| around(*x, *y)));
    for (which, (number, row)) in published.into_iter().enumerate() {
        point(&mut out, Look::of(number).colour, row, (&marks, which), &mut taken);
    }
    legend(&mut out, plot);
    out + "</svg>\n"
}

/// The axis's name of a point's `x`.
fn named(row: &PlotRow) -> String {
    row.x_name.clone().unwrap_or_else(|| tick(row.x))
}

fn grid(out: &mut String, plot: &Plot, x: &PlotAxis, y: &PlotAxis) {
    let named = |(value, name): &(f64, Option<String>)| (x.at(*value), name.clone().unwrap_or_else(|| tick(*value)));
    FRAME.horizontal(out, plot.x.values.iter().map(named), &plot.x.label);
    FRAME.vertical(out, y.ticks().into_iter().map(|value| (y.at(value), tick(value))), &plot.y.name());
}

/// The space of a published point's mark.
fn around(x: f64, y: f64) -> TextBox {
    TextBox { left: x - 6.0, right: x + 6.0, top: y - 6.0, bottom: y + 6.0 }
}

/// Whether a name is within the plot.
fn fits(name: &TextBox) -> bool {
    name.left >= FRAME.left && name.right <= FRAME.right && name.top >= FRAME.top - 8.0 && name.bottom <= FRAME.bottom
}

/// How far a name is from a point.
fn distance(name: &TextBox, (x, y): (f64, f64)) -> f64 {
    let across = (name.left - x).max(x - name.right).max(0.0);
    across.hypot((name.top - y).max(y - name.bottom).max(0.0))
}

/// A published point, the mark `which` of all, with its row's name where there is space for it, nearer to its mark than to
/// any other.
fn point(
    out: &mut String,
    colour: usize,
    row: &PlotRow,
    (marks, which): (&[(f64, f64)], usize),
    taken: &mut Vec<TextBox>,
) {
    let (x, y) = marks[which];
    let others = || marks.iter().enumerate().filter(|(index, _)| *index != which).map(|(_, mark)| *mark);
    let is_own = |text: &TextBox| others().all(|other| distance(text, other) > distance(text, (x, y)));
    let name = row.row.as_deref().unwrap_or_default();
    let wide = width(NAME, name);
    let place = |right: bool, down: f64| {
        let left = if right { x + 7.0 } else { x - 7.0 - wide };
        TextBox { left, right: left + wide, top: y + down - NAME, bottom: y + down }
    };
    let downs = [-5.0, 16.0, 5.0, -19.0, 30.0, -33.0, 44.0, -47.0];
    let places = downs.into_iter().flat_map(|down| [place(true, down), place(false, down)]);
    let free = |text: &TextBox| fits(text) && taken.iter().all(|other| !other.meets(text));
    let class = if row.counted == Some(false) { "p hollow" } else { "p" };
    let says = format!("{name}: {} ({} {})", row.says.as_deref().unwrap_or_default(), significant(row.y), row.unit);
    let _ = writeln!(
        out,
        "<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" class=\"{class} q{colour}\"><title>{}</title></path>",
        y - 5.0,
        escaped(&says)
    );
    // Where there is no space, hovering over the point shows the name.
    let Some(text) = places.into_iter().find(|text| free(text) && is_own(text)) else { return };
    taken.push(text);
    let (left, foot) = (text.left, text.bottom - 2.0);
    let name = escaped(name);
    let _ = writeln!(out, "<text x=\"{left:.1}\" y=\"{foot:.1}\" font-size=\"{NAME}\" class=\"name\">{name}</text>");
}

fn legend(out: &mut String, plot: &Plot) {
    for (number, line) in plot.lines.iter().enumerate() {
        let (look, down) = (Look::of(number), FRAME.bottom + 48.0 + LEGEND * number as f64);
        let (colour, dash, left) = (look.colour, &look.dash, FRAME.left);
        let perfect = if line.perfect { " (dotted: perfect scaling)" } else { "" };
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" y1=\"{down}\" x2=\"{}\" y2=\"{down}\" class=\"l{colour}\"{dash}/>",
            left + 22.0
        );
        look.mark(out, (left + 11.0, down), 2.5, &format!("class=\"d{colour}\""), "");
        let name = shortened(FRAME.font, &format!("{}{perfect}", line.name), WIDTH - left - 30.0);
        let (x, foot, name) = (left + 30.0, down + 4.0, escaped(&name));
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{foot}\" class=\"ink\">{name}</text>");
    }
}
