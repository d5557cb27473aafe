//! Describes elementwise arithmetic on whole buffers: a formula is a list of multiply-adds, from which costs, layouts
//! and kernels follow.
//!
//! Every multiply-add rounds its product and then its sum, in the order of the list, so that every device gives
//! the same bits.

use std::ops::Range;

use crate::{AxisSet, Buffer, StepNumbers};

/// A number that a formula reads or writes at each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The element of a buffer.
    Buffer(Buffer),
    /// An intermediate result, by its number from 0; it has no value before the formula writes it.
    Local(usize),
}

/// The factor of a product: the same for all elements, except for weight decay, and a pure function of the step.
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
}

impl Coefficient {
    /// 1: the product is exact.
    pub const ONE: Coefficient = Coefficient::Constant(1.0);

    fn value(self, numbers: &StepNumbers) -> Option<f32> {
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
        }
    }
}

/// `to ← plus + factor·times`, or `plus − factor·times`; without `plus`, `to ← factor·times`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MultiplyAdd {
    /// What is written.
    pub to: Operand,
    /// What the product is added to.
    pub plus: Option<Operand>,
    /// Whether it is subtracted instead.
    pub subtracts: bool,
    /// The product's coefficient; a multiply-add whose coefficient is absent in a step is left out.
    pub factor: Coefficient,
    /// The product's other factor.
    pub times: Operand,
}

/// Multiply-adds, applied in order to each element.
///
/// ```
/// # use lockstep_models::{Buffer, Coefficient, Formula, Operand};
/// // SGD with weight decay: t ← g + λ·w, w ← w − γ·t. It reads w and g, and writes w.
/// let (w, g) = (Operand::Buffer(Buffer::Parameters), Operand::Buffer(Buffer::Gradients));
/// let t = Operand::Local(0);
/// let sgd = Formula::new("sgd").add(t, g, Coefficient::WeightDecay, w).subtract(w, w, Coefficient::Rate, t);
/// assert_eq!((sgd.accesses(), sgd.buffers()), (3, vec![Buffer::Gradients, Buffer::Parameters]));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    name: &'static str,
    terms: Vec<MultiplyAdd>,
}

impl Formula {
    /// The most multiply-adds of a formula; a GPU's kernel takes them as parameters.
    pub const MOST_TERMS: usize = 8;
    /// The most buffers of a formula, and the most intermediate results.
    pub const MOST_OPERANDS: usize = 4;

    /// An empty formula. Tasks are named after it, and reports group by its name.
    pub fn new(name: &'static str) -> Formula {
        Formula { name, terms: Vec::new() }
    }

    /// Appends `to ← plus + factor·times`.
    #[must_use]
    pub fn add(self, to: Operand, plus: Operand, factor: Coefficient, times: Operand) -> Formula {
        self.then(MultiplyAdd { to, plus: Some(plus), subtracts: false, factor, times })
    }

    /// Appends `to ← plus − factor·times`.
    #[must_use]
    pub fn subtract(self, to: Operand, plus: Operand, factor: Coefficient, times: Operand) -> Formula {
        self.then(MultiplyAdd { to, plus: Some(plus), subtracts: true, factor, times })
    }

    /// Appends `to ← factor·times`.
    #[must_use]
    pub fn scale(self, to: Operand, factor: Coefficient, times: Operand) -> Formula {
        self.then(MultiplyAdd { to, plus: None, subtracts: false, factor, times })
    }

    fn then(mut self, term: MultiplyAdd) -> Formula {
        self.terms.push(term);
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

    /// Its multiply-adds, in order.
    pub fn terms(&self) -> &[MultiplyAdd] {
        &self.terms
    }

    /// The operands of each multiply-add: first those it reads, then the one it writes.
    fn operands(&self) -> impl Iterator<Item = Operand> {
        self.terms.iter().flat_map(|term| term.plus.into_iter().chain([term.times, term.to]))
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
        let touches = |term: &&MultiplyAdd| [Some(term.to), term.plus, Some(term.times)].contains(&Some(of));
        self.terms.iter().find(touches).is_some_and(|first| first.times == of || first.plus == Some(of))
    }

    /// Whether it changes a buffer.
    pub fn writes(&self, buffer: Buffer) -> bool {
        self.terms.iter().any(|term| term.to == Operand::Buffer(buffer))
    }

    /// Whether it depends on the rate or the decay of the optimizer, which may differ from tensor to tensor.
    pub fn learns(&self) -> bool {
        use Coefficient::{Absorbed, Rate, Taken, WeightDecay};
        self.terms.iter().any(|term| matches!(term.factor, Rate | WeightDecay | Absorbed | Taken { .. }))
    }

    /// fp32 elements read and written for each element: one for each buffer that is read and one for each
    /// that is written.
    pub fn accesses(&self) -> u64 {
        let of = |buffer: &Buffer| u64::from(self.reads(*buffer)) + u64::from(self.writes(*buffer));
        self.buffers().iter().map(of).sum()
    }

    /// The same with one buffer instead of another.
    #[must_use]
    pub fn replacing(&self, buffer: Buffer, by: Buffer) -> Formula {
        let replaced = |operand| if operand == Operand::Buffer(buffer) { Operand::Buffer(by) } else { operand };
        let term = |term: &MultiplyAdd| MultiplyAdd {
            to: replaced(term.to),
            plus: term.plus.map(replaced),
            times: replaced(term.times),
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
        let term = |term: &MultiplyAdd| {
            let factor = term.factor.value(numbers)?;
            Some(BoundTerm {
                to: place(term.to),
                plus: term.plus.map(place),
                factor: if term.subtracts { -factor } else { factor },
                decays: term.factor == Coefficient::WeightDecay,
                times: place(term.times),
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

/// A formula with numbers as coefficients, as devices evaluate it.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundFormula {
    /// Its buffers, in the order of [`Formula::buffers`].
    pub buffers: Vec<BoundBuffer>,
    /// Its multiply-adds, in order.
    pub terms: Vec<BoundTerm>,
    /// Whether weight decay applies to all parameters.
    pub decay_batch_norm: bool,
}

impl BoundFormula {
    /// Whether λ occurs in it and is not 0, so that it may differ from parameter to parameter.
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

/// `to ← plus + factor·times`, or without `plus` the product alone. Operands are numbered: first the formula's buffers,
/// then intermediate results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundTerm {
    /// What is written.
    pub to: usize,
    /// What the product is added to.
    pub plus: Option<usize>,
    /// The product's factor that is the same for all elements.
    pub factor: f32,
    /// Whether this factor is 0 for parameters without weight decay.
    pub decays: bool,
    /// The other factor.
    pub times: usize,
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
