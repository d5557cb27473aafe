//! Draws the legend: how a cell is read, and the look of each layout in the picture.

use lockstep_models::{AxisLayout, Dimension, Layout};

use super::band::sign;
use super::cell::{Rectangle, cell};
use super::contents::{Contents, Part};
use super::lines::Line;
use super::paper::{Anchor, MARGIN, PLAIN, SMALL, WIDTH, text};

/// Height of a line of the legend.
const LINE: f64 = 28.0;
/// The cell or sign before each text.
const SIGN: (f64, f64) = (36.0, 20.0);

/// How a cell and a row are read.
const READING: [&str; 2] = [
    "A cell is the whole tensor: samples (of a weight: columns) from top to bottom, features (of a weight: rows) from left to right.",
    "Filled: what the rank holds. Equal letters in a row: the same version or summand. Rows are in the order in which a step comes to them.",
];

/// What a line of the legend shows.
enum Entry {
    Cell(Option<Contents>),
    Exchange,
    Slice,
}

/// Writes it from `top` on and returns its lower end.
pub(super) fn legend(out: &mut String, lines: &[Line], top: f64) -> f64 {
    for (number, line) in READING.iter().enumerate() {
        let at = (MARGIN, top + 14.0 + 15.0 * number as f64);
        text(out, SMALL, Anchor::Start, at, WIDTH - 2.0 * MARGIN, line);
    }
    let entries = entries(lines);
    let half = entries.len().div_ceil(2);
    for (number, (entry, meaning)) in entries.iter().enumerate() {
        let column = (WIDTH - 2.0 * MARGIN) / 2.0;
        let left = MARGIN + column * (number / half) as f64;
        let line = top + 40.0 + LINE * (number % half) as f64;
        let place = Rectangle { left, top: line, width: SIGN.0, height: SIGN.1 };
        match entry {
            Entry::Cell(contents) => cell(out, place, *contents),
            Entry::Exchange => sign(out, place, true),
            Entry::Slice => sign(out, place, false),
        }
        let at = (left + SIGN.0 + 10.0, line + SIGN.1 / 2.0 + 4.0);
        text(out, PLAIN, Anchor::Start, at, column - SIGN.0 - 12.0, meaning);
    }
    top + 40.0 + LINE * half as f64
}

fn entries(lines: &[Line]) -> Vec<(Entry, &'static str)> {
    const ALL: Contents =
        Contents { samples: Part::WHOLE, features: Part::WHOLE, elements: Part::WHOLE, summand: None, version: None };
    const SLICE: Part = Part { at: 1, count: 1, of: 3 };
    let lies = |wanted: AxisLayout| {
        lines.iter().any(|line| line.layout.axes().iter().any(|axis| line.layout.on(axis) == wanted))
    };
    let changes =
        |exchanged: bool| lines.iter().filter_map(|line| line.change).any(|change| change.by.is_some() == exchanged);
    let all = [
        (
            lines.iter().any(|line| line.layout == Layout::REPLICATED),
            Entry::Cell(Some(ALL)),
            "replicated: every rank holds all of it",
        ),
        (
            lies(AxisLayout::Split(Dimension::Sample)),
            Entry::Cell(Some(Contents { samples: SLICE, ..ALL })),
            "split(sample): a range of the samples",
        ),
        (
            lies(AxisLayout::Split(Dimension::Feature)),
            Entry::Cell(Some(Contents { features: SLICE, ..ALL })),
            "split(feature): a range of the features",
        ),
        (
            lies(AxisLayout::Split(Dimension::Vocabulary)),
            Entry::Cell(Some(Contents { features: SLICE, ..ALL })),
            "split(vocabulary): a range of a table's entries",
        ),
        (
            lies(AxisLayout::Split(Dimension::Input)),
            Entry::Cell(Some(Contents { samples: SLICE, ..ALL })),
            "split(input): a range of the columns",
        ),
        (
            lies(AxisLayout::Split(Dimension::Element)),
            Entry::Cell(Some(Contents { elements: SLICE, ..ALL })),
            "split(element): a range of a bucket's elements",
        ),
        (
            lies(AxisLayout::Partial),
            Entry::Cell(Some(Contents { summand: Some(0), ..ALL })),
            "partial: a summand; the tensor is a + b + …",
        ),
        (
            lies(AxisLayout::Own),
            Entry::Cell(Some(Contents { version: Some(0), ..ALL })),
            "own: a version of its own, A, B, …",
        ),
        (lies(AxisLayout::First), Entry::Cell(None), "first: nothing here, the axis's first rank holds all"),
        (changes(true), Entry::Exchange, "exchange: a line joins each group of ranks"),
        (changes(false), Entry::Slice, "slice: ranks keep their parts, nothing is sent"),
    ];
    all.into_iter().filter(|(shown, ..)| *shown).map(|(_, entry, meaning)| (entry, meaning)).collect()
}
