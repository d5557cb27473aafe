//! What is kept of a training on the way, and what rank 0 orders at the end of a step.

use lockstep_models::Claim;

use crate::replica::Evaluation;
use crate::state::State;

/// What rank 0 wants done when the present step is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nothing but the next step.
    GoOn,
    /// Keep the state.
    Save,
    /// Keep the state and end the run.
    SaveAndStop,
}

/// All orders; an order travels as its place in this list.
pub(crate) const ORDERS: [Order; 3] = [Order::GoOn, Order::Save, Order::SaveAndStop];

/// Elements of the memory that orders travel in: each order's number, and a place for one that arrives.
pub(crate) const ORDER_ELEMENTS: [f32; 4] = [0.0, 1.0, 2.0, -1.0];

/// All that a training is after a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Steps since training began.
    pub steps: u64,
    /// What the next step starts from.
    pub state: State,
    /// What this run, since it began or went on, has to tell of.
    pub log: Log,
}

/// What a run has to tell of beside its state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// How the model did on held-out samples at the ends of the epochs that were to be judged.
    pub evaluations: Vec<Evaluation>,
    /// Steps since training began after which learners began again at their average model.
    pub restarts: Vec<u64>,
    /// Which learner got which micro-batch; iterations are counted from the run's first.
    pub claims: Vec<Claim>,
}
