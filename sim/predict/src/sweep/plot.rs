//! Draws a sweep as SVG: every point in grey, each question's front as a line, its knee as a ring.
//!
//! Both axes are logarithmic, so equal gains are equal distances: perfect scaling is a straight dashed line. The
//! horizontal axis is the number of ranks, the vertical one images per second, or the step time where the samples per
//! step are fixed.

use std::fmt::Write;

use super::answer::{SweepAnswer, label};
use lockstep_experiment::sweep::Sweep;
use lockstep_report::svg::{COLOURS, Frame, Look, PlotAxis, Spacing, escaped, opening, points, shortened, tick};

/// Lines that the legend names.
const NAMED: usize = 42;
/// Width of the page, height of the plot on it, and height of a line of the legend, in points.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
const LINE: f64 = 16.0;
/// The area of the plot on it.
const FRAME: Frame = Frame::plain((70.0, WIDTH - 20.0), (58.0, 58.0 + HEIGHT));
/// Where the legend begins: the marks of all lines first.
const LEGEND: f64 = FRAME.bottom + 54.0;

/// A sweep's picture: what it shows upwards, and its axes.
struct Picture {
    weak: bool,
    x: PlotAxis,
    y: PlotAxis,
}

/// The picture.
pub fn svg(answer: &SweepAnswer, sweep: &Sweep) -> String {
    let weak = sweep.is_weak();
    let height = |images_per_s: f64, step_time_s: f64| if weak { images_per_s } else { step_time_s };
    let ranks = answer.dots.iter().map(|dot| f64::from(dot.total_ranks));
    let values = answer.dots.iter().map(|dot| height(dot.images_per_s, dot.step_time_s));
    let picture = Picture {
        weak,
        x: PlotAxis::of_counts(ranks, FRAME.left, FRAME.right),
        y: PlotAxis::of(values, Spacing::Log, FRAME.bottom, FRAME.top),
    };
    let named = answer.fronts.len().min(NAMED);
    let page = LEGEND + 12.0 + LINE * (1 + named + usize::from(answer.fronts.len() > NAMED)) as f64;
    let title = if weak { "Throughput by number of ranks" } else { "Step time by number of ranks" };
    let mut out = opening(title, (WIDTH, page), FRAME.font);
    picture.grid(&mut out);
    for dot in &answer.dots {
        let (cx, cy) = picture.at(f64::from(dot.total_ranks), height(dot.images_per_s, dot.step_time_s));
        let _ = writeln!(out, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2\" fill=\"#bbbbbb\" fill-opacity=\"0.6\"/>");
    }
    let marks = "grey: every point; dotted: perfect scaling; ring: knee";
    let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{marks}</text>", FRAME.left, LEGEND + 4.0);
    for (number, (question, front)) in answer.fronts.iter().enumerate() {
        let figures: Vec<(f64, f64)> = front
            .points()
            .filter_map(|row| Some((f64::from(row.total_ranks), height(row.images_per_s?, row.step_time_s?))))
            .collect();
        let knee = front.knee().and_then(|at| figures.get(at)).copied();
        picture.front(&mut out, number, &figures, knee);
        if number < NAMED {
            let found = knee.map_or_else(String::new, |(ranks, _)| format!(" (knee at {ranks})"));
            entry(&mut out, number, &format!("{}{found}", label(sweep, question)));
        }
    }
    if answer.fronts.len() > NAMED {
        let (x, down) = (FRAME.left + 32.0, LEGEND + 4.0 + LINE * (1 + NAMED) as f64);
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{down}\">and {} more</text>", answer.fronts.len() - NAMED);
    }
    out + "</svg>\n"
}

/// A line of the legend.
fn entry(out: &mut String, number: usize, name: &str) {
    let (look, down) = (Look::of(number), LEGEND + LINE * (1 + number) as f64);
    let (colour, dash, left) = (COLOURS[look.colour], &look.dash, FRAME.left);
    let _ = writeln!(
        out,
        "<line x1=\"{left}\" y1=\"{down}\" x2=\"{}\" y2=\"{down}\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}/>",
        left + 26.0
    );
    look.mark(out, (left + 13.0, down), 3.0, &format!("fill=\"{colour}\""), "");
    let name = shortened(FRAME.font, name, WIDTH - left - 40.0);
    let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", left + 34.0, down + 4.0, escaped(&name));
}

impl Picture {
    fn at(&self, ranks: f64, value: f64) -> (f64, f64) {
        (self.x.at(ranks), self.y.at(value))
    }

    /// Lines and figures of both axes, and their names.
    fn grid(&self, out: &mut String) {
        let up = if self.weak { "throughput, images per second" } else { "step time, seconds" };
        let across = self.x.doublings().into_iter().map(|value| (self.x.at(value), format!("{value}")));
        FRAME.horizontal(out, across, "number of ranks, servers included");
        FRAME.vertical(out, self.y.ticks().into_iter().map(|value| (self.y.at(value), tick(value))), up);
    }

    /// A front: its line, its points, and its knee.
    fn front(&self, out: &mut String, number: usize, figures: &[(f64, f64)], knee: Option<(f64, f64)>) {
        let look = Look::of(number);
        let (colour, dash) = (COLOURS[look.colour], &look.dash);
        let places = points(figures.iter().map(|(ranks, value)| self.at(*ranks, *value)));
        self.ideal(out, figures.first(), colour);
        let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"");
        let _ = writeln!(out, "<polyline points=\"{places}\" data-series=\"{number}\" {stroke}{dash}/>");
        for (ranks, value) in figures {
            look.mark(out, self.at(*ranks, *value), 3.0, &format!("fill=\"{colour}\""), "");
        }
        if let Some((ranks, value)) = knee {
            let (cx, cy) = self.at(ranks, value);
            let _ = writeln!(out, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"7\" {stroke}/>");
        }
    }

    /// Perfect scaling from the first point of a front, to the edge of the plot.
    fn ideal(&self, out: &mut String, first: Option<&(f64, f64)>, colour: &str) {
        let Some((ranks, value)) = first else { return };
        let at = |times: f64| if self.weak { value * times } else { value / times };
        let edge = if self.weak { self.y.high / value } else { value / self.y.low };
        let times = (self.x.high / ranks).min(edge);
        let ((x1, y1), (x2, y2)) = (self.at(*ranks, *value), self.at(ranks * times, at(times)));
        let _ = writeln!(
            out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.45\" \
             stroke-dasharray=\"1 4\"/>"
        );
    }
}
