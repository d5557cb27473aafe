//! Tests addition, ReLU, sigmoid, tanh, sums of buffers, and bf16.

use std::cell::RefCell;

use lockstep_cuda::Bf16;
use lockstep_cuda::layers::kernels::{
    GeluBackward, GeluForward, SigmoidBackward, SigmoidForward, SiluBackward, SiluForward, TanhBackward, TanhForward,
};
use lockstep_cuda::table::{Add, AddInto, ReluBackward, ReluForward};
use lockstep_exec::device::cpu::add_into;
use lockstep_models::{Layer, Shape};
use proptest::prelude::*;
use rand::RngExt;

use crate::emulator::Emulator;
use crate::memory::{Memory, Real, rounded};
use crate::{OnCpu, Theme, any_batch, few, merged, near_in, property, same, same_in, size};

pub(crate) const THEME: Theme = Theme {
    kernels: &[
        "add",
        "add_into",
        "gelu_backward",
        "gelu_forward",
        "relu_backward",
        "relu_forward",
        "sigmoid_backward",
        "sigmoid_forward",
        "silu_backward",
        "silu_forward",
        "tanh_backward",
        "tanh_forward",
    ],
    play,
};

fn play(emulator: &RefCell<Emulator>) {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    property((any_batch(), flags), few(40), |((samples, shape), flags), memory| {
        let emulator = &mut emulator.borrow_mut();
        sums_and_rectifiers::<f32>(emulator, memory, samples, shape, flags);
        sums_and_rectifiers::<Bf16>(emulator, memory, samples, shape, flags);
        curves::<f32>(emulator, memory, samples, shape, flags);
        curves::<Bf16>(emulator, memory, samples, shape, flags);
        gelu::<f32>(emulator, memory, samples, shape, flags.2);
        gelu::<Bf16>(emulator, memory, samples, shape, flags.2);
        silu::<f32>(emulator, memory, samples, shape, flags.2);
        silu::<Bf16>(emulator, memory, samples, shape, flags.2);
    });
    property(1..3000usize, few(30), |elements, memory| buffers(&mut emulator.borrow_mut(), memory, elements));
}

/// y = a + b, and its gradient where it is rectified; y in a's place if `in_place`.
fn sums_and_rectifiers<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    samples: u32,
    shape: Shape,
    (rectified, in_place, accumulate): (bool, bool, bool),
) {
    let elements = samples as usize * size(shape);
    let (a, b, d) = (memory.reals::<A>(elements), memory.reals::<A>(elements), memory.reals::<A>(elements));
    let sum = rounded::<A>(&OnCpu::plain(&Layer::Add, &[shape, shape], samples, &[&a, &b]).output);
    let mut relu = OnCpu::plain(&Layer::Relu, &[shape], samples, &[&sum]);
    let expected = if rectified { &relu.output } else { &sum };
    let (held_a, held_b) = (memory.hold::<A>(&a), memory.hold::<A>(&b));
    let y = if in_place { held_a } else { memory.space(elements) };
    let count = elements as u32;
    emulator.play(memory, &Add { a: held_a.read(), b: held_b.read(), y: y.write(), elements: count, rectified });
    same_in(memory, y, expected, "sum");

    let x = memory.hold::<A>(&sum);
    let y = if in_place { x } else { memory.space(elements) };
    emulator.play(memory, &ReluForward { x: x.read(), y: y.write(), elements: count });
    same_in(memory, y, &relu.output, "relu");

    let [before, other_before] = [0, 1].map(|_| memory.reals::<A>(elements));
    let (d_y, d_x, d_other) = (memory.hold::<A>(&d), memory.hold::<A>(&before), memory.hold::<A>(&other_before));
    let (two, accumulate_other) = (memory.rng.random::<bool>(), memory.rng.random::<bool>());
    emulator.play(
        memory,
        &ReluBackward {
            d_y: d_y.read(),
            y: y.read(),
            d_x: d_x.write(),
            d_other: two.then(|| d_other.write()),
            elements: count,
            accumulate,
            accumulate_other,
        },
    );
    let (gradients, _) = relu.backward(&d);
    same_in(memory, d_x, &merged(&before, &gradients[0], accumulate), "relu's gradient");
    let expected = if two { merged(&other_before, &gradients[0], accumulate_other) } else { other_before };
    same_in(memory, d_other, &expected, "relu's gradient, to another input");
}

fn curves<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    samples: u32,
    shape: Shape,
    (hyperbolic, in_place, accumulate): (bool, bool, bool),
) {
    let elements = samples as usize * size(shape);
    let (values, d) = (memory.reals::<A>(elements), memory.reals::<A>(elements));
    let layer = if hyperbolic { Layer::Tanh } else { Layer::Sigmoid };
    let mut expected = OnCpu::plain(&layer, &[shape], samples, &[&values]);
    let x = memory.hold::<A>(&values);
    let y = if in_place { x } else { memory.space(elements) };
    let count = elements as u32;
    if hyperbolic {
        emulator.play(memory, &TanhForward { x: x.read(), y: y.write(), elements: count });
    } else {
        emulator.play(memory, &SigmoidForward { x: x.read(), y: y.write(), elements: count });
    }
    near_in(memory, y, &expected.output, "curve");

    expected.output = memory.wide(y);
    let before = memory.reals::<A>(elements);
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    if hyperbolic {
        emulator.play(
            memory,
            &TanhBackward { d_y: d_y.read(), y: y.read(), d_x: d_x.write(), elements: count, accumulate },
        );
    } else {
        let launch = SigmoidBackward { d_y: d_y.read(), y: y.read(), d_x: d_x.write(), elements: count, accumulate };
        emulator.play(memory, &launch);
    }
    let (gradients, _) = expected.backward(&d);
    near_in(memory, d_x, &merged(&before, &gradients[0], accumulate), "curve's gradient");
}

fn gelu<A: Real>(emulator: &mut Emulator, memory: &mut Memory, samples: u32, shape: Shape, accumulate: bool) {
    let elements = samples as usize * size(shape);
    let (values, d, before) = (memory.reals::<A>(elements), memory.reals::<A>(elements), memory.reals::<A>(elements));
    let mut expected = OnCpu::plain(&Layer::Gelu, &[shape], samples, &[&values]);
    let (x, y) = (memory.hold::<A>(&values), memory.space(elements));
    let count = elements as u32;
    emulator.play(memory, &GeluForward { x: x.read(), y: y.write(), elements: count });
    near_in(memory, y, &expected.output, "gelu");
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    emulator
        .play(memory, &GeluBackward { d_y: d_y.read(), x: x.read(), d_x: d_x.write(), elements: count, accumulate });
    let (gradients, _) = expected.backward(&d);
    near_in(memory, d_x, &merged(&before, &gradients[0], accumulate), "gelu's gradient");
}

fn silu<A: Real>(emulator: &mut Emulator, memory: &mut Memory, samples: u32, shape: Shape, accumulate: bool) {
    let elements = samples as usize * size(shape);
    let (values, d, before) = (memory.reals::<A>(elements), memory.reals::<A>(elements), memory.reals::<A>(elements));
    let mut expected = OnCpu::plain(&Layer::Silu, &[shape], samples, &[&values]);
    let (x, y) = (memory.hold::<A>(&values), memory.space(elements));
    let count = elements as u32;
    emulator.play(memory, &SiluForward { x: x.read(), y: y.write(), elements: count });
    near_in(memory, y, &expected.output, "silu");
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    emulator
        .play(memory, &SiluBackward { d_y: d_y.read(), x: x.read(), d_x: d_x.write(), elements: count, accumulate });
    let (gradients, _) = expected.backward(&d);
    near_in(memory, d_x, &merged(&before, &gradients[0], accumulate), "silu's gradient");
}

/// Sums of buffers.
fn buffers(emulator: &mut Emulator, memory: &mut Memory, elements: usize) {
    let (mut a, b) = (memory.values(elements), memory.values(elements));
    let (held_a, held_b) = (memory.put(&a), memory.put(&b));
    add_into(&mut a, &b);
    let count = elements as u64;
    emulator.play(memory, &AddInto { a: held_a.write(), b: held_b.read(), elements: count });
    same(&memory.get(held_a), &a, "sum of buffers");
}
