//! Defines Adam (Kingma & Ba 2015, Alg. 1, in the form at the end of §2), as PyTorch computes it.

use super::{Rule, T, W, gradient};
use crate::{Buffer, Coefficient, Formula, OfStep, Operand, Optimizer, StepNumbers};

/// The moments of the gradient, and a second intermediate result.
const M: Operand = Operand::Buffer(Buffer::State(0));
const V: Operand = Operand::Buffer(Buffer::State(1));
const D: Operand = Operand::Local(1);

/// Adam: weight decay is a part of the gradient (PyTorch's `torch.optim.Adam`).
pub(super) static RULE: Rule = Rule {
    states: STATES,
    update: |factors, _| {
        let (update, g) = gradient(factors);
        moments(update.add(T, g, Coefficient::WeightDecay, W), T)
    },
    updates_again: false,
    learning_rate: 0.001,
    weight_decay: 0.0,
    reads: READS,
    describe,
};

pub(super) const STATES: &[&str] = &["first moment", "second moment"];
pub(super) const READS: &[&str] = &["beta1", "beta2", "epsilon"];

pub(super) fn describe(of: &Optimizer) -> String {
    format!("{} (beta1 {}, beta2 {}, epsilon {})", of.rule, of.beta1, of.beta2, of.epsilon)
}

/// A coefficient of Adam alone.
const fn number(name: &'static str, learns: bool, value: fn(&StepNumbers) -> f64) -> OfStep {
    OfStep { name, value, decays: false, learns }
}

/// 1 − βᵗ: what the first t steps weigh together in a moment that began with zero.
fn weight(beta: f64, numbers: &StepNumbers) -> f64 {
    1.0 - libm::pow(beta, numbers.moments.step as f64)
}

static NEW: OfStep = number("1 - β₁", false, |of| 1.0 - of.moments.beta1);
static KEPT: OfStep = number("β₂", false, |of| of.moments.beta2);
static NEW_SQUARE: OfStep = number("1 - β₂", false, |of| 1.0 - of.moments.beta2);
static CORRECTION: OfStep = number("1 / √(1 - β₂ᵗ)", false, |of| 1.0 / weight(of.moments.beta2, of).sqrt());
static EPSILON: OfStep = number("ε", false, |of| of.moments.epsilon);
static RATE: OfStep = number("γ / (1 - β₁ᵗ)", true, |of| f64::from(of.sgd.rate) / weight(of.moments.beta1, of));

/// The moments, and the step along their quotient:
///
/// | | |
/// |---|---|
/// | first moment | `d ← g − m`, `m ← m + (1 − β₁)·d` |
/// | second moment | `d ← g·g`, `v ← β₂·v`, `v ← v + (1 − β₂)·d` |
/// | divisor | `d ← √v`, `d ← d / √(1 − β₂ᵗ)` (times the reciprocal), `d ← d + ε` |
/// | weights | `d ← m / d`, `w ← w − γ/(1 − β₁ᵗ)·d` |
pub(super) fn moments(formula: Formula, g: Operand) -> Formula {
    use Coefficient::OfStep;
    formula
        .subtract(D, g, Coefficient::ONE, M)
        .add(M, M, OfStep(&NEW), D)
        .multiply(D, g, g)
        .scale(V, OfStep(&KEPT), V)
        .add(V, V, OfStep(&NEW_SQUARE), D)
        .square_root(D, V)
        .scale(D, OfStep(&CORRECTION), D)
        .shift(D, D, OfStep(&EPSILON))
        .divide(D, M, D)
        .subtract(W, W, OfStep(&RATE), D)
}
