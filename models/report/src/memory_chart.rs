//! Draws the memory of a device over the tasks of a step in SVG: what is in it, one part above the other.

use std::fmt::Write as _;

use crate::svg::{COLOURS, Frame, PlotAxis, Spacing, escaped, opening, points, significant};

/// Width of the page, and height of the plot on it, in points.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
/// The area of the plot on it.
const FRAME: Frame = Frame::plain((70.0, WIDTH - 150.0), (64.0, 64.0 + HEIGHT));
/// Height of a line of the legend.
const LINE: f64 = 18.0;
const MIB: f64 = (1 << 20) as f64;

/// A part of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPart {
    /// What it is, as the legend says.
    pub name: String,
    /// Its bytes while each task runs.
    pub bytes: Vec<u64>,
}

/// The picture of `parts`, the first at the bottom, with the task at which they take the most; `passes` are the first tasks of
/// passes, with their names.
///
/// The same input gives the same bytes.
///
/// ```
/// use lockstep_report::{MemoryPart, memory_chart};
/// let part = |name: &str, bytes: [u64; 3]| MemoryPart { name: name.to_owned(), bytes: bytes.to_vec() };
/// let parts = [part("weights", [1 << 20; 3]), part("outputs", [0, 3 << 20, 1 << 20])];
/// let picture = memory_chart("net", &parts, &[(0, "forward"), (2, "backward")]);
/// assert!(picture.contains("most: 4 MiB"));
/// ```
pub fn memory_chart(heading: &str, parts: &[MemoryPart], passes: &[(usize, &str)]) -> String {
    let tasks = parts.iter().map(|part| part.bytes.len()).max().unwrap_or(0);
    let total = |task: usize| parts.iter().filter_map(|part| part.bytes.get(task)).sum::<u64>() as f64 / MIB;
    let totals: Vec<f64> = (0..tasks).map(total).collect();
    let peak = (0..tasks).fold(0, |most, task| if totals[task] > totals[most] { task } else { most });
    let most = totals.get(peak).copied().unwrap_or(0.0);
    let y = PlotAxis::of(totals.iter().copied(), Spacing::Linear, FRAME.bottom, FRAME.top);
    let x = |task: usize| FRAME.left + (FRAME.right - FRAME.left) * task as f64 / tasks.max(1) as f64;
    let page = FRAME.bottom + 44.0;
    let mut out = opening(heading, (WIDTH, page), FRAME.font);
    let across = passes.iter().map(|(task, name)| (x(*task), (*name).to_owned()));
    FRAME.horizontal(&mut out, across, "tasks of a step, in their order");
    FRAME.vertical(&mut out, y.ticks().into_iter().map(|value| (y.at(value), significant(value))), "memory, MiB");
    let mut below = vec![0.0; tasks];
    for (number, part) in parts.iter().enumerate() {
        let above: Vec<f64> = (0..tasks)
            .map(|task| below[task] + part.bytes.get(task).map_or(0.0, |bytes| *bytes as f64 / MIB))
            .collect();
        // Steps: to the right along the upper edge, and back along the lower one.
        let edge = |values: &[f64]| -> Vec<(f64, f64)> {
            let runs = values.chunk_by(|a, b| a == b).scan(0, |task, run| {
                let from = *task;
                *task += run.len();
                Some([(x(from), y.at(run[0])), (x(*task), y.at(run[0]))])
            });
            runs.flatten().collect()
        };
        let (upper, lower) = (edge(&above), edge(&below));
        let outline = points(upper.into_iter().chain(lower.into_iter().rev()));
        let colour = COLOURS[number % COLOURS.len()];
        let _ = writeln!(
            out,
            "<polygon points=\"{outline}\" fill=\"{colour}\" fill-opacity=\"0.75\" data-series=\"{number}\"/>"
        );
        // The legend in the order of the areas.
        let down = FRAME.top + LINE * (parts.len() - number) as f64;
        let (left, name) = (FRAME.right + 16.0, escaped(&part.name));
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\" fill-opacity=\"0.75\"/>\
             <text x=\"{}\" y=\"{down}\">{name}</text>",
            down - 10.0,
            left + 18.0
        );
        below = above;
    }
    let (x, level) = ((x(peak) + x(peak + 1)) / 2.0, y.at(most));
    let _ = writeln!(
        out,
        "<circle cx=\"{x:.1}\" cy=\"{level:.1}\" r=\"3\" fill=\"#000000\"/><text x=\"{}\" y=\"{}\">most: {} MiB</text>",
        FRAME.right + 16.0,
        FRAME.top + LINE * (parts.len() + 2) as f64,
        significant(most)
    );
    out + "</svg>\n"
}
