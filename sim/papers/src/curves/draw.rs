//! Draws the page of measured curves: a picture per system, dots measured, lines predicted, both axes logarithmic.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lockstep_report::CurvePointRow;
use lockstep_report::svg::{Frame, PlotAxis, Spacing, escaped, points, significant, tick};
use lockstep_topology::Bytes;

use super::{Curves, MeasuredSystem};

const WIDTH: f64 = 460.0;
const FRAME: Frame = Frame {
    left: 52.0,
    right: WIDTH - 14.0,
    top: 30.0,
    bottom: 280.0,
    lines: "stroke=\"#e0e0e0\"",
    figures: " fill=\"#666\"",
};
/// Colours that most people can distinguish (Okabe and Ito 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#b8578f", "#b07c00", "#3f9fd0", "#444"];
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
    let spacing = if by_ranks { Spacing::Linear } else { Spacing::Log };
    let x = PlotAxis::of(own().map(right), spacing, FRAME.left, FRAME.right);
    let times = own().flat_map(|point| [point.time_us, point.predicted_time_us]);
    let y = PlotAxis::of(times, Spacing::Log, FRAME.bottom, FRAME.top);
    let height = FRAME.bottom + 48.0 + LEGEND * of.len() as f64;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-size=\"12\" \
         font-family=\"sans-serif\"><title>{}</title>\n",
        escaped(&system.name)
    );
    for power in (0..40).map(|power| 1u64 << power).filter(|power| !by_ranks && power.ilog2() % 5 == 0) {
        if x.holds(power as f64) {
            FRAME.upward(&mut out, x.at(power as f64), Bytes(power));
        }
    }
    if by_ranks {
        x.ticks().into_iter().for_each(|value| FRAME.upward(&mut out, x.at(value), tick(value)));
    }
    y.ticks().into_iter().for_each(|value| FRAME.across(&mut out, y.at(value), tick(value)));
    let along = if by_ranks { "GPUs" } else { "bytes" };
    let _ = writeln!(
        out,
        "<text x=\"4\" y=\"16\" fill=\"#666\">time, us</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#666\">{along}</text>",
        FRAME.right,
        FRAME.bottom + 31.0
    );
    for (place, (number, points_of)) in of.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let line = points(points_of.iter().map(|point| (x.at(right(point)), y.at(point.predicted_time_us))));
        let _ = writeln!(out, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        for point in points_of {
            let fill = if point.counted { colour } else { "none" };
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{fill}\" stroke=\"{colour}\"><title>{} of {}: measured {} us, \
                 predicted {} us</title></circle>",
                x.at(right(point)),
                y.at(point.time_us),
                escaped(&point.curve),
                Bytes(point.bytes),
                significant(point.time_us),
                significant(point.predicted_time_us),
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}: dots measured, hollow where they do not count; line predicted</text>",
            FRAME.left,
            FRAME.bottom + 48.0 + LEGEND * place as f64,
            escaped(&system.curves[*number].name),
        );
    }
    out + "</svg>\n"
}
