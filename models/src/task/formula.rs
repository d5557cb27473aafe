//! Describes elementwise arithmetic on whole buffers: a formula is a list of operations, from which costs, layouts
//! and kernels follow.
//!
//! Every operation rounds once, a multiply-add its product and then its sum, in the order of the list; division and
//! square root are those of IEEE 754. So every device gives the same bits.

use std::ops::Range;

use super::arithmetic::Arithmetic;
use super::bound::{BoundBuffer, BoundFormula, BoundTerm};
use super::coefficient::Coefficient;
use crate::{AxisSet, Buffer, StepNumbers};

/// A number that a formula reads or writes at each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The element of a buffer.
    Buffer(Buffer),
    /// An intermediate result, by its number from 0; it has no value before the formula writes it.
    Local(usize),
}

/// One operation on the elements of its operands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// Which operation.
    pub arithmetic: Arithmetic,
    /// What is written.
    pub to: Operand,
    /// What a product is added to; the first factor; the dividend.
    pub left: Option<Operand>,
    /// Whether a product is subtracted instead.
    pub subtracts: bool,
    /// The coefficient of a multiply-add or a shift; a term whose coefficient is absent in a step is left out.
    pub factor: Coefficient,
    /// The other factor; the divisor; the only operand.
    pub right: Operand,
}

/// Operations, applied in order to each element.
///
/// ```
/// # use lockstep_models::{Buffer, Coefficient, Formula, Operand};
/// // SGD with weight decay: t ← g + λ·w, w ← w − γ·t. It reads w and g, and writes w.
/// let (w, g) = (Operand::Buffer(Buffer::Parameters), Operand::Buffer(Buffer::Gradients));
/// let t = Operand::Local(0);
/// let sgd = Formula::new("sgd").add(t, g, Coefficient::WeightDecay, w).subtract(w, w, Coefficient::Rate, t);
/// assert_eq!(sgd.accesses().collect::<Vec<_>>(), [(Buffer::Gradients, 1), (Buffer::Parameters, 2)]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    name: &'static str,
    terms: Vec<Term>,
}

impl Formula {
    /// The most operations of a formula; a GPU's kernel takes them as parameters.
    pub const MOST_TERMS: usize = 16;
    /// The most buffers of a formula, and the most intermediate results.
    pub const MOST_OPERANDS: usize = 6;

    /// An empty formula. Tasks are named after it, and reports group by its name.
    pub fn new(name: &'static str) -> Formula {
        Formula { name, terms: Vec::new() }
    }

    /// Appends `to ← left + factor·right`.
    #[must_use]
    pub fn add(self, to: Operand, left: Operand, factor: Coefficient, right: Operand) -> Formula {
        self.then(Arithmetic::MultiplyAdd, to, Some(left), factor, right)
    }

    /// Appends `to ← left − factor·right`.
    #[must_use]
    pub fn subtract(self, to: Operand, left: Operand, factor: Coefficient, right: Operand) -> Formula {
        let mut formula = self.add(to, left, factor, right);
        if let Some(term) = formula.terms.last_mut() {
            term.subtracts = true;
        }
        formula
    }

    /// Appends `to ← factor·right`.
    #[must_use]
    pub fn scale(self, to: Operand, factor: Coefficient, right: Operand) -> Formula {
        self.then(Arithmetic::MultiplyAdd, to, None, factor, right)
    }

    /// Appends `to ← left·right`.
    #[must_use]
    pub fn multiply(self, to: Operand, left: Operand, right: Operand) -> Formula {
        self.then(Arithmetic::Multiply, to, Some(left), Coefficient::ONE, right)
    }

    /// Appends `to ← left / right`.
    #[must_use]
    pub fn divide(self, to: Operand, left: Operand, right: Operand) -> Formula {
        self.then(Arithmetic::Divide, to, Some(left), Coefficient::ONE, right)
    }

    /// Appends `to ← √of`.
    #[must_use]
    pub fn square_root(self, to: Operand, of: Operand) -> Formula {
        self.then(Arithmetic::SquareRoot, to, None, Coefficient::ONE, of)
    }

    /// Appends `to ← of + by`.
    #[must_use]
    pub fn shift(self, to: Operand, of: Operand, by: Coefficient) -> Formula {
        self.then(Arithmetic::Shift, to, None, by, of)
    }

    fn then(
        mut self,
        arithmetic: Arithmetic,
        to: Operand,
        left: Option<Operand>,
        factor: Coefficient,
        right: Operand,
    ) -> Formula {
        self.terms.push(Term { arithmetic, to, left, subtracts: false, factor, right });
        let locals = self.operands().map(|operand| if let Operand::Local(number) = operand { number + 1 } else { 0 });
        let most = locals.fold(self.buffers().len(), usize::max);
        let fits = most <= Formula::MOST_OPERANDS && self.terms.len() <= Formula::MOST_TERMS;
        assert!(fits, "{}: more than devices take", self.name);
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its operations, in order.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The operands of each operation: first those it reads, then the one it writes.
    fn operands(&self) -> impl Iterator<Item = Operand> {
        self.terms.iter().flat_map(|term| term.left.into_iter().chain([term.right, term.to]))
    }

    /// Its buffers, each once, in order of first use.
    pub fn buffers(&self) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        for operand in self.operands() {
            if let Operand::Buffer(buffer) = operand
                && !buffers.contains(&buffer)
            {
                buffers.push(buffer);
            }
        }
        buffers
    }

    /// Whether it reads the content of a buffer from before.
    pub fn reads(&self, buffer: Buffer) -> bool {
        let of = Operand::Buffer(buffer);
        let touches = |term: &&Term| [Some(term.to), term.left, Some(term.right)].contains(&Some(of));
        self.terms.iter().find(touches).is_some_and(|first| first.right == of || first.left == Some(of))
    }

    /// Whether it changes a buffer.
    pub fn writes(&self, buffer: Buffer) -> bool {
        self.terms.iter().any(|term| term.to == Operand::Buffer(buffer))
    }

    /// Whether it is the optimizer's step: it changes what that keeps for each parameter.
    pub fn is_update(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.to, Operand::Buffer(Buffer::State(_))))
    }

    /// Whether it clips gradients.
    pub fn clips(&self) -> bool {
        self.terms.iter().any(|term| term.factor == Coefficient::CLIP)
    }

    /// Whether it depends on the rate or the decay of the optimizer, which may differ from tensor to tensor.
    pub fn learns(&self) -> bool {
        self.terms.iter().any(|term| term.factor.learns())
    }

    /// Its buffers, each with the numbers that are read and written there for each element: one if it is read, and one if it
    /// is written.
    pub fn accesses(&self) -> impl Iterator<Item = (Buffer, u64)> {
        self.buffers().into_iter().map(|of| (of, u64::from(self.reads(of)) + u64::from(self.writes(of))))
    }

    /// The same with one buffer instead of another.
    #[must_use]
    pub fn replacing(&self, buffer: Buffer, by: Buffer) -> Formula {
        let replaced = |operand| if operand == Operand::Buffer(buffer) { Operand::Buffer(by) } else { operand };
        let term = |term: &Term| Term {
            to: replaced(term.to),
            left: term.left.map(replaced),
            right: replaced(term.right),
            ..*term
        };
        Formula { name: self.name, terms: self.terms.iter().map(term).collect() }
    }

    /// Evaluates its coefficients for a step.
    pub fn bind(&self, numbers: &StepNumbers) -> BoundFormula {
        let buffers = self.buffers();
        let place = |operand| match operand {
            Operand::Buffer(buffer) => buffers.iter().position(|other| *other == buffer).unwrap_or(0),
            Operand::Local(number) => buffers.len() + number,
        };
        let term = |term: &Term| {
            let factor = term.factor.value(numbers)?;
            Some(BoundTerm {
                arithmetic: term.arithmetic,
                to: place(term.to),
                left: term.left.map(place),
                factor: if term.subtracts { -factor } else { factor },
                decays: term.factor.decays(),
                right: place(term.right),
            })
        };
        let terms = self.terms.iter().filter_map(term).collect();
        let of = |buffer: &Buffer| {
            let (read, written) = (self.reads(*buffer), self.writes(*buffer));
            BoundBuffer { buffer: *buffer, read, written }
        };
        let buffers = buffers.iter().map(of).collect();
        BoundFormula { buffers, terms, decay_batch_norm: numbers.sgd.decay_batch_norm }
    }
}

/// A formula on a range of its buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct Elementwise {
    /// The arithmetic on each element.
    pub formula: Formula,
    /// Elements of each buffer; none where the role has nothing to do.
    pub range: Range<u64>,
    /// The axes along which the range is sharded, a part for each rank
    /// ([`Program::own_part`](crate::Program::own_part)).
    pub shared: AxisSet,
    /// Whether the first repetition of an iteration leaves it out.
    pub skips_first: bool,
}

impl Elementwise {
    /// A formula on a range of buffers that every rank has.
    pub fn new(formula: Formula, range: Range<u64>) -> Elementwise {
        Elementwise { formula, range, shared: AxisSet::default(), skips_first: false }
    }
}
