//! Declares the kernels for formulas on contiguous ranges of buffers, and for sums of buffers: `optimizer.cu` and
//! `buffers.cu`.
//!
//! `mask` has a bit for each parameter of the model, 32 to a word from the lowest bit on: whether weight decay applies.
//! `first` is the number of a range's first parameter.

use lockstep_models::{Arithmetic, BoundFormula, BoundTerm, Formula};

use super::{BUFFERS, OPTIMIZER};
use crate::argument::{Argument, ToArgument};
use crate::kernel::kernels;
use crate::{Geometry, View, ViewMut};

/// A range of a formula's buffer, with whether the formula writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FormulaBuffer {
    /// The values.
    pub values: ViewMut<f32>,
    /// Whether it is written.
    pub written: bool,
}

impl ToArgument for FormulaBuffer {
    const TYPE: &'static str = <ViewMut<f32> as ToArgument>::TYPE;

    fn argument(&self, name: &'static str, extent: u64) -> Argument {
        if self.written { self.values.argument(name, extent) } else { self.values.view().argument(name, extent) }
    }
}

/// The terms of a formula, as passed to the kernel by value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FormulaTerms {
    count: u32,
    read: u32,
    written: u32,
    codes: [u32; Formula::MOST_TERMS],
    factors: [f32; Formula::MOST_TERMS],
}

impl FormulaTerms {
    /// The terms of `formula`.
    pub fn of(formula: &BoundFormula) -> FormulaTerms {
        let bits = |set: Vec<bool>| set.iter().rev().fold(0, |bits, set| bits << 1 | u32::from(*set));
        let (mut codes, mut factors) = ([0; Formula::MOST_TERMS], [0.0; Formula::MOST_TERMS]);
        for (at, term) in formula.terms.iter().enumerate() {
            let BoundTerm { arithmetic, to, left, factor, decays, right } = *term;
            let left = left.map_or(15, |left| left as u32);
            let operands = to as u32 | left << 4 | (right as u32) << 8;
            codes[at] = operands | u32::from(decays) << 12 | code(arithmetic) << 13;
            factors[at] = factor;
        }
        FormulaTerms {
            count: formula.terms.len() as u32,
            read: bits(formula.buffers.iter().map(|of| of.read).collect()),
            written: bits(formula.buffers.iter().map(|of| of.written).collect()),
            codes,
            factors,
        }
    }
}

/// The number of an operation in the kernel.
fn code(arithmetic: Arithmetic) -> u32 {
    match arithmetic {
        Arithmetic::MultiplyAdd => 0,
        Arithmetic::Multiply => 1,
        Arithmetic::Divide => 2,
        Arithmetic::SquareRoot => 3,
        Arithmetic::Shift => 4,
    }
}

impl ToArgument for FormulaTerms {
    const TYPE: &'static str = "Terms";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let words = [self.count, self.read, self.written].into_iter().chain(self.codes);
        let words = words.chain(self.factors.map(f32::to_bits));
        Argument { name, value: words.flat_map(u32::to_le_bytes).collect(), tensor: None }
    }
}

kernels! {
    /// Evaluates a formula on ranges of its buffers; `mask` if weight decay occurs in it.
    EvaluateFormula = OPTIMIZER::evaluate_formula on Geometry::groups(elements); {
        a: FormulaBuffer[elements],
        b: Option<FormulaBuffer>[elements],
        c: Option<FormulaBuffer>[elements],
        d: Option<FormulaBuffer>[elements],
        e: Option<FormulaBuffer>[elements],
        f: Option<FormulaBuffer>[elements],
        mask: Option<View<u32>>[(first + elements).div_ceil(32)],
        first: u64,
        elements: u64,
        terms: FormulaTerms,
    }

    /// `a ← a + b`.
    AddInto = BUFFERS::add_into on Geometry::groups(elements); {
        a: ViewMut<f32>[elements],
        b: View<f32>[elements],
        elements: u64,
    }
}
