//! Tests pooling over windows and planes, and local response normalisation.

use std::cell::RefCell;

use lockstep_cuda::Bf16;
use lockstep_cuda::layers::kernels::{
    GlobalPoolBackward, GlobalPoolForward, LocalResponseBackward, LocalResponseForward, LocalResponseRatios,
    MaxPoolBackward, MaxPoolForward, MeanPoolBackward, MeanPoolForward, PoolingWindow, Response,
};
use lockstep_models::{Layer, LocalResponseNorm, Pool2d, PoolKind, Shape};
use proptest::prelude::*;

use crate::emulator::Emulator;
use crate::memory::{Memory, Real};
use crate::{OnCpu, Theme, any_batch, few, merged, near_in, plane, property, same_in, size};

pub(crate) const THEME: Theme = Theme {
    kernels: &[
        "global_pool_backward",
        "global_pool_forward",
        "local_response_backward",
        "local_response_forward",
        "local_response_ratios",
        "max_pool_backward",
        "max_pool_forward",
        "mean_pool_backward",
        "mean_pool_forward",
    ],
    play,
};

/// The memory layout of tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

use Layout::{ChannelsFirst, ChannelsLast};

impl Layout {
    /// `[samples, channels, plane]` in this layout.
    fn of(self, values: &[f32], channels: u32, plane: u32) -> Vec<f32> {
        let (channels, plane) = (channels as usize, plane as usize);
        if self == ChannelsFirst {
            return values.to_vec();
        }
        let turned = |sample: &[f32]| -> Vec<f32> {
            (0..plane).flat_map(|place| sample.iter().skip(place).step_by(plane).copied().collect::<Vec<_>>()).collect()
        };
        values.chunks_exact(channels * plane).flat_map(turned).collect()
    }

    /// Number of images, and elements at each of their places.
    fn images(self, samples: u32, channels: u32) -> (u32, u32) {
        if self == ChannelsFirst { (samples * channels, 1) } else { (samples, channels) }
    }
}

/// A batch with channels first, last, or last and a multiple of four of them.
fn laid((samples, shape): (u32, Shape)) -> impl Strategy<Value = (u32, Shape, Layout)> {
    let fours = shape.with_features(shape.features().next_multiple_of(4));
    prop_oneof![
        Just((samples, shape, ChannelsFirst)),
        Just((samples, shape, ChannelsLast)),
        Just((samples, fours, ChannelsLast)),
    ]
}

fn any_pool() -> impl Strategy<Value = ((u32, Shape, Layout), Pool2d)> {
    let pair = |range: std::ops::RangeInclusive<u32>| (range.clone(), range);
    let filter = (pair(1..=4), pair(1..=3), pair(0..=1), any::<bool>(), any::<bool>());
    let all = (any_batch().prop_flat_map(laid), filter).prop_map(|(batch, (kernel, stride, padding, ceil, max))| {
        let kind = if max { PoolKind::Max } else { PoolKind::Average };
        (batch, Pool2d { kind, kernel, stride, padding, ceil, count_padding: !max && ceil != (kernel.0 > 1) })
    });
    all.prop_filter("shapes that fit", |((_, shape, _), layer)| {
        Layer::Pool2d(layer.clone()).output_shape(&[*shape]).is_ok()
    })
}

fn play(emulator: &RefCell<Emulator>) {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    property((any_pool(), flags), few(150), |((batch, layer), flags), memory| {
        let emulator = &mut emulator.borrow_mut();
        match layer.kind {
            PoolKind::Max => {
                largest::<f32>(emulator, memory, batch, &layer, flags);
                largest::<Bf16>(emulator, memory, batch, &layer, flags);
            }
            PoolKind::Average => {
                means::<f32>(emulator, memory, batch, &layer, flags.0);
                means::<Bf16>(emulator, memory, batch, &layer, flags.0);
            }
        }
    });
    property((any_batch().prop_flat_map(laid), any::<bool>()), few(60), |(batch, accumulate), memory| {
        means_of_planes::<f32>(&mut emulator.borrow_mut(), memory, batch, accumulate);
        means_of_planes::<Bf16>(&mut emulator.borrow_mut(), memory, batch, accumulate);
    });
    let layer = (0..4u32, prop_oneof![Just(0.75f32), 0.3f32..1.2]).prop_map(|(half, beta)| LocalResponseNorm {
        size: 2 * half + 1,
        alpha: 0.3,
        beta,
        k: 1.5,
    });
    property((any_batch().prop_flat_map(laid), layer, any::<bool>()), few(50), |(batch, layer, accumulate), memory| {
        responses::<f32>(&mut emulator.borrow_mut(), memory, batch, &layer, accumulate);
        responses::<Bf16>(&mut emulator.borrow_mut(), memory, batch, &layer, accumulate);
    });
}

/// The maximum of each window, optionally with a bias and a ReLU: few distinct values, so that many are equal.
fn largest<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (samples, shape, layout): (u32, Shape, Layout),
    layer: &Pool2d,
    (biased, rectified, accumulate): (bool, bool, bool),
) {
    let elements = samples as usize * size(shape);
    let values: Vec<f32> = memory.reals::<A>(elements).iter().map(|value| (value * 3.0).round() / 4.0).collect();
    let biases: Vec<f32> = memory.values(shape.features() as usize).iter().map(|value| value.round() / 8.0).collect();
    let channel = |at: usize| at / plane(shape) as usize % shape.features() as usize;
    let mut shifted = values.clone();
    if biased {
        shifted.iter_mut().enumerate().for_each(|(at, value)| *value += biases[channel(at)]);
    }
    let pool = Layer::Pool2d(layer.clone());
    let output = pool.output_shape(&[shape]).expect("shapes that fit");
    let mut pooled = OnCpu::plain(&pool, &[shape], samples, &[&shifted]);
    let mut relu = OnCpu::plain(&Layer::Relu, &[output], samples, &[&pooled.output]);
    let (images, inner) = layout.images(samples, shape.features());
    let window = PoolingWindow::of(layer, shape, output).inner(inner);
    let outputs = pooled.output.len();
    let lay = |values: &[f32]| layout.of(values, shape.features(), plane(shape));
    let lay_output = |values: &[f32]| layout.of(values, shape.features(), plane(output));
    let (y, best) = (memory.space::<A>(outputs), memory.space::<u32>(outputs));
    let forward = MaxPoolForward {
        x: memory.hold::<A>(&lay(&values)).read(),
        biases: biased.then(|| memory.put(&biases).read()),
        y: y.write(),
        best: best.write(),
        images,
        channels: shape.features(),
        window,
        rectified,
    };
    emulator.play(memory, &forward);
    same_in(memory, y, &lay_output(if rectified { &relu.output } else { &pooled.output }), "largest");

    let (d, before) = (memory.reals::<A>(outputs), memory.reals::<A>(elements));
    let d_x = memory.hold::<A>(&lay(&before));
    let backward = MaxPoolBackward {
        d_y: memory.hold::<A>(&lay_output(&d)).read(),
        y: rectified.then(|| y.read()),
        best: best.read(),
        d_x: d_x.write(),
        images,
        window,
        rectified,
        accumulate,
    };
    emulator.play(memory, &backward);
    let gradients = if rectified { relu.backward(&d).0.remove(0) } else { d };
    let (d_inputs, _) = pooled.backward(&gradients);
    same_in(memory, d_x, &lay(&merged(&before, &d_inputs[0], accumulate)), "gradient before the largest");
}

fn means<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (samples, shape, layout): (u32, Shape, Layout),
    layer: &Pool2d,
    accumulate: bool,
) {
    let elements = samples as usize * size(shape);
    let values = memory.reals::<A>(elements);
    let pool = Layer::Pool2d(layer.clone());
    let output = pool.output_shape(&[shape]).expect("shapes that fit");
    let (images, inner) = layout.images(samples, shape.features());
    let window = PoolingWindow::of(layer, shape, output).inner(inner);
    let lay = |values: &[f32]| layout.of(values, shape.features(), plane(shape));
    let lay_output = |values: &[f32]| layout.of(values, shape.features(), plane(output));
    let mut expected = OnCpu::plain(&pool, &[shape], samples, &[&values]);
    let outputs = expected.output.len();
    let y = memory.space::<A>(outputs);
    let x = memory.hold::<A>(&lay(&values));
    emulator.play(memory, &MeanPoolForward { x: x.read(), y: y.write(), images, window });
    same_in(memory, y, &lay_output(&expected.output), "mean");

    let (d, before) = (memory.reals::<A>(outputs), memory.reals::<A>(elements));
    let (d_y, d_x) = (memory.hold::<A>(&lay_output(&d)), memory.hold::<A>(&lay(&before)));
    emulator.play(memory, &MeanPoolBackward { d_y: d_y.read(), d_x: d_x.write(), images, window, accumulate });
    let (d_inputs, _) = expected.backward(&d);
    same_in(memory, d_x, &lay(&merged(&before, &d_inputs[0], accumulate)), "gradient before the mean");
}

fn means_of_planes<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (samples, shape, layout): (u32, Shape, Layout),
    accumulate: bool,
) {
    let elements = samples as usize * size(shape);
    let values = memory.reals::<A>(elements);
    let mut expected = OnCpu::plain(&Layer::GlobalPool, &[shape], samples, &[&values]);
    let (outputs, plane) = ((samples * shape.features()) as usize, plane(shape));
    let (images, inner) = layout.images(samples, shape.features());
    let lay = |values: &[f32]| layout.of(values, shape.features(), plane);
    let y = memory.space::<A>(outputs);
    let x = memory.hold::<A>(&lay(&values));
    emulator.play(memory, &GlobalPoolForward { x: x.read(), y: y.write(), images, plane, inner });
    near_in(memory, y, &expected.output, "mean of planes");

    let (d, before) = (memory.reals::<A>(outputs), memory.reals::<A>(elements));
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&lay(&before)));
    let launch = GlobalPoolBackward { d_y: d_y.read(), d_x: d_x.write(), images, plane, inner, accumulate };
    emulator.play(memory, &launch);
    let (d_inputs, _) = expected.backward(&d);
    same_in(memory, d_x, &lay(&merged(&before, &d_inputs[0], accumulate)), "gradient before the mean of planes");
}

fn responses<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (samples, shape, layout): (u32, Shape, Layout),
    layer: &LocalResponseNorm,
    accumulate: bool,
) {
    let elements = samples as usize * size(shape);
    let (values, d) = (memory.reals::<A>(elements), memory.reals::<A>(elements));
    let mut expected = OnCpu::plain(&Layer::LocalResponseNorm(layer.clone()), &[shape], samples, &[&values]);
    let (first, count) = (Response::of(layer, shape), elements as u32);
    let of = if layout == ChannelsLast { first.channels_last() } else { first };
    let lay = |values: &[f32]| layout.of(values, shape.features(), plane(shape));
    let (x, y) = (memory.hold::<A>(&lay(&values)), memory.space::<A>(elements));
    emulator.play(memory, &LocalResponseForward { x: x.read(), y: y.write(), elements: count, of });
    near_in(memory, y, &lay(&expected.output), "response");

    // Transposed back: places and channels change roles.
    expected.output = layout.of(&memory.wide(y), plane(shape), shape.features());
    let (d_y, ratios) = (memory.hold::<A>(&lay(&d)), memory.space::<f32>(elements));
    let before = memory.reals::<A>(elements);
    let d_x = memory.hold::<A>(&lay(&before));
    let launch =
        LocalResponseRatios { d_y: d_y.read(), x: x.read(), y: y.read(), ratios: ratios.write(), elements: count, of };
    emulator.play(memory, &launch);
    let launch = LocalResponseBackward {
        d_y: d_y.read(),
        x: x.read(),
        ratios: ratios.read(),
        d_x: d_x.write(),
        elements: count,
        of,
        accumulate,
    };
    emulator.play(memory, &launch);
    let (d_inputs, _) = expected.backward(&d);
    near_in(memory, d_x, &lay(&merged(&before, &d_inputs[0], accumulate)), "gradient before the response");
}
