//! Places the gradients of parameters: buckets with disjoint lifetimes share memory (Rajbhandari et al. 2020 §5.2).
//!
//! A bucket's gradients live from the first backward pass that writes them to the formula that consumes them: an
//! update, or the sum of micro-batches. Where these follow the whole backward pass all lifetimes overlap, and each
//! bucket has its own memory.

use std::ops::Range;

use crate::{Area, Buffer, Op, Phase, Program, Role, Stream, Task, TaskId};

use super::LINE_BYTES;
use super::arrange::{Allocation, arrange, live_bytes};
use super::element_addresses::{ElementAddresses, padding_by_end};
use super::plan::Reuse;

/// Parameters whose gradients are made, exchanged, consumed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientLife {
    /// Elements of the parameter arena.
    pub range: Range<u64>,
    /// The task of the role that writes the first of them.
    pub first: TaskId,
    /// Their consuming formula.
    pub last: TaskId,
}

impl ElementAddresses {
    /// The gradients of the ranks of a role: in their order, unless `reuse` lets buckets share memory and
    /// that takes less.
    pub fn of_gradients(program: &Program, (role, rank): (&Role, u32), reuse: Reuse) -> ElementAddresses {
        let apart = ElementAddresses::of(program, (role, rank), Buffer::Gradients);
        let shares = matches!(reuse, Reuse::Shared | Reuse::Counted | Reuse::Full);
        let shared = if shares { sharing(program, role, apart.elements()) } else { None };
        shared.unwrap_or(apart)
    }
}

/// The gradients of a role with buckets in memory that earlier ones have freed; `None` where they take as much as
/// `apart` elements do.
fn sharing(program: &Program, role: &Role, apart: usize) -> Option<ElementAddresses> {
    let lives = lives(program, role)?;
    let (padding_by_end, dtype) = (padding_by_end(program, role, Buffer::Gradients), program.dtype(Buffer::Gradients));
    let storage = |life: &GradientLife| {
        let padding = padding_by_end.get(&life.range.end).copied().unwrap_or(0);
        Allocation {
            bytes: dtype.bytes(life.range.end - life.range.start + padding).next_multiple_of(LINE_BYTES),
            first: life.first,
            last: life.last,
            again: None,
        }
    };
    let pieces: Vec<Allocation> = lives.iter().map(storage).collect();
    let all = dtype.bytes(apart as u64);
    if live_bytes(&pieces) >= all {
        return None;
    }
    let arrangement = arrange(&pieces);
    let place = |(life, offset): (&GradientLife, &u64)| {
        (life.range.start as usize..life.range.end as usize, dtype.elements_within(*offset) as usize)
    };
    let elements = dtype.elements_within(arrangement.bytes) as usize;
    let pieces = lives.iter().zip(&arrangement.offsets).map(place).collect();
    (arrangement.bytes < all)
        .then(|| ElementAddresses::new(pieces, elements, program.model.parameter_elements() as usize))
}

/// The lifetimes of all gradients of a role, in ascending order of their parameters: the smallest ranges that no task
/// cuts in two. `None` where some are needed for longer than from a backward pass to a formula of the same iteration,
/// or of the same repetition.
pub fn lives(program: &Program, role: &Role) -> Option<Vec<GradientLife>> {
    let uses = uses(program, role)?;
    let lives = merged(uses);
    let life = |(range, tasks): (Range<u64>, Vec<TaskId>)| {
        let (first, last) = (*tasks.iter().min()?, *tasks.iter().max()?);
        let begins = matches!(role.tasks[first].op, Op::Compute { .. });
        let ends = role.tasks[last].op.uses_gradients() && role.loop_of(first) == role.loop_of(last);
        // An exchange that no formula has waited for may still be in flight when the next bucket is written.
        let awaited = |exchange: &TaskId| {
            tasks.iter().any(|task| {
                let Task { op, after, .. } = &role.tasks[*task];
                op.uses_gradients() && after.iter().any(|after| after.task == *exchange && after.lag == 0)
            })
        };
        let mut exchanges = tasks.iter().filter(|task| matches!(role.tasks[**task].op, Op::Exchange(_)));
        (begins && ends && exchanges.all(awaited)).then_some(GradientLife { range, first, last })
    };
    lives.into_iter().map(life).collect()
}

/// The smallest ranges that no use cuts in two, each with its tasks; uses are given in order of their starts.
pub(super) fn merged(uses: Vec<(Range<u64>, TaskId)>) -> Vec<(Range<u64>, Vec<TaskId>)> {
    let mut merged: Vec<(Range<u64>, Vec<TaskId>)> = Vec::new();
    for (range, task) in uses {
        match merged.last_mut() {
            Some((life, tasks)) if range.start < life.end => {
                life.end = life.end.max(range.end);
                tasks.push(task);
            }
            _ => merged.push((range, vec![task])),
        }
    }
    merged
}

/// Ranges of gradients with the tasks that write, exchange or consume them, by start. `None` where formulas that name
/// them run beside the compute stream, where copies do, in the stages of a pipeline, and where ranks share layers.
fn uses(program: &Program, role: &Role) -> Option<Vec<(Range<u64>, TaskId)>> {
    // Ranks that share layers run through them several times in a step, and accumulate the gradients of the passes.
    if program.sharding.is_some() {
        return None;
    }
    let mut uses = Vec::new();
    for (id, task) in role.tasks.iter().enumerate() {
        let is_gradients = |area| area == Area::Buffer(Buffer::Gradients);
        match &task.op {
            Op::Compute { chain, phase: Phase::Backward | Phase::BackwardWeight, .. } => {
                uses.extend(parameters_of(program, *chain).map(|range| (range, id)));
            }
            Op::Exchange(exchange) if exchange.buffer == Buffer::Gradients => uses.push((exchange.range.clone(), id)),
            op @ Op::Elementwise(of) if op.uses_gradients() => match task.stream {
                Stream::Compute => uses.push((of.range.clone(), id)),
                _ => return None,
            },
            Op::Copy(copies) if is_gradients(copies.first().from) || is_gradients(copies.first().to) => return None,
            Op::Schedule(_) => return None,
            _ => {}
        }
    }
    uses.retain(|(range, _)| range.start < range.end);
    uses.sort_by_key(|(range, task)| (range.start, range.end, *task));
    // Kernels exist also for chains that the role does not run: all of their parameters need a position.
    let mut covered = 0;
    for (range, _) in &uses {
        if range.start > covered {
            return None;
        }
        covered = covered.max(range.end);
    }
    (covered == program.model.parameter_elements()).then_some(uses)
}

/// The parameters that a chain reads, from its first to its last.
pub(super) fn parameters_of(program: &Program, chain: usize) -> Option<Range<u64>> {
    let read = program.chains[chain].iter().flat_map(|id| program.model.parameters_read_by(*id));
    let mut ranges = read.map(|p| &p.range);
    let first = ranges.next()?;
    Some(first.start..ranges.next_back().unwrap_or(first).end)
}
