//! Holds the numbers of one step, which the coefficients of formulas name.

use crate::Multipliers;

/// One step on parameters in numbers: rate and decay of every rule, and the momentum of SGD.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// η of this step.
    pub rate: f32,
    /// The factor of the momentum buffer: m, or m·η/η_before.
    pub keep: f32,
    /// m, with which Nesterov's step looks ahead.
    pub momentum: f32,
    /// Whether the buffer includes η (Eq. 10) or not (Eq. 9).
    pub absorbed: bool,
    /// Whether the step looks ahead.
    pub nesterov: bool,
    /// λ.
    pub weight_decay: f32,
    /// Whether λ applies to batch norm's parameters too.
    pub decay_batch_norm: bool,
}

impl SgdStep {
    /// Momentum SGD at a constant rate without decay.
    pub fn plain(rate: f32, momentum: f32) -> SgdStep {
        let (keep, absorbed, nesterov) = (momentum, false, false);
        SgdStep { rate, keep, momentum, absorbed, nesterov, weight_decay: 0.0, decay_batch_norm: false }
    }

    /// The same for tensors with these multipliers.
    #[must_use]
    pub fn times(self, of: Multipliers) -> SgdStep {
        SgdStep { rate: self.rate * of.rate, weight_decay: self.weight_decay * of.decay, ..self }
    }
}

/// One step in the numbers of rules that keep moments of the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MomentStep {
    /// t: its number since training began, counted from 1.
    pub step: u64,
    /// β₁.
    pub beta1: f64,
    /// β₂.
    pub beta2: f64,
    /// ε.
    pub epsilon: f64,
}

/// The numbers of a step that coefficients name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepNumbers {
    /// Rate, decay and momentum of the optimizer.
    pub sgd: SgdStep,
    /// Its moments.
    pub moments: MomentStep,
    /// The factor that clips gradients; 1 where they are not clipped.
    pub clip: f64,
    /// Whether a repetition of this iteration came before.
    pub again: bool,
    /// Whether the shared model has moved in an iteration before.
    pub moved: bool,
}

impl From<SgdStep> for StepNumbers {
    /// Those of the first step's first repetition, with a model before it and moments as PyTorch's defaults have them.
    fn from(sgd: SgdStep) -> StepNumbers {
        let moments = MomentStep { step: 1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
        StepNumbers { sgd, moments, clip: 1.0, again: false, moved: true }
    }
}
