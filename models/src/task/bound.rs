//! Holds formulas with numbers as coefficients, as devices evaluate them.

use super::arithmetic::Arithmetic;
use crate::Buffer;

/// A formula with numbers as coefficients.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundFormula {
    /// Its buffers, in the order of [`Formula::buffers`](crate::Formula::buffers).
    pub buffers: Vec<BoundBuffer>,
    /// Its terms, in order.
    pub terms: Vec<BoundTerm>,
    /// Whether weight decay applies to all parameters.
    pub decay_batch_norm: bool,
}

impl BoundFormula {
    /// Whether a decay occurs in it and is not 0, so that it may differ from parameter to parameter.
    pub fn decays(&self) -> bool {
        self.terms.iter().any(|term| term.decays && term.factor != 0.0)
    }
}

/// A buffer of a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundBuffer {
    /// Which.
    pub buffer: Buffer,
    /// Whether the formula reads its content from before.
    pub read: bool,
    /// Whether the formula changes it.
    pub written: bool,
}

/// One operation, as [`Term`](crate::Term) describes it. Operands are numbered: first the formula's buffers, then
/// intermediate results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundTerm {
    /// Which operation.
    pub arithmetic: Arithmetic,
    /// What is written.
    pub to: usize,
    /// What a product is added to; the first factor; the dividend.
    pub left: Option<usize>,
    /// The number that is the same for all elements; of multiply-adds and shifts alone.
    pub factor: f32,
    /// Whether this number is 0 for parameters without weight decay.
    pub decays: bool,
    /// The other factor; the divisor; the only operand.
    pub right: usize,
}

impl BoundTerm {
    /// Its result on one element of each operand, `factor` being its own or 0: every operation rounds by itself.
    pub fn result(&self, left: f32, factor: f32, right: f32) -> f32 {
        match (self.arithmetic, self.left) {
            (Arithmetic::MultiplyAdd, None) => factor * right,
            (Arithmetic::MultiplyAdd, Some(_)) => left + factor * right,
            (Arithmetic::Multiply, _) => left * right,
            (Arithmetic::Divide, _) => left / right,
            (Arithmetic::SquareRoot, _) => right.sqrt(),
            (Arithmetic::Shift, _) => right + factor,
        }
    }
}
