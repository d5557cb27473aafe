//! Evaluates a formula on slices of its buffers, block by block, so that each buffer passes through memory once.

use lockstep_models::{Arithmetic, BoundFormula, BoundTerm, Formula};

use crate::simd::wide;

/// Elements of a block: those of all operands stay in the first-level cache while the formula is evaluated.
const BLOCK: usize = 512;

/// The most operands of a formula: its buffers, and as many intermediate results.
const OPERANDS: usize = 2 * Formula::MOST_OPERANDS;

/// A range of one of a formula's buffers.
#[derive(Debug, Default)]
pub enum Slice<'a> {
    /// None: a stand-in for an operand that is being written.
    #[default]
    Nothing,
    /// A buffer that the formula only reads.
    Read(&'a [f32]),
    /// A buffer that it writes.
    Written(&'a mut [f32]),
}

impl Slice<'_> {
    fn all(&self) -> &[f32] {
        match self {
            Slice::Nothing => &[],
            Slice::Read(values) => values,
            Slice::Written(values) => values,
        }
    }

    fn part(&mut self, start: usize, end: usize) -> Slice<'_> {
        match self {
            Slice::Nothing => Slice::Nothing,
            Slice::Read(values) => Slice::Read(&values[start..end]),
            Slice::Written(values) => Slice::Written(&mut values[start..end]),
        }
    }
}

/// Evaluates `formula` element by element; `buffers` are ranges of its buffers, in its order and of equal length.
/// Weight decay applies only if `decays`.
///
/// ```
/// # use lockstep_exec::device::cpu::{Slice, evaluate};
/// # use lockstep_models::{Buffer, Coefficient, Formula, Operand, SgdStep};
/// // t ← g + λ·w, w ← w − γ·t with γ = 0.5 and λ = 0.25: 4 − 0.5·(1 + 0.25·4), and where λ spares w, 4 − 0.5·1.
/// let (w, g) = (Operand::Buffer(Buffer::Parameters), Operand::Buffer(Buffer::Gradients));
/// let t = Operand::Local(0);
/// let sgd = Formula::new("sgd").add(t, g, Coefficient::WeightDecay, w).subtract(w, w, Coefficient::Rate, t);
/// let step = SgdStep { weight_decay: 0.25, ..SgdStep::plain(0.5, 0.0) };
/// let sgd = sgd.bind(&step.into());
/// for (decays, expected) in [(true, 3.0), (false, 3.5)] {
///     let mut weights = [4.0];
///     evaluate(&sgd, decays, &mut [Slice::Read(&[1.0]), Slice::Written(&mut weights)]);
///     assert_eq!(weights, [expected]);
/// }
/// ```
pub fn evaluate(formula: &BoundFormula, decays: bool, buffers: &mut [Slice<'_>]) {
    let elements = buffers.first().map_or(0, |values| values.all().len());
    let alike = buffers.iter().all(|values| values.all().len() == elements);
    assert!(alike && buffers.len() == formula.buffers.len(), "a slice for each buffer, of one length");
    let mut locals = [[0.0f32; BLOCK]; Formula::MOST_OPERANDS];
    wide!({
        for start in (0..elements).step_by(BLOCK) {
            let end = elements.min(start + BLOCK);
            let mut operands: [Slice<'_>; OPERANDS] = Default::default();
            let of_buffers = buffers.iter_mut().map(|values| values.part(start, end));
            let of_locals = locals.iter_mut().map(|values| Slice::Written(&mut values[..end - start]));
            operands.iter_mut().zip(of_buffers.chain(of_locals)).for_each(|(operand, values)| *operand = values);
            for term in &formula.terms {
                let factor = if term.decays && !decays { 0.0 } else { term.factor };
                operate(term, factor, &mut operands);
            }
        }
    });
}

/// One operation on a block, which rounds as [`BoundTerm::result`] does.
#[inline(always)]
fn operate(term: &BoundTerm, factor: f32, operands: &mut [Slice<'_>; OPERANDS]) {
    match (term.arithmetic, term.left) {
        (Arithmetic::MultiplyAdd, Some(left)) => binary(term, left, operands, |a, b| a + factor * b),
        (Arithmetic::Multiply, Some(left)) => binary(term, left, operands, |a, b| a * b),
        (Arithmetic::Divide, Some(left)) => binary(term, left, operands, |a, b| a / b),
        (Arithmetic::SquareRoot, _) => unary(term, operands, f32::sqrt),
        (Arithmetic::Shift, _) => unary(term, operands, |b| b + factor),
        (Arithmetic::MultiplyAdd | Arithmetic::Multiply | Arithmetic::Divide, None) => {
            unary(term, operands, |b| factor * b);
        }
    }
}

/// `to ← f(right)` on a block.
#[inline(always)]
fn unary(term: &BoundTerm, operands: &mut [Slice<'_>; OPERANDS], f: impl Fn(f32) -> f32) {
    let to = taken(term, operands);
    match operands[term.right].all() {
        _ if term.right == term.to => to.iter_mut().for_each(|t| *t = f(*t)),
        right => to.iter_mut().zip(right).for_each(|(t, b)| *t = f(*b)),
    }
    operands[term.to] = Slice::Written(to);
}

/// `to ← f(left, right)` on a block.
#[inline(always)]
fn binary(term: &BoundTerm, left: usize, operands: &mut [Slice<'_>; OPERANDS], f: impl Fn(f32, f32) -> f32) {
    let to = taken(term, operands);
    let (a, b) = (operands[left].all(), operands[term.right].all());
    match (left == term.to, term.right == term.to) {
        (true, true) => to.iter_mut().for_each(|t| *t = f(*t, *t)),
        (true, false) => to.iter_mut().zip(b).for_each(|(t, b)| *t = f(*t, *b)),
        (false, true) => to.iter_mut().zip(a).for_each(|(t, a)| *t = f(*a, *t)),
        (false, false) => to.iter_mut().zip(a.iter().zip(b)).for_each(|(t, (a, b))| *t = f(*a, *b)),
    }
    operands[term.to] = Slice::Written(to);
}

/// The operand that a term writes, taken from among them: reads of it are reads of what is written.
#[inline(always)]
fn taken<'a>(term: &BoundTerm, operands: &mut [Slice<'a>; OPERANDS]) -> &'a mut [f32] {
    let Slice::Written(to) = std::mem::take(&mut operands[term.to]) else {
        unreachable!("a formula says which buffers it writes");
    };
    to
}

#[cfg(test)]
mod tests {
    use lockstep_models::{BoundBuffer, Buffer, Optimizer, SgdStep};
    use proptest::prelude::*;

    use super::*;

    /// The optimizer's update of w and v, by its formula.
    fn update(step: &SgdStep, decays: bool, w: &mut [f32], v: &mut [f32], g: &[f32]) {
        let of = Optimizer::update(1.0, false).bind(&(*step).into());
        evaluate(&of, decays, &mut [Slice::Read(g), Slice::Written(w), Slice::Written(v)]);
    }

    /// Two steps by hand: λ = 0, m = 0.5, η = 1, g = 1: v = 1, 1.5; w = −1, −2.5; nesterov steps g + m·v = 1.5, 1.75.
    #[test]
    fn two_steps() {
        for (nesterov, expected) in [(false, -2.5), (true, -3.25)] {
            for absorbed in [false, true] {
                let step = SgdStep { nesterov, absorbed, ..SgdStep::plain(1.0, 0.5) };
                let (mut w, mut v) = (vec![0.0; 37], vec![0.0; 37]);
                for _ in 0..2 {
                    update(&step, true, &mut w, &mut v, &[1.0; 37]);
                }
                assert_eq!((w, v), (vec![expected; 37], vec![1.5; 37]));
            }
        }
    }

    /// At rates that are powers of two Eq. 10 with its correction gives the weights of Eq. 9 to the bit, however the
    /// rate changes; v is then η·u.
    #[test]
    fn both_forms_are_one_method() {
        for nesterov in [false, true] {
            let gradient =
                |step: usize| -> Vec<f32> { (0..64).map(|i| ((i * 37 + step * 11) % 19) as f32 - 9.0).collect() };
            let (mut w, mut u) = (vec![0.75; 64], vec![0.0; 64]);
            let (mut x, mut v) = (w.clone(), u.clone());
            let mut before = None;
            for (at, rate) in [0.5f32, 0.5, 4.0, 4.0, 0.125, 2.0].into_iter().enumerate() {
                let step = SgdStep { nesterov, weight_decay: 0.125, ..SgdStep::plain(rate, 0.75) };
                update(&step, true, &mut w, &mut u, &gradient(at));
                let keep = 0.75 * before.map_or(1.0, |before| rate / before);
                update(&SgdStep { keep, absorbed: true, ..step }, true, &mut x, &mut v, &gradient(at));
                before = Some(rate);
                assert_eq!(w, x, "after step {at}");
                assert!(u.iter().zip(&v).all(|(u, v)| rate * u == *v));
            }
        }
    }

    /// A term in f64, each of its operations rounded to fp32 once: f64 has more than twice as many bits, so that the
    /// rounding in between changes nothing (Figueroa 1995).
    fn rounded(term: &BoundTerm, factor: f32, operands: &[f32]) -> f32 {
        let (right, factor) = (f64::from(operands[term.right]), f64::from(factor));
        let left = term.left.map_or(f64::NAN, |left| f64::from(operands[left]));
        let once = |value: f64| value as f32;
        match term.arithmetic {
            Arithmetic::MultiplyAdd if term.left.is_none() => once(factor * right),
            Arithmetic::MultiplyAdd => once(left + f64::from(once(factor * right))),
            Arithmetic::Multiply => once(left * right),
            Arithmetic::Divide => once(left / right),
            Arithmetic::SquareRoot => once(right.sqrt()),
            Arithmetic::Shift => once(right + factor),
        }
    }

    /// One of the operations, on any of `operands` operands.
    fn any_term(operands: usize) -> impl Strategy<Value = BoundTerm> {
        let kinds = prop::sample::select(vec![
            Arithmetic::MultiplyAdd,
            Arithmetic::Multiply,
            Arithmetic::Divide,
            Arithmetic::SquareRoot,
            Arithmetic::Shift,
        ]);
        let of = (0..operands, prop::option::of(0..operands), 0..operands);
        (kinds, of, -2.0f32..2.0, any::<bool>()).prop_map(|(arithmetic, (to, left, right), factor, decays)| {
            let left = match arithmetic {
                Arithmetic::MultiplyAdd => left,
                Arithmetic::Multiply | Arithmetic::Divide => Some(left.unwrap_or(right)),
                Arithmetic::SquareRoot | Arithmetic::Shift => None,
            };
            BoundTerm { arithmetic, to, left, factor, decays, right }
        })
    }

    proptest! {
        /// Any operations on as many buffers as a formula may have, and an intermediate result, give the bits of f64
        /// arithmetic that rounds each operation once; a result that is no number is none in both.
        #[test]
        fn operations_round_once(
            terms in prop::collection::vec(any_term(7), 1..=Formula::MOST_TERMS - 1),
            decays in any::<bool>(),
            values in prop::collection::vec(-3.0f32..3.0, 6..1300),
        ) {
            let copied = BoundTerm { arithmetic: Arithmetic::MultiplyAdd, to: 6, left: None, factor: 1.0, decays: false, right: 0 };
            let terms: Vec<BoundTerm> = std::iter::once(copied).chain(terms).collect();
            let buffers = (0..6).map(|at| BoundBuffer { buffer: Buffer::Declared(at), read: true, written: true }).collect();
            let of = BoundFormula { buffers, terms, decay_batch_norm: false };
            let length = values.len() / 6;
            let mut held: Vec<Vec<f32>> = values.chunks_exact(length).take(6).map(<[f32]>::to_vec).collect();
            let mut expected = held.clone();
            for at in 0..length {
                let mut operands: Vec<f32> = expected.iter().map(|values| values[at]).chain([f32::NAN]).collect();
                for term in &of.terms {
                    let factor = if term.decays && !decays { 0.0 } else { term.factor };
                    operands[term.to] = rounded(term, factor, &operands);
                }
                expected.iter_mut().zip(operands).for_each(|(values, value)| values[at] = value);
            }
            let mut slices: Vec<Slice<'_>> = held.iter_mut().map(|values| Slice::Written(values)).collect();
            evaluate(&of, decays, &mut slices);
            let bits = |value: &f32| if value.is_nan() { None } else { Some(value.to_bits()) };
            for (held, expected) in held.iter().zip(&expected) {
                prop_assert!(held.iter().map(bits).eq(expected.iter().map(bits)));
            }
        }

        /// The formula gives the bits of its definition in scalars (Goyal et al. 2017, Eq. 9 and 10; Sutskever et al.
        /// 2013 for Nesterov's), in all forms, with gradients scaled or not, over several blocks and a part of one.
        #[test]
        fn updates_are_their_definition(
            (rate, keep, momentum, weight_decay) in (0.001f32..1.0, 0.0f32..1.0, 0.0f32..1.0, prop_oneof![Just(0.0f32), 0.0f32..0.5]),
            (absorbed, nesterov, decays, again) in any::<(bool, bool, bool, bool)>(),
            scale in prop_oneof![Just(1.0f64), 0.1f64..8.0],
            values in prop::collection::vec(-2.0f32..2.0, 1..1500),
        ) {
            let step = SgdStep { rate, keep, momentum, absorbed, nesterov, weight_decay, decay_batch_norm: false };
            let g = &values[..];
            let (mut w, mut v): (Vec<f32>, Vec<f32>) = g.iter().rev().map(|value| (value * 0.7, value * 0.3)).unzip();
            let lambda = if decays { weight_decay } else { 0.0 };
            let kept = if again { momentum } else { keep };
            let define = |((w, v), g): ((&f32, &f32), &f32)| {
                let plain = scale as f32 * g + lambda * w;
                let gradient = if absorbed { rate * plain } else { plain };
                let v = kept * v + gradient;
                let taken = if nesterov { gradient + momentum * v } else { v };
                (if absorbed { w - taken } else { w - rate * taken }, v)
            };
            let expected: (Vec<f32>, Vec<f32>) = w.iter().zip(&v).zip(g).map(define).unzip();
            let of = Optimizer::update(scale, again).bind(&step.into());
            evaluate(&of, decays, &mut [Slice::Read(g), Slice::Written(&mut w), Slice::Written(&mut v)]);
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            prop_assert_eq!((bits(&w), bits(&v)), (bits(&expected.0), bits(&expected.1)));
        }
    }
}
