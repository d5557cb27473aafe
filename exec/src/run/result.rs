//! `Run`: holds the result of a run.

use lockstep_models::{Claim, Periodic, Program, Timeline};

use crate::error::ExecError;
use crate::exchange::ExchangeTraffic;
use crate::replica::{Evaluation, Replica};
use crate::state::State;
use lockstep_data::Dataset;

/// The result of a run.
pub struct Run {
    /// When every task ran.
    pub timeline: Timeline,
    /// Mean loss over the global batch, per step.
    pub losses: Vec<f64>,
    /// Accuracy and loss on held-out samples at the ends of the epochs that are evaluated.
    pub evaluations: Vec<Evaluation>,
    /// Messages and bytes of steps, `[from][to]`.
    pub traffic: Vec<Vec<ExchangeTraffic>>,
    /// The same for shuffles, evaluations and checkpoints together.
    pub periodic_traffic: Vec<Vec<ExchangeTraffic>>,
    /// The work between steps: shuffles where ranks hold parts of the samples, evaluations if any, checkpoints.
    pub periodic: Vec<(Periodic, Program)>,
    /// Messages of exchanges that were sent directly from a device's memory.
    pub direct_messages: u64,
    /// SHA-256 of the learnable parameters, equal on all workers; for learners, of their average model.
    pub weights_sha256: String,
    /// SHA-256 of parameters, optimizer state and every worker's batch norm statistics; for learners, also of each
    /// one's own weights.
    pub state_sha256: String,
    /// The learnable parameters; for learners, those of their average model.
    pub parameters: Vec<f32>,
    /// Which learner got which micro-batch, where learners claim them; in the order of claims.
    pub claims: Vec<Claim>,
    /// What a reader of its results must know.
    pub notes: Vec<String>,
    /// Steps since training began after which learners restarted from their average model.
    pub restarts: Vec<u64>,
    /// Steps done before this run.
    pub first: u64,
    /// Whether it ended early, because [`Observer::order`](crate::Observer::order) ordered so.
    pub stopped: bool,
    /// How far apart the processes' clocks may be in the timeline, in seconds; zero inside one process.
    pub clock_residual_s: f64,
    /// The trained replica, its running statistics averaged over workers or recomputed.
    pub(super) replica: Replica,
    /// The state from which it can resume.
    pub(super) state: State,
}

impl Run {
    /// The state from which another run can resume, also with another number of ranks.
    pub fn state(&self) -> State {
        let learners = self.state.average.is_some();
        let weights = if learners { self.state.weights.clone() } else { vec![self.parameters.clone()] };
        State { weights, ..self.state.clone() }
    }

    /// Whether the target accuracy was reached.
    pub fn is_reached(&self) -> bool {
        self.state.accuracy_monitor.is_reached()
    }

    /// Continues `prompt` by `count` tokens that the trained model draws with `seed`.
    ///
    /// # Errors
    /// As [`Replica::generate`].
    pub fn generate(&mut self, prompt: &[u32], count: usize, seed: u64) -> Result<Vec<u32>, ExecError> {
        self.replica.generate(prompt, count, seed)
    }

    /// Evaluates the trained model on held-out data.
    ///
    /// # Errors
    /// Device errors, and damaged samples.
    pub fn evaluate(&mut self, held_out: &Dataset) -> Result<Evaluation, ExecError> {
        self.replica.evaluate(held_out)
    }
}
