//! Reports the device memory that training a model needs: with a buffer per tensor, as planned, and the least that is
//! live at once.

use std::sync::Arc;

use lockstep_exec::device::cpu::{Threads, workspace_bytes};
use lockstep_models::memory::{Activations, Memory, Plan, Reuse};
use lockstep_models::{Job, Model, Program};
use lockstep_report::MemoryRow;
use lockstep_topology::{Bytes, ErrorPlace, InputError};

/// Optimizer state per parameter: momentum.
const OPTIMIZER_ELEMENTS: u64 = 1;
/// The size that Koliousis et al. 2019, §4.5, give for the outputs of ResNet-50's operators, without the batch: 7.5 GB,
/// in the units in which they call its 25.5 million parameters 97.5 MB.
const CROSSBOW_BYTES: f64 = 7.5 * (1u64 << 30) as f64;

/// The rows of `models show --memory`, and notes on them.
///
/// # Errors
/// A batch without samples, or sizes that overflow.
pub fn rows(model: &Arc<Model>, batch: u32) -> Result<(Vec<MemoryRow>, Vec<String>), InputError> {
    let program = |fuse: bool, batch: u32| Job { fuse, ..Job::new(model.clone(), 1, batch) }.program();
    let apart = program(false, batch).map_err(|error| error.at(ErrorPlace::Flag("batch")))?;
    let of = |program: &Program| Activations::of_role(program, &program.roles[0]);
    let fused = program(true, batch)?;
    let (operators, planned) = (of(&apart), of(&fused));
    let memory = Memory::of_role(&fused, 0, OPTIMIZER_ELEMENTS)?;
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

fn row(part: &str, [unplanned_bytes, planned_bytes, live_bytes]: [u64; 3]) -> MemoryRow {
    MemoryRow { part: part.to_owned(), unplanned_bytes, planned_bytes, live_bytes }
}

#[cfg(test)]
mod tests {
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
            let (rows, notes) = rows(&model, 4).expect("a batch of four");
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
