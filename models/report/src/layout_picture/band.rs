//! Draws the band between two rows: which ranks form the groups of an exchange, which contribute and which
//! take the result.

use std::fmt::Write as _;

use lockstep_models::AxisSet;

use super::cell::Rectangle;
use super::columns::Columns;
use super::contents::Contents;
use super::grid::Grid;
use super::lines::Change;
use super::paper::{Anchor, COLLECTIVE, MARGIN, PLAIN, SMALL, WIDTH, text};

/// Height of a band with one level of groups, and of each further level.
const HEIGHT: f64 = 42.0;
const LEVEL: f64 = 10.0;
/// Space above the first line.
const ABOVE: f64 = 16.0;
/// Space of the text at the left.
const LEFT: f64 = 168.0;

/// The shown members of a group as columns, and whether further ones are left out.
type Group = (Vec<usize>, bool);

/// Lines with the same style, as the data of one path each.
#[derive(Default)]
struct Strokes {
    lines: String,
    dashed: String,
    stems: String,
    tips: String,
    dots: String,
}

impl Strokes {
    fn level(&mut self, from: f64, to: f64, y: f64, dashed: bool) {
        let path = if dashed { &mut self.dashed } else { &mut self.lines };
        let _ = write!(path, "M{from:.1} {y:.0}H{to:.1}");
    }

    fn stem(&mut self, x: f64, from: f64, to: f64) {
        let _ = write!(self.stems, "M{x:.1} {from:.0}V{to:.0}");
    }

    fn arrow(&mut self, x: f64, from: f64, to: f64) {
        self.stem(x, from, to - 5.0);
        let _ = write!(self.tips, "M{:.1} {:.0}h8l-4 7z", x - 4.0, to - 7.0);
    }

    fn dot(&mut self, x: f64, y: f64) {
        let _ = write!(self.dots, "M{:.1} {y:.0}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", x - 3.5);
    }

    /// Writes them; what stays on its rank has another colour.
    fn write(self, out: &mut String, exchanged: bool) {
        let [stem, tip] = if exchanged { ["stem", "tip"] } else { ["still", "rest"] };
        let all = [
            ("line", self.lines),
            ("line dashed", self.dashed),
            (stem, self.stems),
            (tip, self.tips),
            ("dot", self.dots),
        ];
        for (class, data) in all.into_iter().filter(|(_, data)| !data.is_empty()) {
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{data}\"/>");
        }
    }
}

/// Writes the band from `top` on, its collective from `right` on, and returns its lower end; `ends` are what ranks hold
/// before and after.
pub(super) fn band(
    out: &mut String,
    (columns, grid): (&Columns<'_>, &Grid),
    change: Change,
    ends: [&[Option<Contents>]; 2],
    (top, right): (f64, f64),
) -> f64 {
    let levels = if change.by.is_some() { levels(columns.groups(change.axes)) } else { Vec::new() };
    let bottom = top + HEIGHT + LEVEL * levels.len().saturating_sub(1) as f64;
    let mut strokes = Strokes::default();
    for (number, level) in levels.iter().enumerate() {
        let y = top + ABOVE + LEVEL * number as f64;
        for group in level {
            join(&mut strokes, (columns, grid), group, y);
            for column in &group.0 {
                let x = grid.middle(*column);
                strokes.dot(x, y);
                if ends[0][*column].is_some() {
                    strokes.stem(x, top + 2.0, y);
                }
                if ends[1][*column].is_some() {
                    strokes.arrow(x, y, bottom - 2.0);
                }
            }
        }
    }
    if change.by.is_none() {
        (0..columns.ranks.len()).for_each(|column| strokes.arrow(grid.middle(column), top + 3.0, bottom - 2.0));
    }
    strokes.write(out, change.by.is_some());
    let (foot, room) = ((top + bottom) / 2.0, WIDTH - MARGIN - right);
    text(out, COLLECTIVE, Anchor::Start, (right, foot - 2.0), room, change.by.unwrap_or("slice"));
    text(out, PLAIN, Anchor::Start, (right, foot + 12.0), room, &format!("along {}", change.axes));
    let lines = lines(columns, change);
    let first = if lines.len() > 1 { -2.0 } else { 4.0 };
    for (number, line) in lines.iter().enumerate() {
        text(out, SMALL, Anchor::Start, (MARGIN, foot + first + 13.0 * number as f64), LEFT, line);
    }
    bottom
}

/// The groups on levels, so that those of a level do not overlap.
fn levels(groups: Vec<Group>) -> Vec<Vec<Group>> {
    let mut levels: Vec<Vec<Group>> = Vec::new();
    for group in groups {
        let ends_before = |other: &Group| other.0.last() < group.0.first();
        match levels.iter_mut().find(|level| level.iter().all(ends_before)) {
            Some(level) => level.push(group),
            None => levels.push(vec![group]),
        }
    }
    levels
}

/// The line through a group's members, dashed where ranks are left out.
fn join(strokes: &mut Strokes, (columns, grid): (&Columns<'_>, &Grid), (members, more): &Group, y: f64) {
    for pair in members.windows(2) {
        let dashed = (pair[0]..pair[1]).any(|column| columns.gap_after(column));
        strokes.level(grid.middle(pair[0]), grid.middle(pair[1]), y, dashed);
    }
    if let ([alone], true) = (members.as_slice(), more) {
        strokes.level(grid.middle(*alone), grid.middle(*alone) + grid.width / 2.0, y, true);
    }
}

/// How many groups there are, and how often a step contains the change.
fn lines(columns: &Columns<'_>, change: Change) -> Vec<String> {
    let who = if change.by.is_some() { groups(columns, change.axes) } else { "nothing is sent".to_owned() };
    let often = (change.times > 1).then(|| format!("{} times a step", change.times));
    [who].into_iter().chain(often).collect()
}

/// `2 groups of 4 ranks`.
fn groups(columns: &Columns<'_>, axes: AxisSet) -> String {
    let (mesh, count) = (columns.mesh, columns.mesh.group_count(axes));
    // Only nodes with unequal numbers of devices make unequal groups.
    let numbers = if columns.is_even() { 0..1 } else { 0..count };
    let sizes = || numbers.clone().map(|number| mesh.group(axes, number).count());
    let ranks = match (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0)) {
        (1, 1) => "1 rank".to_owned(),
        (least, most) if least == most => format!("{most} ranks"),
        (least, most) => format!("{least} to {most} ranks"),
    };
    format!("{count} group{} of {ranks}", if count == 1 { "" } else { "s" })
}

/// The legend's symbol of a band: two ranks that exchange, or one that does not.
pub(super) fn sign(out: &mut String, place: Rectangle, exchanged: bool) {
    let Rectangle { left, top, width, height } = place;
    let mut strokes = Strokes::default();
    if exchanged {
        let (from, to, y) = (left + 6.0, left + width - 6.0, top + 7.0);
        strokes.level(from, to, y, false);
        for x in [from, to] {
            strokes.stem(x, top, y);
            strokes.arrow(x, y, top + height);
            strokes.dot(x, y);
        }
    } else {
        strokes.arrow(left + width / 2.0, top, top + height);
    }
    strokes.write(out, exchanged);
}
