//! Draws a sweep as SVG: every point in grey, each question's front as a line, its knee as a ring.
//!
//! Both axes are logarithmic, so equal gains are equal distances: perfect scaling is a straight dashed line. The
//! horizontal axis is the number of ranks, the vertical one images per second, or the step time where the samples per
//! step are fixed.

use std::fmt::Write;

use super::answer::{SweepAnswer, label};
use lockstep_experiment::sweep::Sweep;
use lockstep_report::svg::{DASHES, Frame, PlotAxis, Spacing, escaped, points, tick};

/// Colours that most people can distinguish (Okabe and Ito 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];
/// Lines that the legend names.
const NAMED: usize = 14;
/// Width of the page and height of the plot on it, in points.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
/// The area of the plot on it.
const FRAME: Frame = Frame {
    left: 70.0,
    right: WIDTH - 20.0,
    top: 34.0,
    bottom: 34.0 + HEIGHT,
    lines: "stroke=\"#e4e4e4\"",
    figures: "",
};

/// The picture.
pub fn svg(answer: &SweepAnswer, sweep: &Sweep) -> String {
    let weak = sweep.is_weak();
    let height = |images_per_s: f64, step_time_s: f64| if weak { images_per_s } else { step_time_s };
    let x =
        PlotAxis::of(answer.dots.iter().map(|dot| f64::from(dot.total_ranks)), Spacing::Log, FRAME.left, FRAME.right);
    let y = answer.dots.iter().map(|dot| height(dot.images_per_s, dot.step_time_s));
    let y = PlotAxis::of(y, Spacing::Log, FRAME.bottom, FRAME.top);
    let named = answer.fronts.len().min(NAMED);
    let page = FRAME.bottom + 62.0 + 16.0 * (named + usize::from(answer.fronts.len() > NAMED)) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {page}\" width=\"{WIDTH}\" height=\"{page}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    grid(&mut out, &x, &y, if weak { "images/s" } else { "step time in s" });
    for dot in &answer.dots {
        let (cx, cy) = (x.at(f64::from(dot.total_ranks)), y.at(height(dot.images_per_s, dot.step_time_s)));
        let _ = writeln!(out, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2\" fill=\"#bbbbbb\" fill-opacity=\"0.6\"/>");
    }
    for (number, (question, front)) in answer.fronts.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = DASHES[(number / COLOURS.len()).min(DASHES.len() - 1)];
        let figures: Vec<(f64, f64)> = front
            .points()
            .filter_map(|row| Some((f64::from(row.total_ranks), height(row.images_per_s?, row.step_time_s?))))
            .collect();
        let places = points(figures.iter().map(|(ranks, value)| (x.at(*ranks), y.at(*value))));
        ideal(&mut out, &x, &y, figures.first(), weak, colour);
        let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"");
        let _ = writeln!(out, "<polyline points=\"{}\" {stroke}{dash}/>", places);
        for (ranks, value) in &figures {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x.at(*ranks),
                y.at(*value)
            );
        }
        let knee = front.knee().and_then(|at| figures.get(at));
        if let Some((ranks, value)) = knee {
            let (cx, cy) = (x.at(*ranks), y.at(*value));
            let _ = writeln!(out, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"7\" {stroke}/>");
        }
        if number < NAMED {
            let down = FRAME.bottom + 58.0 + 16.0 * number as f64;
            let found = knee.map_or_else(String::new, |(ranks, _)| format!(" (knee at {ranks})"));
            let _ = writeln!(
                out,
                "<line x1=\"{}\" y1=\"{down}\" x2=\"{}\" y2=\"{down}\" {stroke}{dash}/>\n\
                 <text x=\"{}\" y=\"{}\">{}{found}</text>",
                FRAME.left,
                FRAME.left + 24.0,
                FRAME.left + 32.0,
                down + 4.0,
                escaped(&label(sweep, question))
            );
        }
    }
    if answer.fronts.len() > NAMED {
        let down = FRAME.bottom + 62.0 + 16.0 * NAMED as f64;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{down}\">and {} more</text>",
            FRAME.left + 32.0,
            answer.fronts.len() - NAMED
        );
    }
    out + "</svg>\n"
}

/// Perfect scaling from the first point of a front, to the edge of the plot.
fn ideal(out: &mut String, x: &PlotAxis, y: &PlotAxis, first: Option<&(f64, f64)>, weak: bool, colour: &str) {
    let Some((ranks, value)) = first else { return };
    let at = |times: f64| if weak { value * times } else { value / times };
    let edge = if weak { y.high / value } else { value / y.low };
    let times = (x.high / ranks).min(edge);
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.45\" \
         stroke-dasharray=\"1 4\"/>",
        x.at(*ranks),
        y.at(*value),
        x.at(ranks * times),
        y.at(at(times))
    );
}

/// Lines and figures of both axes, and their names.
fn grid(out: &mut String, x: &PlotAxis, y: &PlotAxis, up: &str) {
    x.doublings().into_iter().for_each(|value| FRAME.upward(out, x.at(value), value));
    y.ticks().into_iter().for_each(|value| FRAME.across(out, y.at(value), tick(value)));
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{up}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">ranks, servers included; dotted: perfect scaling; circle: knee</text>",
        FRAME.left,
        FRAME.top - 14.0,
        FRAME.right,
        FRAME.bottom + 34.0
    );
}
