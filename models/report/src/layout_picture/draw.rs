//! Draws the picture in SVG: heading, coordinates and ranks, the rows with the bands between them, the legend.

use std::fmt::Write as _;

use lockstep_models::{LayerId, Layout, Model};

use super::band::band;
use super::cell::{Rectangle, cell, stripes};
use super::columns::{Columns, Run};
use super::contents::{Contents, contents};
use super::grid::{Grid, ROOM};
use super::legend::legend;
use super::lines::Line;
use super::paper::{Anchor, HEADING, MARGIN, NAME, PLAIN, SMALL, STYLE, WIDTH, rule, text};
use crate::svg::escaped;

/// Height of a row, and the space between rows of different tensors.
const ROW: f64 = 42.0;
const APART: f64 = 16.0;
/// Where the text to the right of the columns begins.
const RIGHT: f64 = ROOM.1 + 16.0;
/// Space of the names to the left of the columns.
const NAMES: f64 = ROOM.0 - 8.0 - MARGIN;
/// Characters of two layers' names that fit on a line.
const SHORT: usize = 24;
/// From one line of text to the next.
const LEADING: f64 = 13.0;

pub(super) fn svg(heading: &str, model: &Model, columns: &Columns<'_>, lines: &[Line]) -> String {
    let grid = Grid::of(columns);
    let cells: Vec<Vec<Option<Contents>>> = lines.iter().map(|line| contents(columns, line.layout)).collect();
    let mut body = String::new();
    let sums = cells.iter().flatten().flatten().filter(|contents| contents.summand.is_some());
    // The legend shows the common colour.
    stripes(&mut body, sums.flat_map(|contents| [contents.version, None]));
    let mut y = header(&mut body, heading, columns, &grid);
    for (number, line) in lines.iter().enumerate() {
        row(&mut body, (model, columns, &grid), line, &cells[number], y);
        y += ROW;
        match line.change {
            Some(change) => {
                let ends = [cells[number].as_slice(), &cells[number + 1]];
                y = band(&mut body, (columns, &grid), change, ends, (y, RIGHT));
            }
            None => {
                rule(&mut body, y + APART / 2.0);
                y += APART;
            }
        }
    }
    let end = legend(&mut body, lines, y);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {end:.0}\" width=\"{WIDTH}\" height=\"{end:.0}\" \
         role=\"img\" font-family=\"sans-serif\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <style>{STYLE}</style>\n{body}</svg>\n",
        escaped(heading)
    )
}

/// Draws heading, coordinates and numbers of the ranks; returns their lower end.
fn header(out: &mut String, heading: &str, columns: &Columns<'_>, grid: &Grid) -> f64 {
    text(out, HEADING, Anchor::Start, (MARGIN, 24.0), WIDTH - 2.0 * MARGIN, heading);
    let (shown, all) = (columns.ranks.len() as u32, columns.mesh.ranks());
    let ranks = if all == 1 { "1 rank".to_owned() } else { format!("{all} ranks") };
    let cut = if shown < all { format!(", {shown} of them shown, parts not to scale") } else { String::new() };
    let mesh = format!("{ranks}{cut}; mesh {}", columns.mesh);
    text(out, SMALL, Anchor::Start, (MARGIN, 42.0), WIDTH - 2.0 * MARGIN, &mesh);
    let mut y = 66.0;
    for (axis, runs) in columns.headings() {
        text(out, PLAIN, Anchor::End, (ROOM.0 - 8.0, y), NAMES, &axis.to_string());
        for Run { coordinate, first, last } in runs {
            let (from, to) = (grid.left[first], grid.left[last] + grid.width);
            let number = coordinate.to_string();
            text(out, PLAIN, Anchor::Middle, ((from + to) / 2.0, y), to - from, &number);
            if last > first {
                let _ = writeln!(out, "<path class=\"span\" d=\"M{from:.1} {:.1}H{to:.1}\"/>", y + 5.0);
            }
        }
        y += 19.0;
    }
    text(out, NAME, Anchor::End, (ROOM.0 - 8.0, y), NAMES, "rank");
    for (column, rank) in columns.ranks.iter().enumerate() {
        let rank = rank.to_string();
        text(out, NAME, Anchor::Middle, (grid.middle(column), y), grid.width, &rank);
    }
    dots(out, grid, y);
    rule(out, y + 10.0);
    y + 20.0
}

/// Where ranks are left out.
fn dots(out: &mut String, grid: &Grid, y: f64) {
    grid.left_out.iter().for_each(|x| text(out, NAME, Anchor::Middle, (*x, y), f64::INFINITY, "…"));
}

/// A tensor: its name and layers, what each rank holds, and its layout in words.
fn row(
    out: &mut String,
    (model, columns, grid): (&Model, &Columns<'_>, &Grid),
    line: &Line,
    cells: &[Option<Contents>],
    top: f64,
) {
    let layers = layers(model, &line.layers);
    let foot = |lines: usize| top + ROW / 2.0 + 4.0 - LEADING / 2.0 * lines.saturating_sub(1) as f64;
    let mut y = foot(1 + layers.len());
    text(out, NAME, Anchor::Start, (MARGIN, y), NAMES, line.tensor);
    for layer in layers {
        y += LEADING;
        text(out, SMALL, Anchor::Start, (MARGIN, y), NAMES, &layer);
    }
    for (column, contents) in cells.iter().enumerate().take(columns.ranks.len()) {
        let place = Rectangle { left: grid.left[column], top, width: grid.width, height: ROW };
        cell(out, place, *contents);
    }
    dots(out, grid, top + ROW / 2.0 + 4.0);
    let placements = placements(line.layout);
    let mut y = foot(placements.len());
    for placement in placements {
        text(out, PLAIN, Anchor::Start, (RIGHT, y), WIDTH - MARGIN - RIGHT, &placement);
        y += LEADING;
    }
}

/// `data: split(sample)` of each axis on which ranks differ, or `replicated`.
fn placements(layout: Layout) -> Vec<String> {
    let on_axes: Vec<String> = layout.axes().iter().map(|axis| format!("{axis}: {}", layout.on(axis))).collect();
    if on_axes.is_empty() { vec![layout.to_string()] } else { on_axes }
}

/// The first layer and the last, on two lines where one line is too short for both.
fn layers(model: &Model, layers: &[LayerId]) -> Vec<String> {
    let name = |id: &LayerId| model.node(*id).name.as_str();
    match layers {
        [] => Vec::new(),
        [only] => vec![name(only).to_owned()],
        [first, .., last] => match (name(first), name(last)) {
            (first, last) if first.chars().count() + last.chars().count() <= SHORT => vec![format!("{first}..{last}")],
            (first, last) => vec![first.to_owned(), format!("..{last}")],
        },
    }
}
