//! Reports the device memory that training a model needs: with a buffer per tensor, as planned, and the least that is
//! live at once.

use lockstep_exec::device::cpu::{Threads, workspace_bytes};
use lockstep_models::memory::{Activations, Content, Memory, Plan, Reuse, live_by_task};
use lockstep_models::{Job, Op, Program};
use lockstep_report::{MemoryPart, MemoryRow, memory_chart};
use lockstep_topology::{Bytes, ErrorPlace, InputError};

/// The size that Koliousis et al. 2019, §4.5, give for the outputs of ResNet-50's operators, without the batch: 7.5 GB,
/// in the units in which they call its 25.5 million parameters 97.5 MB.
const CROSSBOW_BYTES: f64 = 7.5 * (1u64 << 30) as f64;

/// The rows of `models show --memory` for a job of one rank, and notes on them.
///
/// # Errors
/// A batch without samples, sizes that overflow, settings that drop no activations.
pub fn rows(job: &Job) -> Result<(Vec<MemoryRow>, Vec<String>), InputError> {
    let (model, batch) = (&job.model, job.batch_per_rank);
    let program = |fuse: bool, batch: u32| Job { fuse, batch_per_rank: batch, ..job.clone() }.program();
    let at_batch = |error: InputError| match error.place {
        ErrorPlace::Flag("recompute") => error,
        _ => error.at(ErrorPlace::Flag("batch")),
    };
    let apart = program(false, batch).map_err(at_batch)?;
    let of = |program: &Program| Activations::of_role(program, &program.roles[0]);
    let fused = program(true, batch)?;
    let (operators, planned) = (of(&apart), of(&fused));
    let memory = Memory::of_role(&fused, 0, states(job))?;
    let scratch = workspace_bytes(&fused, &Threads::one()) as u64;
    let same = |part: &str, bytes: u64| row(part, [bytes; 3]);
    let mut rows = vec![
        same("weights", memory.weights),
        same("gradients", memory.gradients),
        same("optimizer", memory.optimizer),
        same("input", memory.input),
        row("activations", [operators.unplanned, planned.planned, planned.live]),
        same("scratch", scratch),
    ];
    let total = |of: fn(&MemoryRow) -> u64| rows.iter().map(of).sum();
    rows.push(row(
        "total",
        [total(|row| row.unplanned_bytes), total(|row| row.planned_bytes), total(|row| row.live_bytes)],
    ));

    let saved = |of: u64| 100.0 * (1.0 - of as f64 / operators.unplanned as f64);
    let arena = Plan::of_role(&fused, &fused.roles[0], Reuse::Full).bytes as u64;
    let mut notes = vec![
        format!(
            "unplanned, each of {} tensors (outputs, gradients, masks of operators that are not fused) has a buffer of its own; \
             the plan saves {:.1} % of that, and {:.1} % where layers are fused",
            operators.tensors,
            saved(operators.planned),
            saved(planned.planned)
        ),
        format!("learners of a device take turns on arenas of {}; the rest each has for itself", Bytes(arena)),
    ];
    if model.name() == "resnet-50" {
        let per_sample = |batch: u32| program(false, batch).map(|program| of(&program).unplanned as f64);
        // Tensors are aligned to cache lines, so bytes are not exactly proportional.
        let first = (CROSSBOW_BYTES / per_sample(64)? * 64.0).round().max(1.0) as u32;
        notes.push(format!(
            "Koliousis et al. 2019, §4.5: 7.5 GB for the outputs of 384 operators, up to 50 % of it saved; here {} tensors take \
             {:.2} GiB at a batch of {first}",
            operators.tensors,
            per_sample(first)? / f64::from(1 << 30)
        ));
    }
    Ok((rows, notes))
}

/// The memory of a job of one rank over the tasks of a step, from below: what stays, and what comes and goes.
///
/// # Errors
/// As of [`rows`].
pub fn picture(job: &Job) -> Result<String, InputError> {
    let program = job.program()?;
    let (memory, role) = (Memory::of_role(&program, 0, states(job))?, &program.roles[0]);
    let live = live_by_task(&program, role);
    let stays = |name: &str, bytes: u64| (name.to_owned(), vec![bytes; role.tasks.len()]);
    let scratch = workspace_bytes(&program, &Threads::one()) as u64;
    let mut parts = vec![
        stays("weights", memory.weights),
        stays("gradients", memory.gradients),
        stays("optimizer state", memory.optimizer),
        stays("input and scratch", memory.input + scratch),
    ];
    let of_content = |content: Content| live.iter().map(|at| at[content as usize]).collect();
    parts.push(("kept by kernels".to_owned(), of_content(Content::Kept)));
    parts.push(("activations".to_owned(), of_content(Content::Output)));
    parts.push(("their gradients".to_owned(), of_content(Content::Gradient)));
    let parts: Vec<MemoryPart> = parts.into_iter().map(|(name, bytes)| MemoryPart { name, bytes }).collect();
    let first = |wanted: &dyn Fn(&Op) -> bool| role.tasks.iter().position(|task| wanted(&task.op));
    let is_backward = |op: &Op| matches!(op, Op::Compute { phase, .. } if !phase.makes_outputs());
    let passes = [
        ("forward", first(&|op| matches!(op, Op::Compute { .. }))),
        ("backward", first(&is_backward)),
        ("update", role.tasks.iter().rposition(|task| is_backward(&task.op)).map(|last| last + 1)),
    ];
    let passes: Vec<(usize, &str)> = passes.into_iter().filter_map(|(name, at)| Some((at?, name))).collect();
    let again = job.recompute.any().map_or_else(String::new, |of| format!(", recompute {of}"));
    let heading = format!("{}: memory of a step, batch {}{again}", job.model.name(), job.batch_per_rank);
    Ok(memory_chart(&heading, &parts, &passes))
}

/// What the optimizer keeps for each parameter.
fn states(job: &Job) -> u64 {
    job.rule.states().len() as u64
}

fn row(part: &str, [unplanned_bytes, planned_bytes, live_bytes]: [u64; 3]) -> MemoryRow {
    MemoryRow { part: part.to_owned(), unplanned_bytes, planned_bytes, live_bytes }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Never below what is live, never above a buffer per tensor, for every model and variant.
    #[test]
    fn zoo_plans_are_between_live_and_unplanned_memory() {
        for name in lockstep_readers::zoo() {
            let model = Arc::new(lockstep_readers::load_model(&name).expect("a model of the zoo"));
            // Decoders take tokens, and more memory than these bounds were made for.
            if model.tokens().is_some() {
                continue;
            }
            let (rows, notes) = rows(&Job::new(Arc::clone(&model), 1, 4)).expect("a batch of four");
            for row in &rows {
                assert!(
                    row.live_bytes <= row.planned_bytes && row.planned_bytes <= row.unplanned_bytes,
                    "{name}: {row:?}"
                );
            }
            let activations = rows.iter().find(|row| row.part == "activations").expect("a row of them");
            assert!(activations.planned_bytes < activations.unplanned_bytes, "{name}");
            // A greedy plan of these DAGs is nearly as small as possible.
            assert!(
                activations.planned_bytes as f64 <= 1.25 * activations.live_bytes as f64,
                "{name}: {activations:?}"
            );
            assert_eq!(notes.len(), if model.name() == "resnet-50" { 3 } else { 2 }, "{name}");
        }
    }
}
