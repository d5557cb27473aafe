//! Proves for any lists of steps that they are complete, end, add gradients in order, and hold no more activations
//! than allowed.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_topology::InputError;

use super::{PipelinePass, PipelineStep, times};

/// Checks one list for each stage, each stage with `chunks` chunks, over `micro_batches` micro-batches with `passes` each.
///
/// It proves that every pass of every micro-batch through every chunk is once in the list of its stage, that no stage
/// waits forever, and that the gradients of a chunk are added in ascending micro-batch. It returns the most
/// activations in flight by stage: pairs of a chunk and a micro-batch whose forward pass has begun and whose last
/// pass has not ended.
///
/// ```
/// # use lockstep_models::{PipelineSchedule, pipeline};
/// let schedule = PipelineSchedule::OneForwardOneBackward;
/// let mut lists = schedule.lists(4, 8).unwrap();
/// assert_eq!(pipeline::check(&lists, schedule.passes(), 1, 8).unwrap(), [4, 3, 2, 1]);
/// lists[3].swap(0, 1);
/// let error = pipeline::check(&lists, schedule.passes(), 1, 8).unwrap_err().to_string();
/// assert!(error.contains("backward of chunk 3, micro-batch 0: waits forever for the forward of chunk 3"), "{error}");
/// ```
///
/// # Errors
/// Steps of other stages, chunks, passes or micro-batches, steps that are there twice or not at all, backward or weight
/// passes of a chunk that do not ascend, stages that wait for each other. Each names the stage and the step.
pub fn check(
    lists: &[Vec<PipelineStep>],
    passes: &[PipelinePass],
    chunks: u32,
    micro_batches: u32,
) -> Result<Vec<u32>, InputError> {
    for (stage, list) in lists.iter().enumerate() {
        complete(list, (stage, lists.len()), passes, (chunks, micro_batches))?;
        ascending(list, stage)?;
    }
    times(lists, chunks, |_, _| 0)?;
    Ok(lists.iter().map(|list| in_flight(list, passes).map(|(count, _)| count).max().unwrap_or(0)).collect())
}

/// The same, where no stage may have more than `limit` activations in flight.
///
/// # Errors
/// As [`check`], and a stage that holds more; the error names the first step that does.
pub fn check_within(
    lists: &[Vec<PipelineStep>],
    passes: &[PipelinePass],
    (chunks, micro_batches): (u32, u32),
    limit: u32,
) -> Result<Vec<u32>, InputError> {
    let highest = check(lists, passes, chunks, micro_batches)?;
    for (stage, list) in lists.iter().enumerate() {
        if let Some((count, step)) = in_flight(list, passes).find(|(count, _)| *count > limit) {
            let message = format!(
                "is activation {count} in flight, and {limit} are allowed: allow {}, or use a schedule that holds fewer",
                highest[stage]
            );
            return Err(InputError::new(format!("stage {stage}"), step.to_string(), message));
        }
    }
    Ok(highest)
}

/// Whether each step of the stage is once in its list.
fn complete(
    list: &[PipelineStep],
    (stage, stages): (usize, usize),
    passes: &[PipelinePass],
    (chunks, micro_batches): (u32, u32),
) -> Result<(), InputError> {
    let refuse = |step: &PipelineStep, message: String| {
        Err(InputError::new(format!("stage {stage}"), step.to_string(), message))
    };
    let mut seen = BTreeSet::new();
    for step in list {
        let (own, owner) = (step.chunk as usize / stages, step.chunk as usize % stages);
        if own >= chunks as usize {
            let all = stages as u64 * u64::from(chunks);
            return refuse(step, format!("there are only {all} chunks, counted from 0: use a smaller one"));
        }
        if owner != stage {
            return refuse(step, format!("the chunk is that of stage {owner}: move the step there"));
        }
        if step.micro_batch >= micro_batches {
            let message = format!("there are only {micro_batches} micro-batches, counted from 0: use a smaller one");
            return refuse(step, message);
        }
        if !passes.contains(&step.pass) {
            let names: Vec<&str> = passes.iter().map(|pass| pass.name()).collect();
            return refuse(step, format!("the passes of a micro-batch are {}: leave it out", names.join(", ")));
        }
        if !seen.insert(*step) {
            return refuse(step, "is in the list twice: leave one out".to_owned());
        }
    }
    // Looks at no more than one step beyond the length of the list.
    let own = (0..chunks).map(|own| own.saturating_mul(stages as u32).saturating_add(stage as u32));
    let mut expected = own.flat_map(|chunk| {
        (0..micro_batches).flat_map(move |micro_batch| {
            passes.iter().map(move |pass| PipelineStep { micro_batch, chunk, pass: *pass })
        })
    });
    match expected.find(|step| !seen.contains(step)) {
        Some(step) => refuse(&step, "is not in the list: add it".to_owned()),
        None => Ok(()),
    }
}

/// Whether the backward passes of each chunk ascend, and its weight passes.
fn ascending(list: &[PipelineStep], stage: usize) -> Result<(), InputError> {
    let mut last: BTreeMap<(u32, PipelinePass), u32> = BTreeMap::new();
    for step in list.iter().filter(|step| step.pass != PipelinePass::Forward) {
        let before = last.insert((step.chunk, step.pass), step.micro_batch).filter(|before| *before > step.micro_batch);
        if let Some(before) = before {
            let message = format!(
                "comes after that of micro-batch {before}, and gradients are added in ascending micro-batch: change the order"
            );
            return Err(InputError::new(format!("stage {stage}"), step.to_string(), message));
        }
    }
    Ok(())
}

/// After each step of a list: the activations in flight, where forward passes come before the last of their passes.
fn in_flight(list: &[PipelineStep], passes: &[PipelinePass]) -> impl Iterator<Item = (u32, PipelineStep)> {
    let last = passes.last().copied();
    list.iter().scan(0_u32, move |count, step| {
        *count = match step.pass {
            PipelinePass::Forward => *count + 1,
            pass => count.saturating_sub(u32::from(Some(pass) == last)),
        };
        Some((*count, *step))
    })
}
