//! Defines the coefficients of formulas: numbers that are the same for all elements, and pure functions of the step.

use crate::StepNumbers;

/// A number that is the same for all elements, except for weight decay, and a pure function of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coefficient {
    /// A constant, rounded to fp32.
    Constant(f64),
    /// 1. Absent in the first repetition of an iteration.
    Again,
    /// γ of the step. Absent while no gradient of the iteration waits to be applied.
    Rate,
    /// λ; 0 for parameters without weight decay.
    WeightDecay,
    /// μ: this one, or the optimizer's. Absent in an iteration that has no model before it.
    Momentum(Option<f64>),
    /// The factor of the optimizer's momentum: m, or m·η/η_before.
    Kept {
        /// Whether an update of the same parameters came before in this step: then it is m.
        again: bool,
    },
    /// γ where the optimizer's momentum includes the rate; else absent.
    Absorbed,
    /// m where the optimizer looks ahead along its momentum; else absent.
    Ahead,
    /// The factor of the optimizer's step on the weights: γ, or 1 where the momentum includes the rate. Absent unless
    /// the optimizer does as `ahead` says.
    Taken {
        /// With look-ahead.
        ahead: bool,
    },
    /// One that an optimizer defines.
    OfStep(&'static OfStep),
}

/// A coefficient that an optimizer defines as a function of the step's numbers.
#[derive(Debug)]
pub struct OfStep {
    /// Its formula, by which coefficients are told apart.
    pub name: &'static str,
    /// Its value, rounded to fp32 after its evaluation.
    pub value: fn(&StepNumbers) -> f64,
    /// Whether it is 0 for parameters without weight decay.
    pub decays: bool,
    /// Whether it depends on the rate, which may differ from tensor to tensor.
    pub learns: bool,
}

impl PartialEq for OfStep {
    fn eq(&self, other: &OfStep) -> bool {
        self.name == other.name
    }
}

static CLIP: OfStep = OfStep { name: "min(1, c / ‖g‖)", value: |of| of.clip, decays: false, learns: false };

impl Coefficient {
    /// 1: the product is exact.
    pub const ONE: Coefficient = Coefficient::Constant(1.0);
    /// The factor that clips gradients by their global norm.
    pub const CLIP: Coefficient = Coefficient::OfStep(&CLIP);

    /// Its value in a step; `None`: it is absent there.
    pub(super) fn value(self, numbers: &StepNumbers) -> Option<f32> {
        match self {
            Coefficient::Constant(value) => Some(value as f32),
            Coefficient::Again => numbers.again.then_some(1.0),
            Coefficient::Rate => Some(numbers.sgd.rate),
            Coefficient::WeightDecay => Some(numbers.sgd.weight_decay),
            Coefficient::Momentum(own) => numbers.moved.then(|| own.map_or(numbers.sgd.momentum, |own| own as f32)),
            Coefficient::Kept { again } => Some(if again { numbers.sgd.momentum } else { numbers.sgd.keep }),
            Coefficient::Absorbed => numbers.sgd.absorbed.then_some(numbers.sgd.rate),
            Coefficient::Ahead => numbers.sgd.nesterov.then_some(numbers.sgd.momentum),
            Coefficient::Taken { ahead } => {
                (numbers.sgd.nesterov == ahead).then_some(if numbers.sgd.absorbed { 1.0 } else { numbers.sgd.rate })
            }
            Coefficient::OfStep(of) => Some((of.value)(numbers) as f32),
        }
    }

    /// Whether it is 0 for parameters without weight decay.
    pub(super) fn decays(self) -> bool {
        match self {
            Coefficient::WeightDecay => true,
            Coefficient::OfStep(of) => of.decays,
            _ => false,
        }
    }

    /// Whether it depends on the rate or the decay of the optimizer, which may differ from tensor to tensor.
    pub(super) fn learns(self) -> bool {
        use Coefficient::{Absorbed, OfStep, Rate, Taken, WeightDecay};
        match self {
            Rate | WeightDecay | Absorbed | Taken { .. } => true,
            OfStep(of) => of.decays || of.learns,
            _ => false,
        }
    }
}
