//! Defines the order of one stage: the sequence of passes of micro-batches, and how many tasks each pass has.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{PipelinePass, PipelineStep};

/// The tasks of a pass through one chunk, which are listed once for all micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageBody {
    /// The chunk among those of all stages, from 0 in layer order.
    pub chunk: u32,
    /// Which pass.
    pub pass: PipelinePass,
    /// How many tasks.
    pub tasks: usize,
}

/// The bodies of a stage, one after the other, and the order in which they run.
///
/// A micro-batch in flight has a context: memory for its activations, from its first step to its last one.
///
/// ```
/// # use lockstep_models::{PipelinePass, PipelineSchedule, StageBody, StageOrder};
/// let steps = PipelineSchedule::OneForwardOneBackward.steps(0, 2, 3).unwrap();
/// let bodies = PipelinePass::CROSSING.map(|pass| StageBody { chunk: 0, pass, tasks: 4 }).to_vec();
/// let order = StageOrder { bodies, steps, micro_batches: 3 };
/// assert_eq!((order.tasks(), order.tasks_of(&order.steps[2])), (8, 4..8));
/// // Forward 0, forward 1, backward 0, forward 2, …: two micro-batches in flight.
/// assert_eq!((order.contexts(), order.in_flight()), (vec![0, 1, 0, 0, 1, 0], 2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageOrder {
    /// In the order of their tasks: forward passes of the stage's chunks, then backward passes, then weight passes if there
    /// are any.
    pub bodies: Vec<StageBody>,
    /// The steps, in the order in which they run.
    pub steps: Vec<PipelineStep>,
    /// Micro-batches of an iteration.
    pub micro_batches: u32,
}

impl StageOrder {
    /// Tasks of all bodies.
    pub fn tasks(&self) -> usize {
        self.bodies.iter().map(|body| body.tasks).sum()
    }

    /// The tasks of a step, counted from the first one of the first body; none of a step that has no body.
    pub fn tasks_of(&self, step: &PipelineStep) -> Range<usize> {
        let mut start = 0;
        for body in &self.bodies {
            if (body.chunk, body.pass) == (step.chunk, step.pass) {
                return start..start + body.tasks;
            }
            start += body.tasks;
        }
        0..0
    }

    /// The passes of each micro-batch through each chunk, and the number of these chunks.
    pub fn passes(&self) -> (Vec<PipelinePass>, u32) {
        let has = |pass: &PipelinePass| self.bodies.iter().any(|body| body.pass == *pass);
        let forward = self.bodies.iter().filter(|body| body.pass == PipelinePass::Forward);
        (PipelinePass::ALL.into_iter().filter(has).collect(), forward.count() as u32)
    }

    /// By step: the context of its micro-batch, the lowest that is free when the micro-batch begins.
    pub fn contexts(&self) -> Vec<u32> {
        let last: BTreeMap<u32, usize> =
            self.steps.iter().enumerate().map(|(at, step)| (step.micro_batch, at)).collect();
        let mut taken: Vec<Option<u32>> = Vec::new();
        let mut contexts = Vec::with_capacity(self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            let of = |wanted: Option<u32>| move |context: &Option<u32>| *context == wanted;
            let own = taken.iter().position(of(Some(step.micro_batch)));
            let context = own.or_else(|| taken.iter().position(of(None))).unwrap_or_else(|| {
                taken.push(None);
                taken.len() - 1
            });
            taken[context] = (last[&step.micro_batch] > at).then_some(step.micro_batch);
            contexts.push(context as u32);
        }
        contexts
    }

    /// The most micro-batches in flight at once.
    pub fn in_flight(&self) -> u32 {
        self.contexts().into_iter().max().map_or(0, |context| context + 1)
    }
}
