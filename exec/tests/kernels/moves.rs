//! Rows that move, and channels that change places.

use std::cell::RefCell;

use lockstep_exec::device::cuda::Bf16;
use lockstep_exec::device::cuda::table::{MoveRows, Permute};
use lockstep_models::{Layer, Shape};
use proptest::prelude::*;

use crate::memory::{Memory, Real};
use crate::twin::Twin;
use crate::{OnCpu, Theme, merged, property, same_in, size};

pub(crate) const THEME: Theme = Theme { kernels: &["move_rows", "permute"], play };

fn play(twin: &RefCell<Twin>) {
    let inputs = proptest::collection::vec(1..9u32, 2..5);
    property((1..5u32, inputs, 1..9u32, any::<bool>()), 40, |(samples, channels, width, accumulate), memory| {
        let twin = &mut twin.borrow_mut();
        concatenations::<f32, f32>(twin, memory, samples, &channels, width, accumulate);
        concatenations::<f32, Bf16>(twin, memory, samples, &channels, width, accumulate);
        concatenations::<Bf16, f32>(twin, memory, samples, &channels, width, accumulate);
        concatenations::<Bf16, Bf16>(twin, memory, samples, &channels, width, accumulate);
    });
    // Filters and images, whose one side is short; feature maps; both sides of one place; several tiles in each direction.
    let small = (1..4u32, 1..10u32, 1..10u32);
    let short = (1..3u32, 1..4u32, 300..1500u32);
    let wide = (1..3u32, 1..100u32, 1..100u32);
    let sizes = prop_oneof![small, short.clone(), short.prop_map(|(samples, a, b)| (samples, b, a)), wide];
    property((sizes, any::<bool>()), 60, |(sizes, accumulate), memory| {
        let twin = &mut twin.borrow_mut();
        turned::<f32, f32>(twin, memory, sizes, accumulate);
        turned::<f32, Bf16>(twin, memory, sizes, accumulate);
        turned::<Bf16, f32>(twin, memory, sizes, accumulate);
        turned::<Bf16, Bf16>(twin, memory, sizes, accumulate);
    });
}

/// A concatenation is a launch an input, and its gradient too.
fn concatenations<F: Real, T: Real>(
    twin: &mut Twin,
    memory: &mut Memory,
    samples: u32,
    channels: &[u32],
    width: u32,
    accumulate: bool,
) {
    let shapes: Vec<Shape> = channels.iter().map(|channels| Shape { channels: *channels, height: 1, width }).collect();
    let inputs: Vec<Vec<f32>> = shapes.iter().map(|shape| memory.reals::<F>(samples as usize * size(*shape))).collect();
    let views: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut concat = OnCpu::plain(&Layer::Concat, &shapes, samples, &views);
    let out: u32 = shapes.iter().map(|shape| size(*shape) as u32).sum();
    let y = memory.space::<T>(concat.output.len());
    let d = memory.reals::<F>(concat.output.len());
    let (slopes, _) = concat.backward(&d);
    let d_y = memory.hold::<F>(&d);
    let mut first = 0;
    for ((shape, input), slopes) in shapes.iter().zip(&inputs).zip(&slopes) {
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
        twin.play(memory, &launch);
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
        twin.play(memory, &launch);
        same_in(memory, d_x, &merged(&before, slopes, accumulate), "concat's gradient");
        first += row(length);
    }
    same_in(memory, y, &concat.output, "concat");
}

/// Element (sample, row, column) goes to (sample, column, row).
fn turned<F: Real, T: Real>(twin: &mut Twin, memory: &mut Memory, sizes: (u32, u32, u32), accumulate: bool) {
    let (samples, rows, columns) = sizes;
    let elements = (samples * rows * columns) as usize;
    let (values, before) = (memory.reals::<F>(elements), memory.reals::<T>(elements));
    let to = memory.hold::<T>(&before);
    let launch = Permute { from: memory.hold::<F>(&values).read(), to: to.write(), samples, rows, columns, accumulate };
    twin.play(memory, &launch);
    let mut expected = Vec::new();
    for sample in values.chunks_exact((rows * columns) as usize) {
        for column in 0..columns as usize {
            expected.extend(sample.iter().skip(column).step_by(columns as usize));
        }
    }
    same_in(memory, to, &merged(&before, &expected, accumulate), "turned");
}
