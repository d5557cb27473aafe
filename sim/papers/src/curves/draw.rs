//! Draws the page of measured curves: a picture per system, dots measured, lines predicted, both axes logarithmic.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lockstep_report::CurvePointRow;
use lockstep_report::svg::{COLOURS, Frame, Look, PlotAxis, Spacing, escaped, points, shortened, significant, tick};
use lockstep_topology::Bytes;

use super::{Curves, MeasuredSystem};

const WIDTH: f64 = 460.0;
const FRAME: Frame = Frame {
    left: 52.0,
    right: WIDTH - 14.0,
    top: 30.0,
    bottom: 280.0,
    font: 12.0,
    lines: "stroke=\"#e0e0e0\"",
    figures: " fill=\"#666\"",
    names: " fill=\"#666\"",
};
/// Height of a line of the legend.
const LEGEND: f64 = 18.0;

/// A page of all systems, one file without external resources.
pub fn curves_page(systems: &[MeasuredSystem], curves: &Curves) -> String {
    let mut out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>lockstep: collectives</title></head>\
                   <body style=\"font-family:sans-serif\">\n<h1>Collectives, measured and predicted</h1>\n"
            .to_owned();
    for note in &curves.notes {
        let _ = writeln!(out, "<p>{}</p>", escaped(note));
    }
    for system in systems {
        let _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escaped(&system.name), escaped(&system.source));
        out += &picture(system, &curves.points);
    }
    out + "</body></html>\n"
}

/// One system's picture: time over bytes, or over ranks where all sizes are equal.
fn picture(system: &MeasuredSystem, all: &[CurvePointRow]) -> String {
    let mut of: BTreeMap<usize, Vec<&CurvePointRow>> = BTreeMap::new();
    for point in all.iter().filter(|point| point.system == system.name) {
        if let Some(number) = system.curves.iter().position(|curve| curve.name == point.curve) {
            of.entry(number).or_default().push(point);
        }
    }
    let own = || of.values().flatten().copied();
    let by_ranks = own().all(|point| own().next().is_some_and(|first| first.bytes == point.bytes));
    let right = |point: &CurvePointRow| if by_ranks { f64::from(point.ranks) } else { point.bytes as f64 };
    let x = match by_ranks {
        true => PlotAxis::of(own().map(right), Spacing::Linear, FRAME.left, FRAME.right),
        false => PlotAxis::of_counts(own().map(right), FRAME.left, FRAME.right),
    };
    let times = own().flat_map(|point| [point.time_us, point.predicted_time_us]);
    let y = PlotAxis::of(times, Spacing::Log, FRAME.bottom, FRAME.top);
    let height = FRAME.bottom + 52.0 + LEGEND * (1 + of.len()) as f64;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-size=\"12\" \
         font-family=\"sans-serif\"><title>Times of collectives on {}</title>\n",
        escaped(&system.name)
    );
    grid(&mut out, &x, &y, by_ranks);
    for (place, (number, points_of)) in of.iter().enumerate() {
        let look = Look::of(*number);
        let colour = COLOURS[look.colour];
        let line = points(points_of.iter().map(|point| (x.at(right(point)), y.at(point.predicted_time_us))));
        let _ = writeln!(
            out,
            "<polyline points=\"{line}\" data-series=\"{number}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{}/>",
            look.dash
        );
        for point in points_of {
            let attributes = format!("fill=\"{}\" stroke=\"{colour}\"", if point.counted { colour } else { "none" });
            let says = format!(
                "{} of {}: measured {} us, predicted {} us",
                point.curve,
                Bytes(point.bytes),
                significant(point.time_us),
                significant(point.predicted_time_us)
            );
            look.mark(&mut out, (x.at(right(point)), y.at(point.time_us)), 2.5, &attributes, &escaped(&says));
        }
        entry(&mut out, place, *number, &system.curves[*number].name);
    }
    let foot = FRAME.bottom + 48.0 + LEGEND * of.len() as f64;
    let reading = "marks: measured, hollow where they do not count; lines: predicted";
    let _ = writeln!(out, "<text x=\"{}\" y=\"{foot}\" fill=\"#666\">{reading}</text>", FRAME.left);
    out + "</svg>\n"
}

/// The grid and both axes.
fn grid(out: &mut String, x: &PlotAxis, y: &PlotAxis, by_ranks: bool) {
    match by_ranks {
        true => FRAME.horizontal(out, x.ticks().into_iter().map(|value| (x.at(value), tick(value))), "number of GPUs"),
        false => {
            let named = |value: f64| (x.at(value), Bytes(value as u64).to_string());
            FRAME.horizontal(out, x.doublings().into_iter().map(named), "size of the buffer, bytes");
        }
    }
    FRAME.vertical(out, y.ticks().into_iter().map(|value| (y.at(value), tick(value))), "time, microseconds");
}

/// A line of the legend.
fn entry(out: &mut String, place: usize, number: usize, name: &str) {
    let (look, foot, left) = (Look::of(number), FRAME.bottom + 48.0 + LEGEND * place as f64, FRAME.left);
    let (colour, dash, y, end) = (COLOURS[look.colour], &look.dash, foot - 4.0, left + 24.0);
    let _ = writeln!(
        out,
        "<line x1=\"{left}\" y1=\"{y}\" x2=\"{end}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/>"
    );
    look.mark(out, (left + 12.0, y), 2.5, &format!("fill=\"{colour}\""), "");
    let name = escaped(&shortened(12.0, name, WIDTH - left - 32.0));
    let _ = writeln!(out, "<text x=\"{}\" y=\"{foot}\">{name}</text>", left + 32.0);
}
