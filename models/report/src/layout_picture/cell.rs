//! Draws one cell: the outline of a tensor, and in it what a rank holds.

use std::fmt::Write as _;

use super::contents::{Contents, Part};
use super::paper::{COMMON, VERSIONS};

/// Size of a letter, and of the smallest that is written, in points.
const LETTER: f64 = 13.0;
const SMALLEST: f64 = 9.0;

/// A position on the picture, in points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rectangle {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The stripes of partial sums: of the common colour and of each version's.
pub(super) fn stripes(out: &mut String, of: impl Iterator<Item = Option<usize>>) {
    let mut all: Vec<Option<usize>> = of.collect();
    all.sort_unstable();
    all.dedup();
    for version in all {
        let _ = writeln!(
            out,
            "<pattern id=\"{}\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <rect width=\"7\" height=\"7\" fill=\"#ffffff\"/><rect width=\"2.5\" height=\"7\" fill=\"{}\"/></pattern>",
            stripe(version),
            colour(version)
        );
    }
}

/// The name of the stripes of a version.
fn stripe(version: Option<usize>) -> String {
    version.map_or_else(|| "sum".to_owned(), |version| format!("sum{version}"))
}

fn colour(version: Option<usize>) -> &'static str {
    version.map_or(COMMON, |version| VERSIONS[version % VERSIONS.len()])
}

/// Draws it.
pub(super) fn cell(out: &mut String, place: Rectangle, contents: Option<Contents>) {
    let Rectangle { left, top, width, height } = place;
    let none = if contents.is_some() { "" } else { " none" };
    rectangle(out, place, &format!("class=\"cell{none}\""));
    let Some(contents) = contents else { return };
    let ((across, wide), (down, high)) = (contents.features.shares(), contents.samples.shares());
    let part =
        Rectangle { left: left + across * width, top: top + down * height, width: wide * width, height: high * height };
    let part = flat(out, part, contents.elements);
    let looks = match (contents.summand, contents.version) {
        (None, None) => "class=\"all\"".to_owned(),
        (Some(_), None) => format!("class=\"sum\" fill=\"url(#{})\"", stripe(None)),
        (Some(_), version) => format!("class=\"own\" fill=\"url(#{})\"", stripe(version)),
        (None, version) => format!("class=\"own\" fill=\"{}\"", colour(version)),
    };
    rectangle(out, part, &looks);
    let letter = |first: u8, number: usize| char::from(first + (number % 26) as u8);
    let version = contents.version.map(|number| letter(b'A', number));
    let letters: String = version.into_iter().chain(contents.summand.map(|number| letter(b'a', number))).collect();
    let size = LETTER.min(part.height).min(part.width / letters.len() as f64);
    if letters.is_empty() || size < SMALLEST {
        return;
    }
    // On stripes a letter needs a plain background, which does not extend beyond the part.
    let halo = if contents.summand.is_some() { " halo" } else { "" };
    let smaller =
        if size < LETTER { format!(" style=\"font-size:{size:.1}px;stroke-width:3px\"") } else { String::new() };
    let (x, y) = (part.left + part.width / 2.0, part.top + part.height / 2.0 + 0.35 * size);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"letter{halo}\"{smaller}>{letters}</text>");
}

/// The part itself, or a range of its elements as a part of a strip across it.
fn flat(out: &mut String, part: Rectangle, elements: Part) -> Rectangle {
    if elements == Part::WHOLE {
        return part;
    }
    let (from, long) = elements.shares();
    let strip = Rectangle { top: part.top + part.height / 3.0, height: part.height / 3.0, ..part };
    rectangle(out, strip, "class=\"strip\"");
    Rectangle { left: strip.left + from * strip.width, width: long * strip.width, ..strip }
}

fn rectangle(out: &mut String, place: Rectangle, looks: &str) {
    let Rectangle { left, top, width, height } = place;
    let _ = writeln!(out, "<rect {looks} x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>");
}
