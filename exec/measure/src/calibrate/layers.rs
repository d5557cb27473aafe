//! Times every task of a role's rank by itself: each phase of each chain, the updates, the load; no task twice in a
//! row.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::Arenas;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_models::memory::Reuse;
use lockstep_models::profile::{ComputeEntry, FormulaEntry, Point};
use lockstep_models::{Elementwise, Op, Optimizer, Program, Squares};

use super::bench::Interleaving;
use super::needs::{CalibrationSubject, Need, largest_own, ops};
use super::samples::Figure;

/// A rank's replica and the samples that it loads.
struct Rank {
    replica: Replica,
    indices: Vec<u32>,
}

/// Figures of one role's tasks, in task order.
#[derive(Default)]
pub(super) struct Layers {
    pub(super) compute: Vec<ComputeEntry>,
    pub(super) update: Vec<Point>,
    pub(super) formulas: Vec<FormulaEntry>,
    pub(super) load: Vec<Point>,
    /// The figures among these that could not be measured undisturbed, by name, and those that could.
    pub(super) disturbed: Vec<(String, bool)>,
}

/// The tasks to time, one per figure. A role whose figures need an update that none of its tasks is gets one.
fn tasks(subject: &CalibrationSubject) -> Vec<(Need, Op)> {
    let CalibrationSubject { program, role, .. } = subject;
    let mut needs = Need::of_role(program, &program.roles[*role]);
    let own = ops(program, &program.roles[*role]).filter_map(|op| Some((Need::of(program, &op)?, op)));
    let mut tasks: Vec<(Need, Op)> = own.filter(|(need, _)| needs.remove(need)).collect();
    let all = largest_own(program, &program.roles[*role]);
    let whole = Need::of_update(&all);
    if needs.contains(&whole) {
        tasks.push((whole, Op::Elementwise(Elementwise::new(Optimizer::update(1.0, false), all))));
    }
    tasks
}

/// The most samples in a task.
fn most_samples(program: &Program, role: usize) -> u32 {
    let of = program.roles[role].tasks.iter().map(|task| match task.op {
        Op::Load { samples, .. } | Op::Compute { samples, .. } => samples,
        _ => 0,
    });
    of.max().unwrap_or(0)
}

/// The tasks of a role, as operations to interleave.
pub(super) fn turns(subject: &CalibrationSubject, repetitions: usize) -> Interleaving<'_> {
    let CalibrationSubject { program, role, data } = subject;
    let data: &Dataset = data;
    let tasks = Arc::new(tasks(subject));
    let samples = most_samples(program, *role);
    let prepared = tasks.clone();
    let make = move || {
        // Tasks run alone and in any order, so no task may overwrite what another reads.
        let apart = Arenas { reuse: Reuse::InPlace, ..Arenas::default() };
        let replica = Replica::of_role(program, &program.roles[*role], &apart, 1, &Threads::one());
        let mut rank = Rank { replica, indices: (0..samples).map(|i| i % data.len() as u32).collect() };
        // Fills what passes read.
        for task in &program.roles[*role].tasks {
            ready(&mut rank, &task.op, data);
            run(&mut rank, &task.op, data);
        }
        rank
    };
    let prepare = move |rank: &mut Rank, task: usize| {
        ready(rank, &prepared[task].1, data);
        match &prepared[task].1 {
            Op::Compute { chain, phase, .. } => rank.replica.warm_inputs(*chain, *phase),
            Op::Elementwise(Elementwise { range, .. }) | Op::Squares(Squares { range, .. }) => {
                rank.replica.warm_gradients(range.start as usize..range.end as usize);
            }
            _ => {}
        }
    };
    Interleaving::new(tasks.len(), repetitions, make, prepare, move |rank, task| run(rank, &tasks[task].1, data))
}

/// Converts the figures of a role's [`turns`].
pub(super) fn read(subject: &CalibrationSubject, figures: Vec<Figure>) -> Layers {
    let mut layers = Layers::default();
    for ((need, _), Figure { seconds, slowdown, disturbed }) in tasks(subject).into_iter().zip(figures) {
        layers.disturbed.push((need.to_string(), disturbed));
        match need {
            Need::Load(elements) => layers.load.push(Point { elements, seconds, slowdown }),
            Need::Update(elements) => layers.update.push(Point { elements, seconds, slowdown }),
            Need::Formula(formula, elements) => {
                layers.formulas.push(FormulaEntry { formula, elements, seconds, slowdown });
            }
            Need::Compute(chain, phase, samples) => {
                layers.compute.push(ComputeEntry { chain, phase, samples, seconds, slowdown });
            }
        }
    }
    layers
}

/// Prepares a task.
///
/// # Panics
/// Never on the CPU, which returns no errors.
fn ready(rank: &mut Rank, op: &Op, data: &Dataset) {
    rank.replica.ready(op, data, &rank.indices).expect("the CPU refuses nothing");
}

/// Runs a task.
///
/// # Panics
/// Never on the CPU, which returns no errors.
fn run(rank: &mut Rank, op: &Op, data: &Dataset) {
    rank.replica.alone(op, data, &rank.indices).expect("the CPU refuses nothing");
}

#[cfg(test)]
mod tests {
    use lockstep_models::{Bucket, Job};

    use super::*;

    /// The timed formula is over parameters whose state the rank has; their number is that of the figure.
    #[test]
    fn timed_updates_use_state_that_the_rank_has() {
        let model = Arc::new(lockstep_readers::load_model("lenet").unwrap());
        let (data, _) = Dataset::load("synthetic:20", &model).unwrap();
        for (strategy, accumulate) in [("zero-1", 1), ("zero-2", 2), ("zero-3", 1), ("zero-3", 2)] {
            let strategy = strategy.parse().unwrap();
            let job = Job { strategy, accumulate, bucket: Bucket::Layer, ..Job::new(Arc::clone(&model), 4, 4) };
            let subject = CalibrationSubject { program: job.program().unwrap(), role: 0, data: Arc::new(data.clone()) };
            let has = subject.program.updated(&subject.program.roles[0], 0);
            let mut updates = 0;
            for (_, op) in tasks(&subject) {
                let Op::Elementwise(Elementwise { range, shared, .. }) = op else { continue };
                let own = subject.program.own_part(&range, shared, 0);
                assert!(has.iter().any(|piece| piece.start <= own.start && own.end <= piece.end), "{own:?} of {has:?}");
                updates += 1;
            }
            assert!(updates > 1);
        }
    }
}
