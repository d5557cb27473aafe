//! Pooling over windows and planes, and local response normalisation.

use std::cell::RefCell;

use lockstep_exec::device::cuda::Bf16;
use lockstep_exec::device::cuda::table::{
    GlobalPoolBackward, GlobalPoolForward, LocalResponseBackward, LocalResponseForward, LocalResponseRatios,
    MaxPoolBackward, MaxPoolForward, MeanPoolBackward, MeanPoolForward, Response, Window,
};
use lockstep_models::{Layer, LocalResponseNorm, Pool2d, PoolKind, Shape};
use proptest::prelude::*;

use crate::memory::{Memory, Real};
use crate::twin::Twin;
use crate::{OnCpu, Theme, any_batch, merged, near_in, plane, property, same_in, size};

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

fn any_pool() -> impl Strategy<Value = (u32, Shape, Pool2d)> {
    let pair = |range: std::ops::RangeInclusive<u32>| (range.clone(), range);
    let filter = (pair(1..=4), pair(1..=3), pair(0..=1), any::<bool>(), any::<bool>());
    let all = (any_batch(), filter).prop_map(|((samples, shape), (kernel, stride, padding, ceil, max))| {
        let kind = if max { PoolKind::Max } else { PoolKind::Average };
        (samples, shape, Pool2d { kind, kernel, stride, padding, ceil })
    });
    all.prop_filter("shapes that fit", |(_, shape, layer)| Layer::Pool2d(layer.clone()).output_shape(&[*shape]).is_ok())
}

fn play(twin: &RefCell<Twin>) {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    property((any_pool(), flags), 100, |((samples, shape, layer), flags), memory| {
        let twin = &mut twin.borrow_mut();
        match layer.kind {
            PoolKind::Max => {
                largest::<f32>(twin, memory, samples, shape, &layer, flags);
                largest::<Bf16>(twin, memory, samples, shape, &layer, flags);
            }
            PoolKind::Average => {
                means::<f32>(twin, memory, samples, shape, &layer, flags.0);
                means::<Bf16>(twin, memory, samples, shape, &layer, flags.0);
            }
        }
    });
    property((any_batch(), any::<bool>()), 30, |((samples, shape), accumulate), memory| {
        means_of_planes::<f32>(&mut twin.borrow_mut(), memory, samples, shape, accumulate);
        means_of_planes::<Bf16>(&mut twin.borrow_mut(), memory, samples, shape, accumulate);
    });
    let layer = (0..4u32, prop_oneof![Just(0.75f32), 0.3f32..1.2]).prop_map(|(half, beta)| LocalResponseNorm {
        size: 2 * half + 1,
        alpha: 0.3,
        beta,
        k: 1.5,
    });
    property((any_batch(), layer, any::<bool>()), 40, |((samples, shape), layer, accumulate), memory| {
        responses::<f32>(&mut twin.borrow_mut(), memory, samples, shape, &layer, accumulate);
        responses::<Bf16>(&mut twin.borrow_mut(), memory, samples, shape, &layer, accumulate);
    });
}

/// The largest of each window, with a bias and a ReLU if wanted: values of few kinds, so that many are equal.
fn largest<A: Real>(
    twin: &mut Twin,
    memory: &mut Memory,
    samples: u32,
    shape: Shape,
    layer: &Pool2d,
    (biased, rectified, accumulate): (bool, bool, bool),
) {
    let elements = samples as usize * size(shape);
    let values: Vec<f32> = memory.reals::<A>(elements).iter().map(|value| (value * 3.0).round() / 4.0).collect();
    let summands: Vec<f32> = memory.values(shape.channels as usize).iter().map(|value| value.round() / 8.0).collect();
    let channel = |at: usize| at / plane(shape) as usize % shape.channels as usize;
    let mut shifted = values.clone();
    if biased {
        shifted.iter_mut().enumerate().for_each(|(at, value)| *value += summands[channel(at)]);
    }
    let pool = Layer::Pool2d(layer.clone());
    let output = pool.output_shape(&[shape]).expect("shapes that fit");
    let mut pooled = OnCpu::plain(&pool, &[shape], samples, &[&shifted]);
    let mut relu = OnCpu::plain(&Layer::Relu, &[output], samples, &[&pooled.output]);
    let window = Window::of(layer, shape, output);
    let outputs = pooled.output.len();
    let (y, best) = (memory.space::<A>(outputs), memory.space::<u32>(outputs));
    let forward = MaxPoolForward {
        x: memory.hold::<A>(&values).read(),
        biases: biased.then(|| memory.put(&summands).read()),
        y: y.write(),
        best: best.write(),
        samples,
        channels: shape.channels,
        window,
        rectified,
    };
    twin.play(memory, &forward);
    same_in(memory, y, if rectified { &relu.output } else { &pooled.output }, "largest");

    let (d, before) = (memory.reals::<A>(outputs), memory.reals::<A>(elements));
    let d_x = memory.hold::<A>(&before);
    let backward = MaxPoolBackward {
        d_y: memory.hold::<A>(&d).read(),
        y: rectified.then(|| y.read()),
        best: best.read(),
        d_x: d_x.write(),
        planes: samples * shape.channels,
        window,
        rectified,
        accumulate,
    };
    twin.play(memory, &backward);
    let slopes = if rectified { relu.backward(&d).0.remove(0) } else { d };
    let (d_inputs, _) = pooled.backward(&slopes);
    same_in(memory, d_x, &merged(&before, &d_inputs[0], accumulate), "gradient before the largest");
}

fn means<A: Real>(twin: &mut Twin, memory: &mut Memory, samples: u32, shape: Shape, layer: &Pool2d, accumulate: bool) {
    let elements = samples as usize * size(shape);
    let values = memory.reals::<A>(elements);
    let pool = Layer::Pool2d(layer.clone());
    let window = Window::of(layer, shape, pool.output_shape(&[shape]).expect("shapes that fit"));
    let mut expected = OnCpu::plain(&pool, &[shape], samples, &[&values]);
    let (outputs, planes) = (expected.output.len(), samples * shape.channels);
    let y = memory.space::<A>(outputs);
    let x = memory.hold::<A>(&values);
    twin.play(memory, &MeanPoolForward { x: x.read(), y: y.write(), planes, window });
    same_in(memory, y, &expected.output, "mean");

    let (d, before) = (memory.reals::<A>(outputs), memory.reals::<A>(elements));
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    twin.play(memory, &MeanPoolBackward { d_y: d_y.read(), d_x: d_x.write(), planes, window, accumulate });
    let (d_inputs, _) = expected.backward(&d);
    same_in(memory, d_x, &merged(&before, &d_inputs[0], accumulate), "gradient before the mean");
}

fn means_of_planes<A: Real>(twin: &mut Twin, memory: &mut Memory, samples: u32, shape: Shape, accumulate: bool) {
    let elements = samples as usize * size(shape);
    let values = memory.reals::<A>(elements);
    let mut expected = OnCpu::plain(&Layer::GlobalPool, &[shape], samples, &[&values]);
    let (planes, of_plane) = (samples * shape.channels, plane(shape));
    let y = memory.space::<A>(planes as usize);
    let x = memory.hold::<A>(&values);
    twin.play(memory, &GlobalPoolForward { x: x.read(), y: y.write(), planes, plane: of_plane });
    near_in(memory, y, &expected.output, "mean of planes");

    let (d, before) = (memory.reals::<A>(planes as usize), memory.reals::<A>(elements));
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    let launch = GlobalPoolBackward { d_y: d_y.read(), d_x: d_x.write(), planes, plane: of_plane, accumulate };
    twin.play(memory, &launch);
    let (d_inputs, _) = expected.backward(&d);
    same_in(memory, d_x, &merged(&before, &d_inputs[0], accumulate), "gradient before the mean of planes");
}

fn responses<A: Real>(
    twin: &mut Twin,
    memory: &mut Memory,
    samples: u32,
    shape: Shape,
    layer: &LocalResponseNorm,
    accumulate: bool,
) {
    let elements = samples as usize * size(shape);
    let (values, d) = (memory.reals::<A>(elements), memory.reals::<A>(elements));
    let mut expected = OnCpu::plain(&Layer::LocalResponseNorm(layer.clone()), &[shape], samples, &[&values]);
    let (of, count) = (Response::of(layer, shape), elements as u32);
    let (x, y) = (memory.hold::<A>(&values), memory.space::<A>(elements));
    twin.play(memory, &LocalResponseForward { x: x.read(), y: y.write(), elements: count, of });
    near_in(memory, y, &expected.output, "response");

    expected.output = memory.wide(y);
    let (d_y, ratios) = (memory.hold::<A>(&d), memory.space::<f32>(elements));
    let before = memory.reals::<A>(elements);
    let d_x = memory.hold::<A>(&before);
    let launch =
        LocalResponseRatios { d_y: d_y.read(), x: x.read(), y: y.read(), ratios: ratios.write(), elements: count, of };
    twin.play(memory, &launch);
    let launch = LocalResponseBackward {
        d_y: d_y.read(),
        x: x.read(),
        ratios: ratios.read(),
        d_x: d_x.write(),
        elements: count,
        of,
        accumulate,
    };
    twin.play(memory, &launch);
    let (d_inputs, _) = expected.backward(&d);
    near_in(memory, d_x, &merged(&before, &d_inputs[0], accumulate), "gradient before the response");
}
