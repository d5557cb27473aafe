//! Times every task of a program's worker by itself: each phase of each chain, the update, the load; never two in a row.

use std::sync::Arc;

use lockstep_exec::Arenas;
use lockstep_exec::data::Dataset;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_models::memory::Reuse;
use lockstep_models::{Op, Program};
use lockstep_sim::{ComputeEntry, Point, chain_key};

use super::bench::{Figure, Turns};

/// A rank's replica and the samples that it loads.
struct Rank {
    replica: Replica,
    indices: Vec<u32>,
}

/// Figures of one program's tasks, in task order.
pub(super) struct Layers {
    pub(super) compute: Vec<ComputeEntry>,
    pub(super) update: Vec<Point>,
    pub(super) load: Vec<Point>,
}

/// The tasks that are timed.
fn tasks(program: &Program) -> Vec<&Op> {
    let ops = program.roles[0].tasks.iter().map(|task| &task.op);
    ops.filter(|op| matches!(op, Op::Load { .. } | Op::Compute { .. } | Op::Update { .. })).collect()
}

/// The tasks of `program`, which has one worker, as operations that take turns.
pub(super) fn turns<'a>(program: &'a Program, data: &'a Dataset, repetitions: usize) -> Turns<'a> {
    let tasks = Arc::new(tasks(program));
    let samples = program.batch_per_rank;
    let (filled, prepared) = (tasks.clone(), tasks.clone());
    let make = move || {
        // Tasks run alone and in any order, so what one reads no other may have overwritten.
        let apart = Arenas { reuse: Reuse::InPlace, ..Arenas::default() };
        let replica = Replica::of_role(program, &program.roles[0], &apart, 1, &Threads::one());
        let mut rank = Rank { replica, indices: (0..samples).map(|i| i % data.len() as u32).collect() };
        filled.iter().for_each(|op| run(&mut rank, op, data)); // fills what backward passes read
        rank
    };
    let prepare = move |rank: &mut Rank, task: usize| match prepared[task] {
        Op::Compute { chain, phase, .. } => rank.replica.warm_inputs(*chain, *phase),
        Op::Update { range } => rank.replica.warm_gradients(range.start as usize..range.end as usize),
        _ => {}
    };
    Turns::new(tasks.len(), repetitions, make, prepare, move |rank, task| run(rank, tasks[task], data))
}

/// What the figures of a program's [`turns`] say.
pub(super) fn read(program: &Program, figures: Vec<Figure>) -> Layers {
    let mut layers = Layers { compute: Vec::new(), update: Vec::new(), load: Vec::new() };
    for (op, Figure { seconds, slowdown }) in tasks(program).into_iter().zip(figures) {
        match op {
            Op::Load { samples, .. } => {
                let elements = u64::from(*samples) * program.model.input().elements();
                layers.load.push(Point { elements, seconds, slowdown });
            }
            Op::Update { range } => layers.update.push(Point { elements: range.end - range.start, seconds, slowdown }),
            Op::Compute { chain, phase, samples, .. } => layers.compute.push(ComputeEntry {
                chain: chain_key(program, *chain),
                phase: phase.name().to_owned(),
                samples: *samples,
                seconds,
                slowdown,
            }),
            _ => {}
        }
    }
    layers
}

/// Runs a task.
///
/// # Panics
/// Never on the CPU, which refuses nothing.
fn run(rank: &mut Rank, op: &Op, data: &Dataset) {
    rank.replica.alone(op, data, &rank.indices).expect("the CPU refuses nothing");
}
