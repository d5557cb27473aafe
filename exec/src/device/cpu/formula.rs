//! Evaluates a formula on slices of its buffers, block by block, so that each buffer passes through memory once.

use lockstep_models::{BoundFormula, BoundTerm, Formula};

use crate::simd::wide;

/// Elements of a block: those of all operands lie in the first cache until the formula is through with them.
const BLOCK: usize = 512;

/// What a formula may take: its buffers, and then as many intermediate results.
const OPERANDS: usize = 2 * Formula::MOST_OPERANDS;

/// A range of one of a formula's buffers.
#[derive(Debug, Default)]
pub enum Slice<'a> {
    /// None: the place of an operand that is being written.
    #[default]
    Nothing,
    /// One that the formula only reads.
    Read(&'a [f32]),
    /// One that it writes.
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

/// Evaluates `formula` element by element; `buffers` are ranges of its buffers, in its order and of one length. Weight decay
/// spares the range unless it `decays`.
///
/// ```
/// # use lockstep_exec::device::cpu::{Slice, evaluate};
/// # use lockstep_models::{Buffer, Coefficient, Formula, Operand, SgdStep, StepNumbers};
/// // t ← g + λ·w, w ← w − γ·t with γ = 0.5 and λ = 0.25: 4 − 0.5·(1 + 0.25·4), and where λ spares w, 4 − 0.5·1.
/// let (w, g) = (Operand::Buffer(Buffer::Parameters), Operand::Buffer(Buffer::Gradients));
/// let t = Operand::Local(0);
/// let sgd = Formula::new("sgd").add(t, g, Coefficient::WeightDecay, w).subtract(w, w, Coefficient::Rate, t);
/// let step = SgdStep { weight_decay: 0.25, ..SgdStep::plain(0.5, 0.0) };
/// let sgd = sgd.bind(&StepNumbers { sgd: step, learned: true, moved: false });
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
                multiply_add(term, factor, &mut operands);
            }
        }
    });
}

/// One multiply-add on a block.
#[inline(always)]
fn multiply_add(term: &BoundTerm, factor: f32, operands: &mut [Slice<'_>; OPERANDS]) {
    let Slice::Written(to) = std::mem::take(&mut operands[term.to]) else {
        unreachable!("a formula says which buffers it writes");
    };
    let times = operands[term.times].all();
    let in_place = term.times == term.to;
    match term.plus {
        None if in_place => to.iter_mut().for_each(|t| *t *= factor),
        None => to.iter_mut().zip(times).for_each(|(t, b)| *t = factor * *b),
        Some(plus) if plus == term.to && in_place => to.iter_mut().for_each(|t| *t += factor * *t),
        Some(plus) if plus == term.to => to.iter_mut().zip(times).for_each(|(t, b)| *t += factor * *b),
        Some(plus) if in_place => {
            to.iter_mut().zip(operands[plus].all()).for_each(|(t, a)| *t = *a + factor * *t);
        }
        Some(plus) => {
            let sources = operands[plus].all().iter().zip(times);
            to.iter_mut().zip(sources).for_each(|(t, (a, b))| *t = *a + factor * *b);
        }
    }
    operands[term.to] = Slice::Written(to);
}
