//! Tests biases, scale layers, and their gradients.

use std::cell::RefCell;

use lockstep_cuda::table::{ChannelAffine, ChannelGradients, ChannelGradientsFinish};
use lockstep_cuda::{Bf16, BlockParts};
use lockstep_exec::device::cpu::Mode;
use lockstep_models::{Layer, Scale, Shape};
use proptest::prelude::*;

use crate::emulator::Emulator;
use crate::memory::{Held, Memory, Real, rounded};
use crate::{OnCpu, Theme, any_batch, few, merged, near, plane, property, same, same_in, size};

pub(crate) const THEME: Theme =
    Theme { kernels: &["channel_affine", "channel_gradients", "channel_gradients_finish"], play };

fn play(emulator: &RefCell<Emulator>) {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    // Now and then a channel of several parts.
    let large = (2..4u32, 1..4u32, 50..70u32, 60..70u32)
        .prop_map(|(samples, channels, height, width)| (samples, Shape::of_image(channels, height, width)));
    let batch = prop_oneof![8 => any_batch(), 1 => large];
    property((batch, flags), few(40), |((samples, shape), flags), memory| {
        let emulator = &mut emulator.borrow_mut();
        scales::<f32>(emulator, memory, samples, shape, flags);
        scales::<Bf16>(emulator, memory, samples, shape, flags);
        biases::<f32>(emulator, memory, samples, shape, flags);
        biases::<Bf16>(emulator, memory, samples, shape, flags);
    });
}

/// A scale layer, in place if requested, and its gradients.
fn scales<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    samples: u32,
    shape: Shape,
    (bias, in_place, accumulate): (bool, bool, bool),
) {
    let (elements, channels) = (samples as usize * size(shape), shape.features() as usize);
    let (values, d) = (memory.reals::<A>(elements), memory.reals::<A>(elements));
    let parameters = memory.values(channels * (1 + usize::from(bias)));
    let layer = Layer::Scale(Scale { bias });
    let mut expected = OnCpu::forward(&layer, &[shape], samples, &[&values], &parameters, &mut [], Mode::Train);
    let (x, held) = (memory.hold::<A>(&values), memory.put(&parameters));
    let (factors, biases) = (held.part(0..channels), bias.then(|| held.part(channels..2 * channels)));
    let y = if in_place { memory.hold::<A>(&values) } else { memory.space(elements) };
    let mut launch = ChannelAffine {
        x: if in_place { y.read() } else { x.read() },
        factors: Some(factors.read()),
        biases: biases.map(Held::read),
        y: y.write(),
        samples,
        channels: shape.features(),
        plane: plane(shape),
        rectified: false,
        accumulate: false,
    };
    emulator.play(memory, &launch);
    // Without a bias the CPU adds 0, which turns −0 into 0.
    let output: Vec<f32> = memory.wide(y).iter().map(|y| if bias { *y } else { *y + 0.0 }).collect();
    same(&output, &rounded::<A>(&expected.output), "scale");

    let (gradients, gradient) = expected.backward(&d);
    let before = memory.reals::<A>(elements);
    let (d_y, d_x) = (memory.hold::<A>(&d), memory.hold::<A>(&before));
    (launch.x, launch.y, launch.biases, launch.accumulate) = (d_y.read(), d_x.write(), None, accumulate);
    emulator.play(memory, &launch);
    same_in(memory, d_x, &merged(&before, &gradients[0], accumulate), "scale's gradient");

    let parts = BlockParts::of(samples * plane(shape));
    let sums = ChannelGradients {
        d_y: d_y.read(),
        x: Some(x.read()),
        y: None,
        means: None,
        inverses: None,
        gammas: None,
        betas: None,
        masked: None,
        partials: memory.space(2 * channels * parts.parts as usize).write(),
        channels: shape.features(),
        plane: plane(shape),
        parts,
        rectified: false,
    };
    emulator.play(memory, &sums);
    let before = memory.values(parameters.len());
    let held = memory.put(&before);
    let finish = ChannelGradientsFinish {
        partials: sums.partials.view(),
        inverses: None,
        d_factors: Some(held.part(0..channels).write()),
        d_biases: bias.then(|| held.part(channels..2 * channels).write()),
        along: None,
        level: None,
        channels: shape.features(),
        parts,
        accumulate,
    };
    emulator.play(memory, &finish);
    near(&memory.get(held), &merged(&before, &gradient, accumulate), "scale's parameters");
}

/// relu(x + b), in place, and the gradient before it, instead of the one after it: the tail of a convolution.
fn biases<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    samples: u32,
    shape: Shape,
    (rectified, in_place, accumulate): (bool, bool, bool),
) {
    let (elements, channels) = (samples as usize * size(shape), shape.features() as usize);
    let (values, d, biases) = (memory.reals::<A>(elements), memory.reals::<A>(elements), memory.values(channels));
    let parameters = [vec![1.0; channels], biases.clone()].concat();
    let layer = Layer::Scale(Scale { bias: true });
    let mut affine = OnCpu::forward(&layer, &[shape], samples, &[&values], &parameters, &mut [], Mode::Train);
    let mut relu = OnCpu::plain(&Layer::Relu, &[shape], samples, &[&affine.output]);
    let y = memory.hold::<A>(&values);
    let launch = ChannelAffine {
        x: y.read(),
        factors: None,
        biases: Some(memory.put(&biases).read()),
        y: y.write(),
        samples,
        channels: shape.features(),
        plane: plane(shape),
        rectified,
        accumulate: false,
    };
    emulator.play(memory, &launch);
    same_in(memory, y, if rectified { &relu.output } else { &affine.output }, "bias");

    let gradients = if rectified { relu.backward(&d).0.remove(0) } else { d.clone() };
    let gradient = &affine.backward(&gradients).1[channels..];
    let d_y = memory.hold::<A>(&d);
    let masked = if in_place { d_y } else { memory.space(elements) };
    let parts = BlockParts::of(samples * plane(shape));
    let sums = ChannelGradients {
        d_y: d_y.read(),
        x: None,
        y: Some(y.read()),
        means: None,
        inverses: None,
        gammas: None,
        betas: None,
        masked: Some(masked.write()),
        partials: memory.space(2 * channels * parts.parts as usize).write(),
        channels: shape.features(),
        plane: plane(shape),
        parts,
        rectified,
    };
    emulator.play(memory, &sums);
    same_in(memory, masked, &gradients, "gradient before bias and ReLU");
    let before = memory.values(channels);
    let held = memory.put(&before);
    let finish = ChannelGradientsFinish {
        partials: sums.partials.view(),
        inverses: None,
        d_factors: None,
        d_biases: Some(held.write()),
        along: None,
        level: None,
        channels: shape.features(),
        parts,
        accumulate,
    };
    emulator.play(memory, &finish);
    near(&memory.get(held), &merged(&before, gradient, accumulate), "bias's gradient");
}
