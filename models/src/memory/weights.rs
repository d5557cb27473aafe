//! Places gathered parameters: buckets that are in use at different times share memory (Rajbhandari et al. 2020 §5.3).
//!
//! A bucket lives from the copy of a rank's own part to the last layer that reads it, once for forward and once for
//! backward passes. Copies and layers are on one stream, and layers wait for the gather between them, so no message
//! arrives outside of these lifetimes.

use std::ops::Range;

use crate::{Buffer, Op, Phase, Program, Role, TaskId};

use super::LINE_BYTES;
use super::arrange::{Allocation, arrange};
use super::element_addresses::{ElementAddresses, padding_by_end};
use super::gradients::{merged, parameters_of};
use super::plan::Reuse;

impl ElementAddresses {
    /// The gathered parameters of the ranks of a role: none where they keep all; in their order, unless `reuse` lets
    /// buckets share places.
    pub(super) fn of_weights(program: &Program, (role, rank): (&Role, u32), reuse: Reuse) -> ElementAddresses {
        let apart = ElementAddresses::of(program, (role, rank), Buffer::Weights);
        let shares = matches!(reuse, Reuse::Shared | Reuse::Counted | Reuse::Full) && apart.elements() > 0;
        let sharing = if shares { sharing(program, role) } else { None };
        sharing.filter(|sharing| sharing.elements() < apart.elements()).unwrap_or(apart)
    }
}

/// Buckets in memory that earlier ones have freed; `None` where layers read what no copy has begun.
fn sharing(program: &Program, role: &Role) -> Option<ElementAddresses> {
    let (padding_by_end, dtype) = (padding_by_end(program, role, Buffer::Weights), program.dtype(Buffer::Weights));
    let lives = merged(uses(program, role));
    let storage = |(range, tasks): &(Range<u64>, Vec<TaskId>)| {
        let padding = padding_by_end.get(&range.end).copied().unwrap_or(0);
        let bytes = dtype.bytes(range.end - range.start + padding).next_multiple_of(LINE_BYTES);
        let mut lives = lives_of(role, range, tasks)?.into_iter();
        let (first, last) = lives.next()?;
        let again = lives.reduce(|a, b| (a.0, b.1));
        Some(Allocation { bytes, first, last, again })
    };
    let pieces: Vec<Allocation> = lives.iter().map(storage).collect::<Option<_>>()?;
    let arrangement = arrange(&pieces);
    let place = |((range, _), offset): (&(Range<u64>, _), &u64)| {
        (range.start as usize..range.end as usize, dtype.elements_within(*offset) as usize)
    };
    let elements = dtype.elements_within(arrangement.bytes) as usize;
    let pieces = lives.iter().zip(&arrangement.offsets).map(place).collect();
    Some(ElementAddresses::new(pieces, elements, program.model.parameter_elements() as usize))
}

/// Ranges of gathered parameters with the tasks that copy, gather or read them, by their start.
fn uses(program: &Program, role: &Role) -> Vec<(Range<u64>, TaskId)> {
    let mut uses = Vec::new();
    for (id, task) in role.tasks.iter().enumerate() {
        match &task.op {
            Op::Compute { chain, phase, .. } if reads(program, *chain, *phase) => {
                uses.extend(parameters_of(program, *chain).map(|range| (range, id)));
            }
            Op::Exchange(exchange) if exchange.buffer == Buffer::Weights => uses.push((exchange.range.clone(), id)),
            Op::Elementwise(of) if of.formula.writes(Buffer::Weights) => uses.push((of.range.clone(), id)),
            _ => {}
        }
    }
    uses.retain(|(range, _)| range.start < range.end);
    uses.sort_by_key(|(range, task)| (range.start, range.end, *task));
    uses
}

/// Whether a phase of a chain reads parameters: the gradient of a layer's own parameters does not need them.
fn reads(program: &Program, chain: usize, phase: Phase) -> bool {
    let behind = || program.chains[chain].iter().skip(1);
    phase != Phase::BackwardWeight || behind().any(|id| !program.model.node(*id).parameters.is_empty())
}

/// The lifetimes of `range`, as first and last tasks, in which all of it must be in memory; each part begins with
/// copies of all of it.
fn lives_of(role: &Role, range: &Range<u64>, tasks: &[TaskId]) -> Option<Vec<(TaskId, TaskId)>> {
    let mut tasks = tasks.to_vec();
    tasks.sort_unstable();
    tasks.dedup();
    // By part: its first and last task, and the elements that are copied in it.
    let mut parts: Vec<(TaskId, TaskId, u64)> = Vec::new();
    let mut has_read = true;
    for id in tasks {
        match (&role.tasks[id].op, parts.last_mut()) {
            (Op::Elementwise(of), _) if has_read => {
                parts.push((id, id, of.range.end - of.range.start));
                has_read = false;
            }
            (op, Some((_, last, copied))) => {
                *last = id;
                match op {
                    Op::Elementwise(of) => *copied += of.range.end - of.range.start,
                    op => has_read |= matches!(op, Op::Compute { .. }),
                }
            }
            (_, None) => return None,
        }
    }
    let mut lives: Vec<(TaskId, TaskId)> = Vec::new();
    for (first, last, copied) in parts {
        match lives.last_mut() {
            // A part that is read without a copy of its own has been kept.
            Some(life) if copied < range.end - range.start => life.1 = last,
            _ => lives.push((first, last)),
        }
    }
    Some(lives)
}
