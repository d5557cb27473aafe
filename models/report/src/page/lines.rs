//! Builds the timelines of one step for a page: predicted and measured, with the tasks that differ marked.

use std::collections::BTreeMap;

use lockstep_models::{Program, Span, Stream, Timeline};
use lockstep_topology::Time;
use serde::Serialize;

/// Ranks that are shown: the first ones.
const RANKS: u32 = 2;
/// A task differs by more than this share of its measured time, and of the step.
const DIFFERS: f64 = 0.1;
const MATTERS: f64 = 0.01;

/// Timelines of a step of one configuration.
#[derive(Debug, Clone, Serialize)]
pub struct TimelineLines {
    label: String,
    sides: Vec<Side>,
    /// A text that says which bars are marked.
    differs: String,
}

#[derive(Debug, Clone, Serialize)]
struct Side {
    name: &'static str,
    step_ms: f64,
    lanes: Vec<String>,
    bars: Vec<Bar>,
}

#[derive(Debug, Clone, Serialize)]
struct Bar {
    lane: usize,
    name: String,
    kind: &'static str,
    start_ms: f64,
    end_ms: f64,
    /// The duration of the same task on the other side.
    other_ms: Option<f64>,
    differs: bool,
}

/// A task of a rank, and its repetition.
type Key = (u32, u32, u32);

impl TimelineLines {
    /// The median step of a prediction alone.
    pub fn predicted(label: &str, program: &Program, timeline: &Timeline) -> Option<TimelineLines> {
        let (side, _) = side("predicted", program, timeline)?;
        Some(TimelineLines { label: label.to_owned(), sides: vec![side], differs: String::new() })
    }

    /// The median steps of a prediction and of what was measured.
    pub fn compared(
        label: &str,
        program: &Program,
        predicted: &Timeline,
        measured: &Timeline,
    ) -> Option<TimelineLines> {
        let (mut first, of_first) = side("predicted", program, predicted)?;
        let (mut second, of_second) = side("measured", program, measured)?;
        let step_ms = second.step_ms;
        let differ = |one: f64, measured: f64| {
            let by = (one - measured).abs();
            by > DIFFERS * measured && by > MATTERS * step_ms
        };
        let all = |keys: &[Key], side: &Side| -> BTreeMap<Key, f64> {
            keys.iter().zip(&side.bars).map(|(key, bar)| (*key, bar.end_ms - bar.start_ms)).collect()
        };
        let (in_first, in_second) = (all(&of_first, &first), all(&of_second, &second));
        for (key, bar) in of_first.iter().zip(&mut first.bars) {
            bar.other_ms = in_second.get(key).copied();
            bar.differs = bar.other_ms.is_some_and(|measured| differ(bar.end_ms - bar.start_ms, measured));
        }
        for (key, bar) in of_second.iter().zip(&mut second.bars) {
            bar.other_ms = in_first.get(key).copied();
            bar.differs = bar.other_ms.is_some_and(|predicted| differ(predicted, bar.end_ms - bar.start_ms));
        }
        let differs =
            "Framed: tasks of which the prediction is more than 10 % off, and by more than 1 % of the step.".to_owned();
        Some(TimelineLines { label: label.to_owned(), sides: vec![first, second], differs })
    }
}

/// The step of median length on the first ranks, and the task of each bar; `None` where no spans were kept.
fn side(name: &'static str, program: &Program, timeline: &Timeline) -> Option<(Side, Vec<Key>)> {
    let mut steps = timeline.steps();
    steps.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    let step = *steps.get(steps.len() / 2)?;
    let ranks = program.ranks().min(RANKS);
    let mut spans: Vec<&Span> =
        timeline.spans.iter().filter(|span| span.iteration == step.iteration && span.rank < ranks).collect();
    if spans.is_empty() {
        return None;
    }
    spans.sort_by_key(|span| (span.rank, span.start, span.task, span.repetition));
    // Input tasks may begin before the step does.
    let begin = step.begin.min(spans.iter().map(|span| span.start).min()?);
    let (mut lanes, mut bars, mut keys): (Vec<String>, Vec<Bar>, Vec<Key>) = (Vec::new(), Vec::new(), Vec::new());
    for span in spans {
        let task = &program.roles[program.role_of(span.rank)].tasks[span.task as usize];
        let stream = match task.stream {
            Stream::Compute => "compute",
            Stream::Exchange | Stream::Receive | Stream::Synchronisation => "exchange",
            Stream::Read | Stream::Decode | Stream::Upload => "input",
        };
        let lane = format!("rank {} {stream}", span.rank);
        let at = lanes.iter().position(|known| *known == lane).unwrap_or_else(|| {
            lanes.push(lane);
            lanes.len() - 1
        });
        // Nanoseconds are precise enough for display.
        let ms = |time: Time| ((time - begin).as_secs_f64() * 1e9).round() * 1e-6;
        let (start_ms, end_ms) = (ms(span.start), ms(span.end));
        let (name, kind) = (task.name.clone(), task.op.kind());
        bars.push(Bar { lane: at, name, kind, start_ms, end_ms, other_ms: None, differs: false });
        keys.push((span.rank, span.task, span.repetition));
    }
    Some((Side { name, step_ms: step.seconds() * 1e3, lanes, bars }, keys))
}
