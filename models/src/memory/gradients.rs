//! Where the gradients of parameters lie: buckets whose lives do not meet share a place (Rajbhandari et al. 2020 §5.2).
//!
//! A bucket's gradients live from the first backward pass that writes them to the update that uses them up. Where updates follow the
//! whole backward pass all lives meet, and the arena is the parameters' own: the same offsets, the same size.

use std::ops::Range;

use crate::{Area, Buffer, Op, Phase, Program, Role, Stream, TaskId};

use super::arrange::{Storage, arrange, live_bytes};
use super::plan::Reuse;
use super::{ELEMENT_BYTES, LINE_BYTES};

/// Parameters whose gradients are made, exchanged and used up together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientLife {
    /// Elements of the parameter arena.
    pub range: Range<u64>,
    /// The task of the role that writes the first of them.
    pub first: TaskId,
    /// The update that uses them up.
    pub last: TaskId,
}

/// Where in the gradient arena the gradient of each parameter lies.
///
/// Ranges are fp32 elements. A range that a task names lies in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gradients {
    /// Ranges of the parameters in ascending order, each with where it begins in the arena.
    pieces: Vec<(Range<usize>, usize)>,
    elements: usize,
}

impl Gradients {
    /// An arena of `elements` elements in which each gradient lies where its parameter does.
    pub fn as_parameters(elements: u64) -> Gradients {
        let elements = elements as usize;
        let all = 0..elements;
        Gradients { pieces: vec![(all, 0)], elements }
    }

    /// The arena of the ranks of a role: as the parameters lie, unless `reuse` lets tensors share places and that takes less.
    pub fn of_role(program: &Program, role: &Role, reuse: Reuse) -> Gradients {
        let parameters = program.model.parameter_elements();
        let shares = matches!(reuse, Reuse::Shared | Reuse::Counted | Reuse::Full);
        let lives = lives(program, role).filter(|_| shares);
        lives.and_then(|lives| Gradients::sharing(&lives, parameters)).unwrap_or(Gradients::as_parameters(parameters))
    }

    /// Those lives arranged; nothing where they take as much as the parameters.
    fn sharing(lives: &[GradientLife], parameters: u64) -> Option<Gradients> {
        let storage = |life: &GradientLife| Storage {
            bytes: ((life.range.end - life.range.start) * ELEMENT_BYTES).next_multiple_of(LINE_BYTES),
            first: life.first,
            last: life.last,
        };
        let pieces: Vec<Storage> = lives.iter().map(storage).collect();
        let all = parameters * ELEMENT_BYTES;
        if live_bytes(&pieces) >= all {
            return None;
        }
        let arrangement = arrange(&pieces);
        let place = |(life, offset): (&GradientLife, &u64)| {
            (life.range.start as usize..life.range.end as usize, (offset / ELEMENT_BYTES) as usize)
        };
        let elements = (arrangement.bytes / ELEMENT_BYTES) as usize;
        let pieces = lives.iter().zip(&arrangement.offsets).map(place).collect();
        (arrangement.bytes < all).then_some(Gradients { pieces, elements })
    }

    /// Elements of the arena.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Where the gradients of the parameters `range` lie, which are of one task.
    ///
    /// # Panics
    /// When no task names the range: parts of it lie apart.
    pub fn place(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let at = self.pieces.partition_point(|(piece, _)| piece.end <= range.start);
        let within = self.pieces.get(at).filter(|(piece, _)| piece.start <= range.start && range.end <= piece.end);
        let Some((piece, start)) = within else { panic!("gradients {range:?} do not lie in one piece") };
        start + range.start - piece.start..start + range.end - piece.start
    }

    /// Where elements `range` lie in `buffer`, whose elements are numbered as parameters are; only gradients lie elsewhere.
    ///
    /// # Panics
    /// As [`Gradients::place`].
    pub fn place_in(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        if buffer == Buffer::Gradients { self.place(range) } else { range.clone() }
    }
}

/// The lives of all gradients of a role, in ascending order of their parameters: the smallest ranges that no task cuts in two. Nothing
/// where some are needed for longer than from a backward pass to an update of the same iteration.
pub fn lives(program: &Program, role: &Role) -> Option<Vec<GradientLife>> {
    let uses = uses(program, role)?;
    let mut lives: Vec<(Range<u64>, Vec<TaskId>)> = Vec::new();
    for (range, task) in uses {
        match lives.last_mut() {
            Some((life, tasks)) if range.start < life.end => {
                life.end = life.end.max(range.end);
                tasks.push(task);
            }
            _ => lives.push((range, vec![task])),
        }
    }
    let life = |(range, tasks): (Range<u64>, Vec<TaskId>)| {
        let (first, last) = (*tasks.iter().min()?, *tasks.iter().max()?);
        let begins = matches!(role.tasks[first].op, Op::Compute { .. });
        let ends = matches!(role.tasks[last].op, Op::Update { .. });
        // What no update has waited for may still be on its way when the next bucket is written.
        let awaited = |exchange: &TaskId| {
            tasks.iter().any(|task| {
                let Op::Update { .. } = role.tasks[*task].op else { return false };
                role.tasks[*task].after.iter().any(|after| after.task == *exchange && after.lag == 0)
            })
        };
        let mut exchanges = tasks.iter().filter(|task| matches!(role.tasks[**task].op, Op::Exchange(_)));
        (begins && ends && exchanges.all(awaited)).then_some(GradientLife { range, first, last })
    };
    lives.into_iter().map(life).collect()
}

/// Ranges of gradients with the tasks that write, exchange or use them up, by their start. Nothing where tasks repeat, run beside the
/// compute stream, or name gradients in formulas and copies, and where ranks share layers.
fn uses(program: &Program, role: &Role) -> Option<Vec<(Range<u64>, TaskId)>> {
    // Ranks that share layers pass through them several times in a step, and add up what the passes give.
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
            Op::Update { .. } if task.stream != Stream::Compute => return None,
            Op::Update { range, .. } => uses.push((range.clone(), id)),
            Op::Exchange(exchange) if exchange.buffer == Buffer::Gradients => uses.push((exchange.range.clone(), id)),
            Op::Elementwise(of) if of.formula.buffers().contains(&Buffer::Gradients) => return None,
            Op::Copy(copies) if is_gradients(copies.first().from) || is_gradients(copies.first().to) => return None,
            Op::Repeat { .. } | Op::Schedule(_) => return None,
            _ => {}
        }
    }
    uses.retain(|(range, _)| range.start < range.end);
    uses.sort_by_key(|(range, task)| (range.start, range.end, *task));
    // Kernels are made for chains that the role does not run, too: all of their parameters must lie somewhere.
    let mut covered = 0;
    for (range, _) in &uses {
        if range.start > covered {
            return None;
        }
        covered = covered.max(range.end);
    }
    (covered == program.model.parameter_elements()).then_some(uses)
}

/// The parameters of a chain, from its first to its last.
fn parameters_of(program: &Program, chain: usize) -> Option<Range<u64>> {
    let mut ranges = program.chains[chain].iter().flat_map(|id| &program.model.node(*id).parameters).map(|p| &p.range);
    let first = ranges.next()?;
    Some(first.start..ranges.next_back().unwrap_or(first).end)
}
