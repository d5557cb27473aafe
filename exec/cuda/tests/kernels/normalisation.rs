//! Tests batch normalisation alone, with a ReLU, and with an addition and a ReLU, in training, evaluation and while
//! collecting statistics.

use std::cell::RefCell;

use lockstep_cuda::table::{
    BatchNormBackward, BatchNormForward, BatchNormInverses, BatchNormMoments, BatchNormStatistics, ChannelGradients,
    ChannelGradientsFinish,
};
use lockstep_cuda::{Bf16, BlockParts};
use lockstep_exec::device::cpu::Mode;
use lockstep_models::{BatchNorm, Layer, Shape};
use proptest::prelude::*;

use crate::emulator::Emulator;
use crate::memory::{Held, Memory, Real};
use crate::{
    OnCpu, Theme, any_batch, few, merged, near, near_in, near_within, near_within_in, plane, property, same_in, size,
};

pub(crate) const THEME: Theme = Theme {
    kernels: &[
        "batch_norm_backward",
        "batch_norm_forward",
        "batch_norm_inverses",
        "batch_norm_moments",
        "batch_norm_statistics",
        "channel_gradients",
        "channel_gradients_finish",
    ],
    play,
};

const EPSILON: f32 = 1e-3;
const MOMENTUM: f32 = 0.9;

/// The layers after the normalisation, the offset of the channels' means from 0, and whether gradients are accumulated.
#[derive(Debug, Clone, Copy)]
struct Case {
    samples: u32,
    shape: Shape,
    adds: bool,
    rectified: bool,
    level: f32,
    batch: Option<u32>,
    accumulate: bool,
}

/// The tolerance between both sides, whose sums have different orders.
struct Precision {
    /// 1e-5, plus the effect of a mean that differs in its last bit relative to the smallest deviation.
    bound: f64,
    /// Each channel's γ over its deviation.
    scales: Vec<f32>,
}

fn play(emulator: &RefCell<Emulator>) {
    let large = (2..4u32, 1..4u32, 50..70u32, 60..70u32)
        .prop_map(|(samples, channels, height, width)| (samples, Shape::of_image(channels, height, width)));
    let batch = prop_oneof![8 => any_batch(), 1 => large];
    let level = prop_oneof![Just(0.0f32), Just(30.0)];
    let case = (batch, any::<bool>(), any::<bool>(), level, proptest::option::of(0..3u32), any::<bool>()).prop_map(
        |((samples, shape), adds, rectified, level, batch, accumulate)| Case {
            samples,
            shape,
            adds,
            rectified,
            level,
            batch,
            accumulate,
        },
    );
    property(case, few(60), |case, memory| {
        case.agrees::<f32>(&mut emulator.borrow_mut(), memory);
        case.agrees::<Bf16>(&mut emulator.borrow_mut(), memory);
    });
}

impl Case {
    fn agrees<A: Real>(self, emulator: &mut Emulator, memory: &mut Memory) {
        let Case { samples, shape, adds, rectified, level, .. } = self;
        let (elements, channels) = (samples as usize * size(shape), shape.features() as usize);
        let values: Vec<f32> = memory.values(elements).iter().map(|value| A::nearest(level + value).wide()).collect();
        let (parameters, others) = (memory.values(2 * channels), memory.reals::<A>(elements));
        let statistics: Vec<f32> = memory.values(2 * channels).iter().map(|value| value.abs()).collect();
        let layer = Layer::BatchNorm(BatchNorm { epsilon: EPSILON, momentum: MOMENTUM });
        let (mode, keep) = match self.batch {
            None => (Mode::Train, MOMENTUM),
            Some(batch) => (Mode::Statistics { batch }, batch as f32 / (batch as f32 + 1.0)),
        };
        let mut moved = statistics.clone();
        let cpu = |mode, statistics: &mut [f32]| {
            OnCpu::forward(&layer, &[shape], samples, &[&values], &parameters, statistics, mode)
        };
        let mut norm = cpu(mode, &mut moved);
        let finished = |normal: &[f32]| self.finished(normal, &others);

        let (x, held) = (memory.hold::<A>(&values), memory.put(&parameters));
        let (means, inverses) = (memory.space::<f32>(channels), memory.space::<f32>(channels));
        let running = memory.put(&statistics);
        let parts = BlockParts::of(samples * plane(shape));
        let moments = BatchNormMoments {
            x: x.read(),
            partials: memory.space(2 * channels * parts.parts as usize).write(),
            channels: shape.features(),
            plane: plane(shape),
            parts,
        };
        emulator.play(memory, &moments);
        let statistics_of_batch = BatchNormStatistics {
            partials: moments.partials.view(),
            means: means.write(),
            inverses: inverses.write(),
            running_means: running.part(0..channels).write(),
            running_variances: running.part(channels..2 * channels).write(),
            channels: shape.features(),
            parts,
            epsilon: EPSILON,
            keep,
        };
        emulator.play(memory, &statistics_of_batch);
        near(&memory.get(running), &moved, "running statistics");
        let addend = memory.hold::<A>(&others);
        let y = memory.space(elements);
        let mut forward = BatchNormForward {
            x: x.read(),
            means: means.read(),
            inverses: inverses.read(),
            gammas: held.part(0..channels).read(),
            betas: held.part(channels..2 * channels).read(),
            addend: adds.then(|| addend.read()),
            y: y.write(),
            samples,
            channels: shape.features(),
            plane: plane(shape),
            rectified,
        };
        emulator.play(memory, &forward);
        let mut output = finished(&norm.output);
        let precision = self.precision(&values, &parameters);
        near_within_in(precision.bound, memory, y, &output, &output, "normalised");

        // The ReLU's mask comes from its own output: where the CPU's is within rounding of 0 they may differ.
        output = memory.wide(y);
        self.gradients_agree(emulator, memory, &forward, (y, &output), &mut norm, &precision);

        let running = memory.put(&statistics);
        let inverse = memory.space::<f32>(channels);
        let launch = BatchNormInverses {
            running_variances: running.part(channels..2 * channels).read(),
            inverses: inverse.write(),
            channels: shape.features(),
            epsilon: EPSILON,
        };
        emulator.play(memory, &launch);
        forward.means = running.part(0..channels).read();
        forward.inverses = inverse.read();
        emulator.play(memory, &forward);
        let mut same = statistics.clone();
        near_in(memory, y, &finished(&cpu(Mode::Evaluate, &mut same).output), "normalised to infer");
    }

    fn precision(self, values: &[f32], gammas: &[f32]) -> Precision {
        let (channels, plane) = (self.shape.features() as usize, plane(self.shape) as usize);
        let mut precision = Precision { bound: 1e-5, scales: Vec::new() };
        for (channel, gamma) in gammas[..channels].iter().enumerate() {
            let planes = values.chunks_exact(plane).skip(channel).step_by(channels);
            let count = f64::from(self.samples) * plane as f64;
            let mean = planes.clone().flatten().map(|x| f64::from(*x)).sum::<f64>() / count;
            let variance = planes.flatten().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
            let deviation = (variance + f64::from(EPSILON)).sqrt();
            precision.bound = precision.bound.max(1e-5 + mean.abs() * f64::from(f32::EPSILON) / deviation);
            precision.scales.push((f64::from(*gamma) / deviation) as f32);
        }
        precision
    }

    /// Applies the addition and the ReLU after the normalisation.
    fn finished(self, normal: &[f32], others: &[f32]) -> Vec<f32> {
        let sum = |(normal, other): (&f32, &f32)| if self.adds { normal + other } else { *normal };
        let rectify = |value: f32| if self.rectified { value.max(0.0) } else { value };
        normal.iter().zip(others).map(sum).map(rectify).collect()
    }

    fn gradients_agree<A: Real>(
        self,
        emulator: &mut Emulator,
        memory: &mut Memory,
        forward: &BatchNormForward<A>,
        (y, output): (Held<A>, &[f32]),
        norm: &mut OnCpu,
        precision: &Precision,
    ) {
        let Case { samples, shape, adds, rectified, accumulate, .. } = self;
        let (elements, channels) = (output.len(), shape.features() as usize);
        let d = memory.reals::<A>(elements);
        let through = |(d, y): (&f32, &f32)| if rectified && *y <= 0.0 { 0.0 } else { *d };
        let gradients: Vec<f32> = d.iter().zip(output).map(through).collect();
        let (d_inputs, gradient) = norm.backward(&gradients);

        let d_y = memory.hold::<A>(&d);
        let parts = BlockParts::of(samples * plane(shape));
        let sums = ChannelGradients {
            d_y: d_y.read(),
            x: Some(forward.x),
            y: adds.then(|| y.read()),
            means: Some(forward.means),
            inverses: Some(forward.inverses),
            gammas: Some(forward.gammas),
            betas: Some(forward.betas),
            masked: None,
            partials: memory.space(2 * channels * parts.parts as usize).write(),
            channels: shape.features(),
            plane: plane(shape),
            parts,
            rectified,
        };
        emulator.play(memory, &sums);
        let before = memory.values(2 * channels);
        let (held, along, level) = (memory.put(&before), memory.space::<f32>(channels), memory.space::<f32>(channels));
        let finish = ChannelGradientsFinish {
            partials: sums.partials.view(),
            inverses: Some(forward.inverses),
            d_factors: Some(held.part(0..channels).write()),
            d_biases: Some(held.part(channels..2 * channels).write()),
            along: Some(along.write()),
            level: Some(level.write()),
            channels: shape.features(),
            parts,
            accumulate,
        };
        emulator.play(memory, &finish);
        let expected = merged(&before, &gradient, accumulate);
        near_within(precision.bound, &memory.get(held), &expected, &expected, "gradients of γ and β");

        let (before, before_addend) = (memory.reals::<A>(elements), memory.reals::<A>(elements));
        let (d_x, d_addend) = (memory.hold::<A>(&before), memory.hold::<A>(&before_addend));
        let backward = BatchNormBackward {
            d_y: d_y.read(),
            x: forward.x,
            y: adds.then(|| y.read()),
            means: forward.means,
            inverses: forward.inverses,
            gammas: forward.gammas,
            betas: forward.betas,
            along: along.read(),
            level: level.read(),
            d_x: d_x.write(),
            d_addend: adds.then(|| d_addend.write()),
            samples,
            channels: shape.features(),
            plane: plane(shape),
            rectified,
            accumulate,
            accumulate_addend: !accumulate,
        };
        emulator.play(memory, &backward);
        let expected = merged(&before, &d_inputs[0], accumulate);
        // With few values in a channel the gradient is a small remainder: a value's own gradient less the part common
        // to the channel.
        let scale = |at: usize| precision.scales[at / plane(shape) as usize % channels];
        let terms: Vec<f32> = gradients.iter().enumerate().map(|(at, gradient)| gradient * scale(at)).collect();
        near_within_in(precision.bound, memory, d_x, &expected, &terms, "gradient towards the input");
        if adds {
            let expected = merged(&before_addend, &gradients, !accumulate);
            same_in(memory, d_addend, &expected, "gradient towards the addend");
        }
    }
}
