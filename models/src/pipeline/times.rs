//! Times the steps of a pipeline's stages: each begins as soon as its stage is free and what it waits for is done.

use std::collections::BTreeMap;
use std::ops::Range;

use lockstep_topology::InputError;

use super::{PipelinePass, PipelineStep};

/// When each step of `lists` runs, in ticks, if a pass through a chunk takes `ticks` and messages take no time.
///
/// `chunks` are those of one stage. It is the longest path to each step over the order of its stage and
/// [`PipelineStep::waits_for`]. Times beyond 2⁶⁴ ticks end there.
///
/// # Errors
/// Steps that wait for each other, or for one that no list has; the first stage that stops is named.
pub fn times(
    lists: &[Vec<PipelineStep>],
    chunks: u32,
    ticks: impl Fn(u32, PipelinePass) -> u64,
) -> Result<Vec<Vec<Range<u64>>>, InputError> {
    let all = chunks.saturating_mul(lists.len() as u32);
    let mut ends: BTreeMap<PipelineStep, u64> = BTreeMap::new();
    let mut waiting: BTreeMap<PipelineStep, Vec<usize>> = BTreeMap::new();
    let mut spans: Vec<Vec<Range<u64>>> = lists.iter().map(|list| Vec::with_capacity(list.len())).collect();
    let mut ready: Vec<usize> = (0..lists.len()).rev().collect();
    while let Some(stage) = ready.pop() {
        while let Some(step) = lists[stage].get(spans[stage].len()) {
            let begin = match step.waits_for(all) {
                None => 0,
                Some(before) => match ends.get(&before) {
                    Some(end) => *end,
                    None => {
                        waiting.entry(before).or_default().push(stage);
                        break;
                    }
                },
            };
            let begin = begin.max(spans[stage].last().map_or(0, |span| span.end));
            let end = begin.saturating_add(ticks(step.chunk, step.pass));
            spans[stage].push(begin..end);
            ends.insert(*step, end);
            ready.extend(waiting.remove(step).unwrap_or_default());
        }
    }
    let stopped = (0..lists.len()).find(|stage| spans[*stage].len() < lists[*stage].len());
    stopped.map_or(Ok(()), |stage| Err(stop(lists, all, stage, &spans)))?;
    Ok(spans)
}

/// The error where `stage` stops at the step that follows its last span, or where the stages stop that it waits for.
fn stop(lists: &[Vec<PipelineStep>], all: u32, mut stage: usize, spans: &[Vec<Range<u64>>]) -> InputError {
    let first = |stage: usize| lists[stage][spans[stage].len()];
    loop {
        let step = first(stage);
        let before = step.waits_for(all).unwrap_or(step);
        let holder = lists.iter().zip(spans).position(|(list, spans)| list[spans.len()..].contains(&before));
        let why = match holder {
            None => "which no list has: add it to its stage's".to_owned(),
            Some(holder) if holder == stage => "which comes later in the same list: change the order".to_owned(),
            Some(holder) if first(holder) == before => {
                stage = holder; // steps do not wait in a circle, so this ends
                continue;
            }
            Some(holder) => {
                let first = first(holder);
                format!("which stage {holder} has only after its {first}, and that waits too: change the order")
            }
        };
        let message = format!("waits forever for the {before}, {why}");
        return InputError::new(format!("stage {stage}"), step.to_string(), message);
    }
}

/// The end of the last step, in ticks; 0 where there is none.
pub fn makespan(spans: &[Vec<Range<u64>>]) -> u64 {
    spans.iter().flatten().map(|span| span.end).max().unwrap_or(0)
}

/// By stage: the share of the whole time in which it is idle, from 0 to 1.
///
/// With equal stages it is the bubble: (s − 1) / (m + s − 1) of s stages over m micro-batches (Huang et al. 2019 §2.3,
/// Narayanan et al. 2021 §2.2.1).
///
/// ```
/// # use lockstep_models::{PipelineSchedule, pipeline};
/// let lists = PipelineSchedule::GPipe.lists(4, 12).unwrap();
/// let spans = pipeline::times(&lists, 1, |_, _| 10).unwrap();
/// assert_eq!(pipeline::makespan(&spans), (12 + 3) * 20);
/// assert_eq!(pipeline::idle_shares(&spans), [0.2; 4]);
/// ```
pub fn idle_shares(spans: &[Vec<Range<u64>>]) -> Vec<f64> {
    let whole = makespan(spans);
    let busy = |spans: &Vec<Range<u64>>| spans.iter().map(|span| span.end - span.start).sum::<u64>();
    let share = |spans| if whole == 0 { 0.0 } else { (whole - busy(spans)) as f64 / whole as f64 };
    spans.iter().map(share).collect()
}
