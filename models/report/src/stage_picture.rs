//! Prints a schedule of pipeline stages as text: a line for each stage, time to the right.

use std::ops::Range;

use lockstep_models::pipeline::makespan;
use lockstep_models::{PipelinePass, PipelineStep};

/// Columns of time at most.
const WIDTH: usize = 96;
/// Columns of a pass, on average, below which the end of a step is cut off instead.
const NARROWEST: f64 = 2.0;
/// Lines of stages at most.
const MAX_LINES: usize = 32;

/// What the characters of [`stage_picture`] mean.
pub const STAGE_LEGEND: &str =
    "a line per stage, time to the right; 0 to 9: forward pass of micro-batch 0 to 9; a to j: its backward pass;
A to J: its weight pass, if it has one; all repeat from micro-batch 10; dot: the stage is idle";

/// A line for each stage: `spans` are the times of the steps of `lists`, in ticks.
///
/// A column shows what happens in its middle, so a pass shorter than a column may be missing. A long step ends in `…`.
///
/// ```
/// # use lockstep_models::{PipelineSchedule, pipeline};
/// # use lockstep_report::stage_picture;
/// let lists = PipelineSchedule::OneForwardOneBackward.lists(2, 1).unwrap();
/// let spans = pipeline::times(&lists, 1, |_, _| 1).unwrap();
/// let picture = stage_picture(&lists, &spans);
/// // Four ticks on 96 columns: forward, two ticks of waiting, backward.
/// assert!(picture.lines().next().unwrap().ends_with(&format!("{}{}", ".".repeat(48), "a".repeat(24))));
/// ```
pub fn stage_picture(lists: &[Vec<PipelineStep>], spans: &[Vec<Range<u64>>]) -> String {
    let end = makespan(spans) as f64;
    let busy = |spans: &Vec<Range<u64>>| spans.iter().map(|span| (span.end - span.start) as f64).sum::<f64>();
    let passes = lists.iter().map(Vec::len).max().unwrap_or(0);
    let pass = spans.iter().map(busy).fold(0.0, f64::max) / passes as f64;
    let column = (end / WIDTH as f64).min(pass / NARROWEST);
    if column.is_nan() || column <= 0.0 {
        return String::new(); // nothing takes any time
    }
    let number = lists.len().saturating_sub(1).to_string().len();
    let line = |(stage, (list, spans)): (usize, (&Vec<PipelineStep>, &Vec<Range<u64>>))| {
        let columns = (0..WIDTH).map(|index| (index as f64 + 0.5) * column).take_while(|middle| *middle < end);
        let shown: String = columns.map(|middle| at(middle, list, spans)).collect();
        let more = if WIDTH as f64 * column < end * (1.0 - 1e-9) { "…" } else { "" };
        format!("stage {stage:number$}  {shown}{more}\n")
    };
    let mut text: String = lists.iter().zip(spans).enumerate().take(MAX_LINES).map(line).collect();
    if lists.len() > MAX_LINES {
        text.push_str(&format!("… and {} stages more\n", lists.len() - MAX_LINES));
    }
    text
}

/// The character of the step that runs at a time.
fn at(time: f64, list: &[PipelineStep], spans: &[Range<u64>]) -> char {
    let after = spans.partition_point(|span| span.end as f64 <= time);
    match (list.get(after), spans.get(after)) {
        (Some(step), Some(span)) if span.start as f64 <= time => {
            let first = match step.pass {
                PipelinePass::Forward => b'0',
                PipelinePass::Backward => b'a',
                PipelinePass::Weight => b'A',
            };
            char::from(first + (step.micro_batch % 10) as u8)
        }
        _ => '.',
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::PipelineSchedule;
    use lockstep_models::pipeline::times;

    use super::*;

    fn picture(schedule: PipelineSchedule, stages: u32, micro_batches: u32) -> String {
        let lists = schedule.lists(stages, micro_batches).unwrap();
        let both = if schedule.passes().contains(&PipelinePass::Weight) { 1 } else { 2 };
        let spans =
            times(&lists, schedule.chunks(), |_, pass| if pass == PipelinePass::Backward { both } else { 1 }).unwrap();
        stage_picture(&lists, &spans)
    }

    #[test]
    fn passes_are_as_wide_as_they_are_long() {
        // (3 + 1) · (1 + 2) ticks on 96 columns: 8 columns a tick.
        let wide = |ticks: &str| ticks.chars().map(|tick| tick.to_string().repeat(8)).collect::<String>();
        let expected = format!("stage 0  {}\nstage 1  {}\n", wide("01..aa2bb.cc"), wide(".0aa1bb2cc.."));
        assert_eq!(picture(PipelineSchedule::OneForwardOneBackward, 2, 3), expected);
        // 3 · (1 + 1 + 1) + (1 + 1 − 1) ticks.
        let shown = picture(PipelineSchedule::ZeroBubbleH1, 2, 3);
        let order = |line: &str| {
            let mut line: Vec<char> = line.chars().skip("stage 0  ".len()).collect();
            line.dedup();
            line.into_iter().collect::<String>()
        };
        assert_eq!(shown.lines().map(order).collect::<Vec<_>>(), ["01.aA2bBcC", ".0a1bA2cBC"]);
    }

    #[test]
    fn long_and_wide_schedules_are_truncated() {
        let shown = picture(PipelineSchedule::GPipe, 40, 1000);
        assert!(shown.lines().take(32).all(|line| line.ends_with('…')));
        assert!(shown.ends_with("… and 8 stages more\n") && shown.lines().count() == 33);
        let lists = PipelineSchedule::GPipe.lists(2, 2).unwrap();
        assert_eq!(stage_picture(&lists, &times(&lists, 1, |_, _| 0).unwrap()), "");
        assert_eq!(stage_picture(&[], &[]), "");
        // Times that end at 2^64 - 1 ticks.
        assert!(!stage_picture(&lists, &times(&lists, 1, |_, _| u64::MAX).unwrap()).is_empty());
    }
}
