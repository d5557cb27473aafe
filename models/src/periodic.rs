//! Builds the programs of work between steps: shuffles of samples in memory, evaluations, checkpoints.
//!
//! Such work begins when no exchange of a step is in flight and ends before the next step begins, so its time adds to
//! that of the steps. Simulator and executor interpret the same tasks, as in a step.

mod checkpoint;
mod collect;
mod evaluation;
mod shuffle;

use lockstep_topology::Dtype;

use crate::{Averaging, Buffer, Declared, Members, Mesh, Op, Program, Role, Span, Stream, Task};

/// A kind of work that is done between some steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Periodic {
    /// Ranks that hold parts of the samples in memory redistribute them (Kumar et al. 2018 §4.1).
    Shuffle,
    /// Rank 0 evaluates the model on held-out samples.
    Evaluation,
    /// Rank 0 writes the state of the training to storage.
    Checkpoint,
}

lockstep_topology::named!(Periodic, "kind of periodic work": Shuffle = "shuffle", Evaluation = "evaluation", Checkpoint = "checkpoint");

impl Periodic {
    /// Samples in transfer from their old ranks to their new ones.
    pub const SAMPLES: Buffer = Buffer::Declared(0);
    /// Parameters of ranks that have parts of the model, and the optimizer's states where they are saved.
    pub const MODEL: Buffer = Buffer::Declared(1);
    /// Weights of learners, by rank.
    pub const WEIGHTS: Buffer = Buffer::Declared(2);
    /// Batch norm's running statistics, by rank.
    pub const STATISTICS: Buffer = Buffer::Declared(3);
    /// Reference models of devices.
    pub const REFERENCES: Buffer = Buffer::Declared(4);

    /// Whether [`Periodic::MODEL`] has the optimizer's states too.
    pub fn collects_states(self) -> bool {
        self == Periodic::Checkpoint
    }
}

/// The names of these buffers.
const BUFFERS: [&str; 5] = ["samples", "model", "weights", "statistics", "references"];

/// One run of one task of periodic work; the span's iteration is the one that follows the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodicSpan {
    /// Of which work.
    pub kind: Periodic,
    /// When the task ran, by its number in its rank's role of that program.
    pub span: Span,
}

impl Program {
    /// Samples per second over all ranks: those of a step over its seconds and its share of a shuffle.
    pub fn images_per_s(&self, step_time_s: f64, shuffle_s: Option<f64>) -> f64 {
        let every = self.partition.as_ref().and_then(|partition| partition.shuffle_every);
        let share = shuffle_s.zip(every).map_or(0.0, |(seconds, every)| seconds / f64::from(every));
        self.global_batch() as f64 / (step_time_s + share)
    }
}

impl Role {
    /// Its tasks in the order in which they run in an iteration, each with its repetition; `Repeat` is no
    /// task of its own.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, random_model};
    /// let program = Job::new(Arc::new(random_model(7, false)), 1, 8).program().unwrap();
    /// // 20 held-out samples are three micro-batches of 8.
    /// let evaluation = program.evaluation(20, 0).unwrap();
    /// let role = &evaluation.roles[0];
    /// assert_eq!(role.runs().count(), 3 * (role.tasks.len() - 1));
    /// assert_eq!(role.runs().map(|(_, repetition)| repetition).max(), Some(2));
    /// ```
    pub fn runs(&self) -> impl Iterator<Item = (usize, u32)> {
        let mut runs = Vec::new();
        let mut task = 0;
        while task < self.tasks.len() {
            match &self.tasks[task].op {
                Op::Repeat { count, body, .. } => {
                    let body = task + 1..=task + body;
                    runs.extend((0..*count).flat_map(|repetition| body.clone().map(move |task| (task, repetition))));
                    task = *body.end();
                }
                _ => runs.push((task, 0)),
            }
            task += 1;
        }
        runs.into_iter()
    }
}

/// Periodic work of a program under construction: tasks of rank 0, and those of all others.
struct Work<'a> {
    of: &'a Program,
    mesh: Mesh,
    /// Their elements, all of fp32.
    buffers: [u64; BUFFERS.len()],
    first: Vec<Task>,
    others: Vec<Task>,
}

impl<'a> Work<'a> {
    fn new(of: &'a Program) -> Work<'a> {
        Work { of, mesh: of.mesh.clone(), buffers: [0; BUFFERS.len()], first: Vec::new(), others: Vec::new() }
    }

    /// A task of rank 0 alone.
    fn first(&mut self, name: String, op: Op) -> usize {
        self.first.push(Task { name, op, stream: Stream::Compute, after: Vec::new() });
        self.first.len() - 1
    }

    /// The program, of the model and the chains of `like`.
    fn program(self, like: &Program) -> Program {
        let workers = self.of.workers();
        let roles = [("first", 0..1, self.first), ("others", 1..workers, self.others)];
        let roles = roles.into_iter().filter(|(_, ranks, _)| !ranks.is_empty()).map(|(name, ranks, tasks)| {
            let ranks = Members::range(ranks.start, ranks.end - ranks.start);
            Role { name: name.to_owned(), ranks, tasks }
        });
        work(self.of, like, self.mesh, roles.collect(), self.buffers.map(|elements| (elements, Dtype::F32)))
    }
}

/// The program of these roles, of the workers of `of` alone, with the model and the chains of `like`, and buffers of so many
/// elements of these formats.
fn work(of: &Program, like: &Program, mesh: Mesh, roles: Vec<Role>, buffers: [(u64, Dtype); BUFFERS.len()]) -> Program {
    let declared = BUFFERS.iter().zip(buffers);
    let declared = declared.map(|(name, (elements, dtype))| Declared::scratch(*name, elements).of_dtype(dtype));
    Program {
        model: like.model.clone(),
        chains: like.chains.clone(),
        roles,
        pools: vec![mesh.ranks()],
        mesh,
        machines: of.machines.clone(),
        devices: of.devices.clone(),
        batch_per_rank: of.batch_per_rank,
        precision: of.precision,
        gradients: of.gradients,
        moments: of.moments,
        rule: of.rule,
        accumulate: 1,
        buffers: declared.collect(),
        partition: None,
        transform_at: of.transform_at,
        averaging: None::<Averaging>,
        sharding: None,
    }
}
