//! Defines the state saved during training, and rank 0's orders for the end of a step.

use std::borrow::Cow;

use lockstep_models::Claim;

use crate::replica::Evaluation;
use crate::state::State;

/// What rank 0 orders for the end of the current step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Continue with the next step.
    Continue,
    /// Save the state.
    Save,
    /// Save the state and end the run.
    SaveAndStop,
}

/// All orders; an order is sent as its index in this list.
pub(crate) const ORDERS: [Order; 3] = [Order::Continue, Order::Save, Order::SaveAndStop];

/// Memory for sending orders: each order's number, and a receive buffer for one.
pub(crate) const ORDER_ELEMENTS: [u32; 4] = [0, 1, 2, u32::MAX];

/// A training after a step; large values are borrowed from the rank's memory where the host can read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot<'a> {
    /// Steps since training began.
    pub steps: u64,
    /// The state from which the next step starts.
    pub state: State<Cow<'a, [f32]>>,
    /// The log of this run since it began or resumed.
    pub log: Log,
}

/// What a run reports beside its state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// Accuracy and loss on held-out samples at the ends of the epochs that are evaluated.
    pub evaluations: Vec<Evaluation>,
    /// Steps since training began after which learners restarted from their average model.
    pub restarts: Vec<u64>,
    /// Which learner got which micro-batch; iterations count from the run's first.
    pub claims: Vec<Claim>,
}
