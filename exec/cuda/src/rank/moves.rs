//! Lowers operations on a rank's buffers to commands: formulas, and copies of rows.

use std::ops::Range;

use lockstep_models::{BoundBuffer, BoundFormula, Copy};

use super::Rank;
use crate::kernel::KernelLaunch;
use crate::table::{EvaluateFormula, FormulaBuffer, FormulaTerms, MoveRows};
use crate::{Activation, Command, View, ViewMut};

impl<A: Activation> Rank<A> {
    /// The launch that evaluates a formula on a range of its buffers.
    pub(super) fn evaluation_of(&self, range: Range<usize>, formula: &BoundFormula) -> Command {
        let operand = |index: usize| {
            let BoundBuffer { buffer, written, .. } = formula.buffers.get(index).copied()?;
            Some(FormulaBuffer { values: self.held(buffer).view_mut(&self.places.place(buffer, &range)), written })
        };
        let Some(a) = operand(0) else { unreachable!("a formula has a buffer") };
        let [b, c, d, e, f] = [1, 2, 3, 4, 5].map(operand);
        let mask = formula.decays().then(|| self.mask(formula.decay_batch_norm));
        let (first, elements) = (range.start as u64, range.len() as u64);
        let terms = FormulaTerms::of(formula);
        Command::Launch(EvaluateFormula { a, b, c, d, e, f, mask, first, elements, terms }.call())
    }
}

/// Appends the commands of a copy to `into`.
pub(super) fn copy<F: Activation, T: Activation>(of: &Copy, from: View<F>, to: ViewMut<T>, into: &mut Vec<Command>) {
    if of.clear {
        into.push(Command::Zero { address: to.address(), bytes: T::SCALAR.dtype().bytes(to.elements()) });
    }
    for rows in of.rows.iter().filter(|rows| rows.count > 0 && rows.length > 0) {
        let launch = MoveRows {
            from,
            from_first: rows.from.0,
            from_stride: rows.from.1,
            to,
            to_first: rows.to.0,
            to_stride: rows.to.1,
            rows: rows.count as u32,
            length: rows.length as u32,
            accumulate: of.add,
        };
        into.push(Command::Launch(launch.call()));
    }
}
