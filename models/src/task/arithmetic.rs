//! Names the operations of formulas.

/// What a term computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `to ← left + factor·right`, or `left − factor·right`; without `left`, `to ← factor·right`.
    MultiplyAdd,
    /// `to ← left·right`.
    Multiply,
    /// `to ← left / right`.
    Divide,
    /// `to ← √right`.
    SquareRoot,
    /// `to ← right + factor`.
    Shift,
}

impl Arithmetic {
    /// Whether results are sums of multiples of what is read, so that it may be applied to the parts of a sum.
    pub fn is_linear(self) -> bool {
        self == Arithmetic::MultiplyAdd
    }
}
