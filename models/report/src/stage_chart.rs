//! Draws a schedule of pipeline stages in SVG: a row for each stage, time to the right, a box for each pass of a
//! micro-batch.

use std::fmt::Write as _;
use std::ops::Range;

use lockstep_models::pipeline::makespan;
use lockstep_models::{PipelinePass, PipelineStep};

use crate::svg::escaped;

/// Width of the picture, its margin, and the width of the stages' names and figures, in points.
const WIDTH: f64 = 800.0;
const MARGIN: f64 = 12.0;
const NAMES: f64 = 168.0;
const FIGURES: f64 = 76.0;
/// Where the first stage begins, the height of its boxes, and the gap below.
const TOP: f64 = 60.0;
const BOX: f64 = 30.0;
const GAP: f64 = 10.0;
/// Height of a line that names a chunk's layers, and how many a stage has at most.
const LINE: f64 = 11.0;
const LINES: usize = 4;
/// Characters of such a line at most.
const CHARACTERS: usize = 34;
/// Width of a pass, on average, below which the end of a step is cut off instead.
const NARROWEST: f64 = 7.0;
/// Rows of stages at most.
const MOST: usize = 32;
/// Width of a digit of a micro-batch's number.
const FIGURE: f64 = 6.0;

/// Boxes of forward and backward passes through a stage's first, second, third, … chunk in turn (Okabe and Ito 2008).
const STYLE: &str = "text{fill:#222}.heading{font-size:14px;font-weight:bold}.name{font-size:12px;font-weight:bold}\
.small{font-size:10px;fill:#555}.layers{font-size:9px;fill:#555}.plain{font-size:11px}.number{font-size:10px;text-anchor:middle}.end{text-anchor:end}\
rect{stroke:#fff;stroke-width:.8px}.idle{fill:#eee;stroke:none}.f0{fill:#8fcdf0}.f1{fill:#3d9bd3}.b0{fill:#f5c45e}.b1{fill:#e08a2c}";

/// The same of weight passes, where there are any.
const WEIGHT_STYLE: &str = ".w0{fill:#8fd3b6}.w1{fill:#3aa37d}";

/// The text beside a stage's passes.
#[derive(Debug, Clone, PartialEq)]
pub struct StageLabel {
    /// Its layers, by chunk.
    pub layers: Vec<String>,
    /// Micro-batches whose activations it has at once, counted for each chunk.
    pub in_flight: u32,
    /// Share of the step in which it is idle.
    pub idle_share: f64,
}

/// The chart of the stages: `spans` are the times of the steps of `lists`, in ticks, and each stage has a label.
///
/// The same input gives the same bytes. Of more than 32 stages the first are shown, and a long step is cut off at the
/// right; the picture says so.
///
/// ```
/// # use lockstep_models::{PipelineSchedule, pipeline};
/// # use lockstep_report::{StageLabel, stage_chart};
/// let lists = PipelineSchedule::OneForwardOneBackward.lists(2, 3).unwrap();
/// let spans = pipeline::times(&lists, 1, |_, _| 1).unwrap();
/// let label = |layers: &str| StageLabel { layers: vec![layers.to_owned()], in_flight: 1, idle_share: 0.25 };
/// let picture = stage_chart("net", &lists, &spans, &[label("conv1"), label("dense1")]);
/// assert!(picture.starts_with("<svg") && picture.contains(">dense1</text>") && picture.contains(">idle 25 %</text>"));
/// // A forward and a backward pass of three micro-batches on two stages, and their boxes in the legend.
/// assert_eq!((picture.matches("class=\"f0\"").count(), picture.matches("class=\"b0\"").count()), (7, 7));
/// ```
pub fn stage_chart(
    heading: &str,
    lists: &[Vec<PipelineStep>],
    spans: &[Vec<Range<u64>>],
    labels: &[StageLabel],
) -> String {
    let (left, right) = (MARGIN + NAMES, WIDTH - MARGIN - FIGURES);
    let shown = lists.len().min(MOST);
    let chunks = lists.iter().flatten().map(|step| step.chunk / lists.len().max(1) as u32 + 1).max().unwrap_or(1);
    let lines = labels.iter().map(|label| label.layers.len().min(LINES)).max().unwrap_or(1);
    let row = BOX.max(15.0 + LINE * lines as f64) + GAP;
    let legend = TOP + row * shown as f64 + 14.0;
    let height = legend + 16.0;
    let heading = escaped(heading);
    let has_weights = lists.iter().flatten().any(|step| step.pass == PipelinePass::Weight);
    let weight_style = if has_weights { WEIGHT_STYLE } else { "" };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"sans-serif\">\n<title>{heading}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <style>{STYLE}{weight_style}</style>\n<text x=\"{MARGIN}\" y=\"24\" class=\"heading\">{heading}</text>\n"
    );
    let scale = scale(spans, right - left);
    let cut = makespan(spans) as f64 * scale > (right - left) * (1.0 + 1e-9);
    let more = if lists.len() > shown { format!("; of {} stages the first", lists.len()) } else { String::new() };
    let end = if cut { "; the end of the step is cut off" } else { "" };
    let reading = format!(
        "Time to the right, a box for each pass, as wide as it has FLOPs; messages take no time. Numbers are micro-batches{more}{end}."
    );
    let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"42\" class=\"small\">{reading}</text>");
    for (stage, ((list, spans), label)) in lists.iter().zip(spans).zip(labels).enumerate().take(shown) {
        let top = TOP + row * stage as f64;
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{}\" class=\"name\">stage {stage}</text>\n{}\
             <rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{BOX}\" class=\"idle\"/>\n\
             <text x=\"{}\" y=\"{}\" class=\"small\">in flight {}</text>\n<text x=\"{}\" y=\"{}\" class=\"small\">idle {:.0} %</text>",
            top + 13.0,
            layers(&label.layers, top + 15.0),
            right - left,
            right + 8.0,
            top + 13.0,
            label.in_flight,
            right + 8.0,
            top + 26.0,
            100.0 * label.idle_share
        );
        for (step, span) in list.iter().zip(spans) {
            let x = |ticks: u64| (left + ticks as f64 * scale).min(right);
            pass(&mut out, step, lists.len() as u32, (x(span.start), x(span.end), top));
        }
    }
    write_legend(&mut out, (chunks, has_weights), legend);
    out + "</svg>\n"
}

/// Points of a tick.
fn scale(spans: &[Vec<Range<u64>>], room: f64) -> f64 {
    let busy = |spans: &Vec<Range<u64>>| spans.iter().map(|span| (span.end - span.start) as f64).sum::<f64>();
    let passes = spans.iter().map(Vec::len).max().unwrap_or(0).max(1) as f64;
    let mean = spans.iter().map(busy).fold(0.0, f64::max) / passes;
    let end = makespan(spans) as f64;
    if end == 0.0 || mean == 0.0 { 0.0 } else { (room / end).max(NARROWEST / mean) }
}

/// Lines of layers below `top`, cut where they are long or many.
fn layers(names: &[String], top: f64) -> String {
    let mut out = String::new();
    for (index, name) in names.iter().take(LINES).enumerate() {
        let more = if index + 1 == LINES && names.len() > LINES { "…" } else { name };
        let long = more.chars().count() > CHARACTERS;
        let shown: String = more.chars().take(if long { CHARACTERS - 1 } else { CHARACTERS }).collect();
        let (y, end) = (top + LINE * (index as f64 + 1.0) - 1.0, if long { "…" } else { "" });
        let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"{y}\" class=\"layers\">{}{end}</text>", escaped(&shown));
    }
    out
}

/// The class of passes through a chunk, which is the `turn`th of its stage.
fn class(pass: PipelinePass, turn: u32) -> String {
    format!("{}{}", &pass.name()[..1], turn % 2)
}

fn pass(out: &mut String, step: &PipelineStep, stages: u32, (from, to, top): (f64, f64, f64)) {
    let number = step.micro_batch.to_string();
    let width = to - from;
    if width < 0.05 {
        return;
    }
    let class = class(step.pass, step.chunk / stages.max(1));
    let _ =
        writeln!(out, "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BOX}\" class=\"{class}\"/>");
    if FIGURE * number.len() as f64 <= width {
        let (x, y) = ((from + to) / 2.0, top + BOX / 2.0 + 3.5);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" class=\"number\">{number}</text>");
    }
}

fn write_legend(out: &mut String, (chunks, has_weights): (u32, bool), y: f64) {
    let mut x = MARGIN;
    let mut entry = |class: &str, text: &str| {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.0}\" y=\"{}\" width=\"16\" height=\"12\" class=\"{class}\"/>\n<text x=\"{:.0}\" y=\"{y}\" class=\"plain\">{text}</text>",
            y - 10.0,
            x + 20.0
        );
        x += 34.0 + 6.0 * text.len() as f64;
    };
    let passes: &[(PipelinePass, &str)] = match has_weights {
        true => &[
            (PipelinePass::Forward, "forward"),
            (PipelinePass::Backward, "backward, of activations"),
            (PipelinePass::Weight, "backward, of weights"),
        ],
        false => &[(PipelinePass::Forward, "forward"), (PipelinePass::Backward, "backward")],
    };
    for (pass, text) in passes.iter().copied() {
        match chunks {
            1 => entry(&class(pass, 0), text),
            2 => (0..2).for_each(|turn| entry(&class(pass, turn), &format!("{text}, chunk {}", turn + 1))),
            _ => ["odd", "even"].iter().zip(0..).for_each(|(which, turn)| {
                entry(&class(pass, turn), &format!("{text}, {which} chunks"));
            }),
        }
    }
    entry("idle", "idle");
}

#[cfg(test)]
mod tests {
    use lockstep_models::{PipelineSchedule, pipeline::times};

    use super::*;

    fn picture(schedule: PipelineSchedule, stages: u32, micro_batches: u32, ticks: u64) -> String {
        let lists = schedule.lists(stages, micro_batches).unwrap();
        let spans = times(&lists, schedule.chunks(), |_, _| ticks).unwrap();
        let label = StageLabel { layers: vec!["a<b".to_owned(); 6], in_flight: 2, idle_share: 0.5 };
        stage_chart("h&k", &lists, &spans, &vec![label; stages as usize])
    }

    /// The end of each box is where the next of its stage begins, unless that has to wait: (3 + 1) · 2 passes
    /// on 532 points.
    #[test]
    fn boxes_are_as_wide_as_passes_are_long() {
        let shown = picture(PipelineSchedule::GPipe, 2, 3, 5);
        let boxes = |class: &str| {
            let of = |line: &str| line.contains(class).then(|| line.split('"').nth(1).unwrap().parse::<f64>().unwrap());
            shown.lines().filter(|line| line.contains("height=\"30\"")).filter_map(of).collect::<Vec<f64>>()
        };
        let at = |tick: f64| (180.0 + 532.0 / 8.0 * tick).round();
        let round = |all: Vec<f64>| all.into_iter().map(f64::round).collect::<Vec<_>>();
        assert_eq!(round(boxes("\"f0\"")), [0.0, 1.0, 2.0, 1.0, 2.0, 3.0].map(at));
        assert_eq!(round(boxes("\"b0\"")), [5.0, 6.0, 7.0, 4.0, 5.0, 6.0].map(at));
        assert!(shown.contains(">a&lt;b<") && shown.contains(">…<") && shown.contains("h&amp;k"));
    }

    #[test]
    fn long_and_wide_schedules_are_truncated() {
        let shown = picture(PipelineSchedule::GPipe, 40, 400, 3);
        assert!(shown.contains("of 40 stages the first; the end of the step is cut off"));
        assert_eq!(shown.matches("class=\"name\"").count(), 32);
        assert!(!picture(PipelineSchedule::GPipe, 2, 2, 0).contains("height=\"30\" class=\"f0\""));
        // Times that end at 2^64 - 1 ticks.
        assert!(picture(PipelineSchedule::GPipe, 2, 2, u64::MAX).contains("class=\"f0\""));
    }

    #[test]
    fn chunks_are_distinguishable() {
        let shown = picture(PipelineSchedule::Interleaved { chunks: 3 }, 2, 2, 1);
        assert!(shown.contains("forward, even chunks") && shown.contains("class=\"b1\""));
        assert!(!shown.contains("class=\"w"));
    }

    /// A box for each weight pass of three micro-batches on two stages, and one in the legend.
    #[test]
    fn weight_passes_are_distinguishable() {
        let shown = picture(PipelineSchedule::ZeroBubbleH1, 2, 3, 1);
        assert_eq!(["f0", "b0", "w0"].map(|class| shown.matches(&format!("class=\"{class}\"")).count()), [7; 3]);
        assert!(shown.contains(".w0{") && shown.contains(">backward, of weights<"));
    }
}
