//! The picture of a sweep as SVG: every point in grey, each question's front as a line, its knee as a ring.
//!
//! Both axes are logarithmic, so equal gains are equal distances: perfect scaling is a straight dashed line. Across is the
//! number of ranks, up are the images per second, or the step time where the samples per step are fixed.

use std::fmt::Write;

use super::answer::{Answer, label};
use super::plan::Sweep;
use crate::experiment::Batch;

/// Colours that most eyes tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];
/// Strokes of the first seven lines, of the next seven, and of the rest.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""];
/// Lines that the legend names.
const NAMED: usize = 14;
/// Width of the page and height of the plot on it, in points.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
/// Room round the plot.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;

/// One axis: from which to which value, on how many points.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// The axis of `values`, with a little room at both ends.
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        let room = (high / low).powf(0.04).max(1.1);
        Axis { low: low / room, high: high * room, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.low).ln() / (self.high / self.low).ln()
    }

    fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The picture.
pub fn svg(answer: &Answer, sweep: &Sweep) -> String {
    let weak = matches!(sweep.batch, Batch::PerRank(_));
    let height = |images_per_s: f64, step_time_s: f64| if weak { images_per_s } else { step_time_s };
    let x = Axis::of(answer.dots.iter().map(|dot| f64::from(dot.total_ranks)), LEFT, WIDTH - RIGHT);
    let y = Axis::of(answer.dots.iter().map(|dot| height(dot.images_per_s, dot.step_time_s)), TOP + HEIGHT, TOP);
    let named = answer.fronts.len().min(NAMED);
    let page = TOP + HEIGHT + 62.0 + 16.0 * (named + usize::from(answer.fronts.len() > NAMED)) as f64;
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
        let places: Vec<String> =
            figures.iter().map(|(ranks, value)| format!("{:.1},{:.1}", x.at(*ranks), y.at(*value))).collect();
        ideal(&mut out, &x, &y, figures.first(), weak, colour);
        let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"");
        let _ = writeln!(out, "<polyline points=\"{}\" {stroke}{dash}/>", places.join(" "));
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
            let down = TOP + HEIGHT + 58.0 + 16.0 * number as f64;
            let found = knee.map_or_else(String::new, |(ranks, _)| format!(" (knee at {ranks})"));
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{down}\" x2=\"{}\" y2=\"{down}\" {stroke}{dash}/>\n\
                 <text x=\"{}\" y=\"{}\">{}{found}</text>",
                LEFT + 24.0,
                LEFT + 32.0,
                down + 4.0,
                escaped(&label(sweep, question))
            );
        }
    }
    if answer.fronts.len() > NAMED {
        let down = TOP + HEIGHT + 62.0 + 16.0 * NAMED as f64;
        let _ =
            writeln!(out, "<text x=\"{}\" y=\"{down}\">and {} more</text>", LEFT + 32.0, answer.fronts.len() - NAMED);
    }
    out + "</svg>\n"
}

/// Perfect scaling from the first point of a front, as far as the plot goes.
fn ideal(out: &mut String, x: &Axis, y: &Axis, first: Option<&(f64, f64)>, weak: bool, colour: &str) {
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

/// Lines and figures of both axes, and what they are.
fn grid(out: &mut String, x: &Axis, y: &Axis, up: &str) {
    let bottom = TOP + HEIGHT;
    let doublings: Vec<f64> = (0..32).map(|power| f64::from(1u32 << power)).filter(|value| x.holds(*value)).collect();
    // At most a dozen figures find room.
    let every = doublings.len().div_ceil(12).max(1);
    for value in doublings.iter().step_by(every) {
        let at = x.at(*value);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#e4e4e4\"/>\n\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            bottom + 15.0
        );
    }
    let decades = (y.high / y.low).log10();
    let steps: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let ticks = (-15..16).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    for value in ticks.filter(|value| y.holds(*value)) {
        let at = y.at(value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            figure(value)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{up}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">ranks, servers included; dotted: perfect scaling; ring: knee</text>",
        TOP - 14.0,
        WIDTH - RIGHT,
        bottom + 34.0
    );
}

/// `200000`, `0.05`, and with an exponent where that is shorter.
fn figure(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{value:.0e}"),
        value if value >= 1.0 => format!("{value:.0}"),
        value if value >= 1e-4 => {
            let places = (-value.log10()).ceil().max(0.0) as usize;
            format!("{value:.places$}")
        }
        value => format!("{value:.0e}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_logarithmic() {
        let axis = Axis { low: 1.0, high: 100.0, from: 0.0, to: 10.0 };
        assert_eq!((axis.at(1.0), axis.at(10.0), axis.at(100.0)), (0.0, 5.0, 10.0));
        // One value, and none at all, still span something.
        for values in [vec![5.0], vec![]] {
            let axis = Axis::of(values.into_iter(), 0.0, 10.0);
            assert!(axis.low < axis.high && axis.at(5.0).is_finite());
        }
    }

    #[test]
    fn figures_on_axes_are_short() {
        let shown = [200_000.0, 5.0, 0.05, 0.5, 2e-4, 1e-5, 2e7].map(figure);
        assert_eq!(shown, ["200000", "5", "0.05", "0.5", "0.0002", "1e-5", "2e7"]);
    }
}
