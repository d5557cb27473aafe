//! Tests copies of rows, and transposes.

use std::cell::RefCell;

use lockstep_cuda::table::{MoveRows, Permute};
use lockstep_cuda::{Bf16, View, ViewMut};
use lockstep_models::{Layer, Shape};
use proptest::prelude::*;
use rand::RngExt;

use crate::emulator::Emulator;
use crate::memory::{Memory, Real};
use crate::{OnCpu, Theme, few, merged, property, same, same_in, size};

pub(crate) const THEME: Theme = Theme { kernels: &["move_rows", "permute"], play };

fn play(emulator: &RefCell<Emulator>) {
    let inputs = proptest::collection::vec(1..9u32, 2..5);
    property((1..5u32, inputs, 1..9u32, any::<bool>()), few(40), |(samples, channels, width, accumulate), memory| {
        let emulator = &mut emulator.borrow_mut();
        concatenations::<f32, f32>(emulator, memory, samples, &channels, width, accumulate);
        concatenations::<f32, Bf16>(emulator, memory, samples, &channels, width, accumulate);
        concatenations::<Bf16, f32>(emulator, memory, samples, &channels, width, accumulate);
        concatenations::<Bf16, Bf16>(emulator, memory, samples, &channels, width, accumulate);
    });
    property(1..200usize, few(40), |elements, memory| there_and_back(&mut emulator.borrow_mut(), memory, elements));
    // Filters and images, with one short side; feature maps; both sides of one place; several tiles in each direction.
    let small = (1..4u32, 1..10u32, 1..10u32);
    let short = (1..3u32, 1..4u32, 300..1500u32);
    let wide = (1..3u32, 1..100u32, 1..100u32);
    let sizes = prop_oneof![small, short.clone(), short.prop_map(|(samples, a, b)| (samples, b, a)), wide];
    property((sizes, any::<bool>()), few(60), |(sizes, accumulate), memory| {
        let emulator = &mut emulator.borrow_mut();
        turned::<f32, f32>(emulator, memory, sizes, accumulate);
        turned::<f32, Bf16>(emulator, memory, sizes, accumulate);
        turned::<Bf16, f32>(emulator, memory, sizes, accumulate);
        turned::<Bf16, Bf16>(emulator, memory, sizes, accumulate);
    });
}

/// Numbers of every exponent and sign, ties, and NaN, to bf16 and back.
fn there_and_back(emulator: &mut Emulator, memory: &mut Memory, elements: usize) {
    let mut wild: Vec<f32> = (0..elements).map(|_| f32::from_bits(memory.rng.random())).collect();
    let special =
        [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x8000_0000];
    wild.iter_mut().zip(special).for_each(|(value, bits)| *value = f32::from_bits(bits));
    let (x, y) = (memory.put(&wild), memory.space::<Bf16>(elements));
    play_all(emulator, memory, x.read(), y.write(), false);
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
        play_all(emulator, memory, y.read(), back.write(), accumulate);
        same(&memory.get(back), &merged(&before, &expected, accumulate), "bf16 as fp32");
    }
}

/// All of a tensor as one row.
fn play_all<F: Real, T: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    from: View<F>,
    to: ViewMut<T>,
    accumulate: bool,
) {
    let (rows, length, stride) = (1, from.elements() as u32, from.elements());
    let (from_first, from_stride, to_first, to_stride) = (0, stride, 0, stride);
    emulator
        .play(memory, &MoveRows { from, from_first, from_stride, to, to_first, to_stride, rows, length, accumulate });
}

/// A concatenation takes one launch per input, and its gradient too.
fn concatenations<F: Real, T: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    samples: u32,
    channels: &[u32],
    width: u32,
    accumulate: bool,
) {
    let shapes: Vec<Shape> = channels.iter().map(|channels| Shape::of_image(*channels, 1, width)).collect();
    let inputs: Vec<Vec<f32>> = shapes.iter().map(|shape| memory.reals::<F>(samples as usize * size(*shape))).collect();
    let views: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut concat = OnCpu::plain(&Layer::Concat, &shapes, samples, &views);
    let out: u32 = shapes.iter().map(|shape| size(*shape) as u32).sum();
    let y = memory.space::<T>(concat.output.len());
    let d = memory.reals::<F>(concat.output.len());
    let (gradients, _) = concat.backward(&d);
    let d_y = memory.hold::<F>(&d);
    let mut first = 0;
    for ((shape, input), gradients) in shapes.iter().zip(&inputs).zip(&gradients) {
        let length = size(*shape) as u32;
        let row = |of: u32| u64::from(of);
        let x = memory.hold::<F>(input);
        let launch = MoveRows {
            from: x.read(),
            from_first: 0,
            from_stride: row(length),
            to: y.write(),
            to_first: first,
            to_stride: row(out),
            rows: samples,
            length,
            accumulate: false,
        };
        emulator.play(memory, &launch);
        let before = memory.reals::<T>(input.len());
        let d_x = memory.hold::<T>(&before);
        let launch = MoveRows {
            from: d_y.read(),
            from_first: first,
            from_stride: row(out),
            to: d_x.write(),
            to_first: 0,
            to_stride: row(length),
            rows: samples,
            length,
            accumulate,
        };
        emulator.play(memory, &launch);
        same_in(memory, d_x, &merged(&before, gradients, accumulate), "concat's gradient");
        first += row(length);
    }
    same_in(memory, y, &concat.output, "concat");
}

/// Element (sample, row, column) goes to (sample, column, row).
fn turned<F: Real, T: Real>(emulator: &mut Emulator, memory: &mut Memory, sizes: (u32, u32, u32), accumulate: bool) {
    let (samples, rows, columns) = sizes;
    let elements = (samples * rows * columns) as usize;
    let (values, before) = (memory.reals::<F>(elements), memory.reals::<T>(elements));
    let to = memory.hold::<T>(&before);
    let launch = Permute { from: memory.hold::<F>(&values).read(), to: to.write(), samples, rows, columns, accumulate };
    emulator.play(memory, &launch);
    let mut expected = Vec::new();
    for sample in values.chunks_exact((rows * columns) as usize) {
        for column in 0..columns as usize {
            expected.extend(sample.iter().skip(column).step_by(columns as usize));
        }
    }
    same_in(memory, to, &merged(&before, &expected, accumulate), "turned");
}
