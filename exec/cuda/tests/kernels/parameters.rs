//! Compares formulas on whole ranges in one launch, including the optimizer's update, with the CPU device's on one
//! tensor after the other, to the bit.

use std::cell::RefCell;
use std::ops::Range;

use lockstep_cuda::table::{EvaluateFormula, FormulaBuffer, FormulaTerms};
use lockstep_exec::device::cpu::{self, Slice};
use lockstep_models::{Arithmetic, BoundBuffer, BoundFormula, BoundTerm, Buffer, Formula, Optimizer, SgdStep};
use proptest::prelude::*;

use crate::emulator::Emulator;
use crate::memory::Memory;
use crate::{Theme, few, property, same};

pub(crate) const THEME: Theme = Theme { kernels: &["evaluate_formula"], play };

/// The tensors of a model, some of them subject to weight decay, and a range of all their elements.
#[derive(Debug, Clone)]
struct Tensors {
    lengths: Vec<(usize, bool)>,
    range: Range<usize>,
}

fn any_tensors() -> impl Strategy<Value = Tensors> {
    let lengths = proptest::collection::vec((1..700usize, any::<bool>()), 1..6);
    (lengths, 0.0..1.0f64, 0.0..1.0f64).prop_map(|(lengths, from, part)| {
        let all: usize = lengths.iter().map(|(length, _)| length).sum();
        let start = (from * all as f64) as usize;
        let end = start + 1 + (part * (all - start - 1) as f64) as usize;
        Tensors { lengths, range: start..end }
    })
}

impl Tensors {
    fn all(&self) -> usize {
        self.lengths.iter().map(|(length, _)| length).sum()
    }

    /// A bit for each parameter.
    fn mask(&self) -> Vec<u32> {
        let mut mask = vec![0u32; self.all().div_ceil(32)];
        let mut start = 0;
        for (length, decays) in &self.lengths {
            (start..start + length).filter(|_| *decays).for_each(|at| mask[at / 32] |= 1 << (at % 32));
            start += length;
        }
        mask
    }

    /// The parts of the range with equal weight decay, as the CPU device takes them.
    fn parts(&self) -> Vec<(Range<usize>, bool)> {
        let mut start = 0;
        let of = |(length, decays): &(usize, bool)| {
            let part = start.max(self.range.start)..(start + length).min(self.range.end);
            start += length;
            (!part.is_empty()).then_some((part, *decays))
        };
        self.lengths.iter().filter_map(of).collect()
    }
}

fn play(emulator: &RefCell<Emulator>) {
    property((any_tensors(), any_update()), few(60), |(tensors, formula), memory| {
        evaluated(&mut emulator.borrow_mut(), memory, &tensors, &formula);
    });
    property((any_tensors(), any_formula()), few(120), |(tensors, formula), memory| {
        evaluated(&mut emulator.borrow_mut(), memory, &tensors, &formula);
    });
}

/// The optimizer's update in any form.
fn any_update() -> impl Strategy<Value = BoundFormula> {
    let scale = prop_oneof![Just(1.0f64), 0.1f64..8.0];
    let numbers = (0.001f32..1.0, 0.0f32..1.0, 0.0f32..1.0, 0.0f32..0.5);
    (scale, numbers, any::<[bool; 3]>()).prop_map(|(scale, numbers, [again, absorbed, nesterov])| {
        let (rate, keep, momentum, weight_decay) = numbers;
        let step = SgdStep { rate, keep, momentum, absorbed, nesterov, weight_decay, decay_batch_norm: false };
        Optimizer::update(scale, again).bind(&step.into())
    })
}

/// The buffers of a random formula, and its intermediate results.
const BUFFERS: usize = Formula::MOST_OPERANDS;
const LOCALS: usize = 2;

/// Random operations on as many buffers as a formula may have and two intermediate results, all of which have values
/// before they are read.
fn any_formula() -> impl Strategy<Value = BoundFormula> {
    let all = BUFFERS + LOCALS;
    let factor = prop_oneof![Just(1.0f32), Just(-1.0f32), -1.0f32..1.0];
    let kinds = [Arithmetic::Multiply, Arithmetic::Divide, Arithmetic::SquareRoot, Arithmetic::Shift];
    let kind = prop_oneof![Just(Arithmetic::MultiplyAdd), proptest::sample::select(kinds.to_vec())];
    let term = (kind, 0..all, proptest::option::of(0..all), factor, any::<bool>(), 0..all);
    proptest::collection::vec(term, 1..=Formula::MOST_TERMS - LOCALS).prop_map(move |terms| {
        let multiply_add = Arithmetic::MultiplyAdd;
        let copied =
            |to, right| BoundTerm { arithmetic: multiply_add, to, left: None, factor: 1.0, decays: false, right };
        let term = |(arithmetic, to, left, factor, decays, right)| {
            let left: Option<usize> = match arithmetic {
                Arithmetic::MultiplyAdd => left,
                Arithmetic::Multiply | Arithmetic::Divide => Some(left.unwrap_or(right)),
                Arithmetic::SquareRoot | Arithmetic::Shift => None,
            };
            BoundTerm { arithmetic, to, left, factor, decays, right }
        };
        let locals = (0..LOCALS).map(|local| copied(BUFFERS + local, local));
        let terms: Vec<BoundTerm> = locals.chain(terms.into_iter().map(term)).collect();
        let first = |at: usize| {
            let touches = |term: &&BoundTerm| term.to == at || term.right == at || term.left == Some(at);
            terms.iter().find(touches).is_some_and(|term| term.right == at || term.left == Some(at))
        };
        let buffer = |at: usize| BoundBuffer {
            buffer: Buffer::Declared(at),
            read: first(at),
            written: terms.iter().any(|term| term.to == at),
        };
        BoundFormula { buffers: (0..BUFFERS).map(buffer).collect(), terms, decay_batch_norm: false }
    })
}

/// The bits of values, those of a square root of a negative number or of 0/0 being any that are no number.
fn numbers(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| if value.is_nan() { f32::NAN } else { *value }).collect()
}

/// A formula in one launch, on the CPU device, and term by term.
fn evaluated(emulator: &mut Emulator, memory: &mut Memory, tensors: &Tensors, formula: &BoundFormula) {
    let (all, range) = (tensors.all(), tensors.range.clone());
    let count = formula.buffers.len();
    let mut values: Vec<Vec<f32>> = (0..count).map(|_| memory.values(all)).collect();
    let held: Vec<_> = values.iter().map(|values| memory.put(values)).collect();
    let operand = |at: usize| {
        let written = formula.buffers.get(at)?.written;
        Some(FormulaBuffer { values: held[at].part(range.clone()).write(), written })
    };
    let [b, c, d, e, f] = [1, 2, 3, 4, 5].map(operand);
    let launch = EvaluateFormula {
        a: operand(0).expect("a formula has a buffer"),
        b,
        c,
        d,
        e,
        f,
        mask: formula.decays().then(|| memory.put(&tensors.mask()).read()),
        first: range.start as u64,
        elements: range.len() as u64,
        terms: FormulaTerms::of(formula),
    };
    emulator.play(memory, &launch);
    let mut expected = values.clone();
    for (part, decays) in tensors.parts() {
        let parts = values.iter_mut().zip(&formula.buffers);
        let slice = |(values, of): (_, &BoundBuffer)| -> Slice<'_> {
            let values: &mut Vec<f32> = values;
            if of.written { Slice::Written(&mut values[part.clone()]) } else { Slice::Read(&values[part.clone()]) }
        };
        let mut slices: Vec<Slice<'_>> = parts.map(slice).collect();
        cpu::evaluate(formula, decays, &mut slices);
        for at in part {
            let of_buffers = expected.iter().map(|values| values[at]);
            let mut operands: Vec<f32> = of_buffers.chain([f32::NAN; Formula::MOST_OPERANDS]).collect();
            for term in &formula.terms {
                let factor = if term.decays && !decays { 0.0 } else { term.factor };
                let left = term.left.map_or(f32::NAN, |left| operands[left]);
                operands[term.to] = term.result(left, factor, operands[term.right]);
            }
            (0..count).for_each(|of| expected[of][at] = operands[of]);
        }
    }
    for (at, of) in formula.buffers.iter().enumerate() {
        let expected = numbers(&expected[at]);
        same(&numbers(&values[at]), &expected, "the CPU device's values");
        same(&numbers(&memory.get(held[at])), &expected, if of.written { "written values" } else { "read values" });
    }
}
