//! Steps on whole ranges of parameters in one launch, against the CPU device's steps on one tensor after the other, to the bit.

use std::cell::RefCell;
use std::ops::Range;

use lockstep_cuda::table::{Average, Correct, Descend, MoveReference, SgdUpdate};
use lockstep_exec::device::cpu::{self, Slope};
use lockstep_models::SgdStep;
use proptest::prelude::*;

use crate::memory::Memory;
use crate::twin::Twin;
use crate::{Theme, few, property, same};

pub(crate) const THEME: Theme =
    Theme { kernels: &["correct", "descend", "move_average", "move_reference", "sgd_step"], play };

/// The tensors of a model, some of which decay, and a range of all their elements.
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

    /// The parts of the range that decay alike, as the CPU device takes them.
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

fn play(twin: &RefCell<Twin>) {
    let numbers = (0.001f32..1.0, 0.1f32..1.0, 0.0f32..1.0, 0.0f32..1.0, 0.0f32..0.5, any::<bool>(), any::<bool>());
    property((any_tensors(), numbers), few(60), |(tensors, numbers), memory| {
        let (rate, gradient, keep, momentum, weight_decay, absorbed, nesterov) = numbers;
        let decay_batch_norm = false;
        let step = SgdStep { rate, gradient, keep, momentum, absorbed, nesterov, weight_decay, decay_batch_norm };
        steps(&mut twin.borrow_mut(), memory, &tensors, &step);
    });
    let numbers = (0.001f32..1.0, 0.0f32..0.5, 0.01f32..1.0, any::<bool>());
    property((any_tensors(), numbers), few(60), |(tensors, (rate, decay, alpha, flag)), memory| {
        learners(&mut twin.borrow_mut(), memory, &tensors, Slope { rate, weight_decay: decay }, alpha, flag);
        shared_models(&mut twin.borrow_mut(), memory, tensors.range.len(), alpha, flag);
    });
}

fn steps(twin: &mut Twin, memory: &mut Memory, tensors: &Tensors, step: &SgdStep) {
    let (all, range) = (tensors.all(), tensors.range.clone());
    let (mut w, mut v, g) = (memory.values(all), memory.values(all), memory.values(all));
    let (weights, velocity, gradient) = (memory.put(&w), memory.put(&v), memory.put(&g));
    let launch = SgdUpdate {
        weights: weights.part(range.clone()).write(),
        velocity: velocity.part(range.clone()).write(),
        gradient: gradient.part(range.clone()).read(),
        mask: memory.put(&tensors.mask()).read(),
        first: range.start as u64,
        elements: range.len() as u64,
        rate: step.rate,
        part: step.gradient,
        keep: step.keep,
        momentum: step.momentum,
        weight_decay: step.weight_decay,
        absorbed: step.absorbed,
        nesterov: step.nesterov,
    };
    twin.play(memory, &launch);
    for (part, decays) in tensors.parts() {
        let step = SgdStep { weight_decay: if decays { step.weight_decay } else { 0.0 }, ..*step };
        cpu::sgd_step(&step, &mut w[part.clone()], &mut v[part.clone()], &g[part]);
    }
    same(&memory.get(velocity), &v, "velocity");
    same(&memory.get(weights), &w, "weights");
}

fn learners(twin: &mut Twin, memory: &mut Memory, tensors: &Tensors, slope: Slope, alpha: f32, learned: bool) {
    let (all, range) = (tensors.all(), tensors.range.clone());
    let (mut w, g, z) = (memory.values(all), memory.values(all), memory.values(all));
    let mut c = vec![f32::NAN; all];
    let (weights, gradient) = (memory.put(&w), memory.put(&g));
    let (average, difference) = (memory.put(&z), memory.space::<f32>(all));
    let mask = memory.put(&tensors.mask()).read();
    let (first, elements) = (range.start as u64, range.len() as u64);
    let Slope { rate, weight_decay } = slope;
    let down = Descend {
        weights: weights.part(range.clone()).write(),
        gradient: gradient.part(range.clone()).read(),
        mask,
        first,
        elements,
        rate,
        weight_decay,
    };
    twin.play(memory, &down);
    let towards = Correct {
        weights: weights.part(range.clone()).write(),
        gradient: learned.then(|| gradient.part(range.clone()).read()),
        average: average.part(range.clone()).read(),
        difference: difference.part(range).write(),
        mask,
        first,
        elements,
        rate,
        weight_decay,
        alpha,
    };
    twin.play(memory, &towards);
    for (part, decays) in tensors.parts() {
        let slope = Slope { weight_decay: if decays { weight_decay } else { 0.0 }, ..slope };
        cpu::descend(slope, &mut w[part.clone()], &g[part.clone()]);
        let gradient = learned.then(|| &g[part.clone()]);
        cpu::correct(slope, alpha, &mut w[part.clone()], gradient, &z[part.clone()], &mut c[part]);
    }
    same(&memory.get(weights), &w, "a learner's weights");
    same(&memory.get(difference), &c, "a learner's difference");
}

fn shared_models(twin: &mut Twin, memory: &mut Memory, elements: usize, alpha: f32, plain: bool) {
    let (mut r, mut z, mut c) = (memory.values(elements), memory.values(elements), memory.values(elements));
    let mut before = memory.values(elements);
    let (reference, average) = (memory.put(&r), memory.put(&z));
    let (difference, previous) = (memory.put(&c), memory.put(&before));
    let count = elements as u64;
    let own = MoveReference {
        reference: reference.write(),
        average: average.read(),
        difference: difference.write(),
        elements: count,
        alpha,
    };
    twin.play(memory, &own);
    cpu::move_reference(alpha, &mut r, &z, &mut c);
    same(&memory.get(reference), &r, "reference model");
    same(&memory.get(difference), &c, "the reference's difference");
    let all = Average {
        average: average.write(),
        sum: difference.read(),
        previous: previous.write(),
        elements: count,
        momentum: alpha,
        plain,
    };
    twin.play(memory, &all);
    cpu::average((!plain).then_some(alpha), &mut z, &c, &mut before);
    same(&memory.get(average), &z, "average model");
    same(&memory.get(previous), &before, "previous average model");
}
