//! Addition, ReLU, sigmoid, tanh, sums of buffers, and bf16.

use std::cell::RefCell;

use lockstep_exec::device::cpu::add_into;
use lockstep_exec::device::cuda::Bf16;
use lockstep_exec::device::cuda::table::{
    Add, AddInto, CurveBackward, CurveForward, FromBf16, ReluBackward, ReluForward, ToBf16,
};
use lockstep_models::{Layer, Shape};
use proptest::prelude::*;
use rand::RngExt;

use crate::memory::{Memory, Real, rounded};
use crate::twin::Twin;
use crate::{OnCpu, Theme, any_batch, merged, near_in, property, same, same_in, size};

pub(crate) const THEME: Theme = Theme {
    kernels: &[
        "add",
        "add_into",
        "curve_backward",
        "curve_forward",
        "from_bf16",
        "relu_backward",
        "relu_forward",
        "to_bf16",
    ],
    play,
};

fn play(twin: &RefCell<Twin>) {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    property((any_batch(), flags), 40, |((samples, shape), flags), memory| {
        let twin = &mut twin.borrow_mut();
        sums_and_rectifiers::<f32>(twin, memory, samples, shape, flags);
        sums_and_rectifiers::<Bf16>(twin, memory, samples, shape, flags);
        curves::<f32>(twin, memory, samples, shape, flags);
        curves::<Bf16>(twin, memory, samples, shape, flags);
    });
    property(1..3000usize, 30, |elements, memory| buffers(&mut twin.borrow_mut(), memory, elements));
}

/// y = a + b, and its gradient where it is rectified; y in a's place if `in_place`.
fn sums_and_rectifiers<A: Real>(
    twin: &mut Twin,
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
    twin.play(memory, &Add { a: held_a.read(), b: held_b.read(), y: y.write(), elements: count, rectified });
    same_in(memory, y, expected, "sum");

    let x = memory.hold::<A>(&sum);
    let y = if in_place { x } else { memory.space(elements) };
    twin.play(memory, &ReluForward { x: x.read(), y: y.write(), elements: count });
    same_in(memory, y, &relu.output, "relu");

    let before = memory.reals::<A>(elements);
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    let launch = ReluBackward { d_y: d_y.read(), y: y.read(), d_x: d_x.write(), elements: count, accumulate };
    twin.play(memory, &launch);
    let (slopes, _) = relu.backward(&d);
    same_in(memory, d_x, &merged(&before, &slopes[0], accumulate), "relu's gradient");
}

fn curves<A: Real>(
    twin: &mut Twin,
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
    twin.play(memory, &CurveForward { x: x.read(), y: y.write(), elements: count, hyperbolic });
    near_in(memory, y, &expected.output, "curve");

    expected.output = memory.wide(y);
    let before = memory.reals::<A>(elements);
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    let launch =
        CurveBackward { d_y: d_y.read(), y: y.read(), d_x: d_x.write(), elements: count, hyperbolic, accumulate };
    twin.play(memory, &launch);
    let (slopes, _) = expected.backward(&d);
    near_in(memory, d_x, &merged(&before, &slopes[0], accumulate), "curve's gradient");
}

/// Sums of buffers, and bf16 there and back, over numbers of every size.
fn buffers(twin: &mut Twin, memory: &mut Memory, elements: usize) {
    let (mut a, b) = (memory.values(elements), memory.values(elements));
    let (held_a, held_b) = (memory.put(&a), memory.put(&b));
    add_into(&mut a, &b);
    let count = elements as u64;
    twin.play(memory, &AddInto { a: held_a.write(), b: held_b.read(), elements: count });
    same(&memory.get(held_a), &a, "sum of buffers");

    // Every exponent and sign, ties, and what is no number.
    let mut wild: Vec<f32> = (0..elements).map(|_| f32::from_bits(memory.rng.random())).collect();
    let special =
        [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x8000_0000];
    wild.iter_mut().zip(special).for_each(|(value, bits)| *value = f32::from_bits(bits));
    let (x, y) = (memory.put(&wild), memory.space::<Bf16>(elements));
    twin.play(memory, &ToBf16 { x: x.read(), y: y.write(), elements: count });
    let rounded = memory.get(y);
    for (value, bits) in wild.iter().zip(&rounded) {
        let back = bits.wide();
        let right = if value.is_nan() { back.is_nan() } else { *bits == Bf16::nearest(*value) };
        assert!(right, "{value:e} became {back:e}");
    }
    let expected: Vec<f32> = rounded.iter().map(|bits| bits.wide()).collect();
    for accumulate in [false, true] {
        let before = memory.values(elements);
        let back = memory.put(&before);
        twin.play(memory, &FromBf16 { x: y.read(), y: back.write(), elements: count, accumulate });
        same(&memory.get(back), &merged(&before, &expected, accumulate), "bf16 as fp32");
    }
}
