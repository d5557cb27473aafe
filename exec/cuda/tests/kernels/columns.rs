//! Compares sums over the columns of matrices, and their results, with plain loops in f64.

use std::cell::RefCell;

use lockstep_cuda::table::{BatchNormStatistics, ChannelGradientsFinish, ColumnGradients, ColumnMoments};
use lockstep_cuda::{Bf16, BlockParts};
use proptest::prelude::*;
use rand::RngExt;

use crate::emulator::Emulator;
use crate::memory::{Memory, Real, rounded};
use crate::{Theme, few, near, near_within, property, same_in};

pub(crate) const THEME: Theme = Theme {
    kernels: &["batch_norm_statistics", "channel_gradients_finish", "column_moments", "column_gradients"],
    play,
};

const EPSILON: f32 = 1e-3;
const KEEP: f32 = 0.9;

/// Which of the optional arguments are present.
#[derive(Debug, Clone, Copy)]
struct Given {
    x: bool,
    means: bool,
    /// The source of a ReLU's output, if there is one.
    rectified: Option<Output>,
    masked: bool,
    in_place: bool,
}

#[derive(Debug, Clone, Copy)]
enum Output {
    Tensor,
    Input,
}

fn play(emulator: &RefCell<Emulator>) {
    // Occasionally several parts of the rows, several tiles of channels, and a part so long that threads fold their
    // sums.
    let sizes = prop_oneof![8 => (1..90u32, 1..80u32), 1 => (900..2200u32, 1..40u32), 1 => (300..600u32, 60..100u32), 1 => (2100..3500u32, 17..33u32)];
    let sizes = (sizes, any::<bool>()).prop_map(|((rows, channels), coarse)| {
        let parts = if coarse { BlockParts::of(rows) } else { BlockParts::of_rows(rows, channels) };
        (parts, channels)
    });
    let output = proptest::option::of(prop_oneof![Just(Output::Tensor), Just(Output::Input)]);
    let given = (any::<[bool; 4]>(), output).prop_map(|([x, means, masked, in_place], rectified)| Given {
        x: x || matches!(rectified, Some(Output::Input)),
        means,
        rectified,
        masked,
        in_place,
    });
    property((sizes.clone(), given), few(80), |(sizes, given), memory| {
        gradients::<f32>(&mut emulator.borrow_mut(), memory, sizes, given);
        gradients::<Bf16>(&mut emulator.borrow_mut(), memory, sizes, given);
    });
    let level = prop_oneof![Just(0.0f32), Just(30.0)];
    property((sizes, level), few(60), |(sizes, level), memory| {
        moments::<f32>(&mut emulator.borrow_mut(), memory, sizes, level);
        moments::<Bf16>(&mut emulator.borrow_mut(), memory, sizes, level);
    });
}

/// The elements of a column.
fn column<T: Copy>(all: &[T], channels: usize, channel: usize) -> impl Iterator<Item = T> + '_ {
    all.iter().skip(channel).step_by(channels).copied()
}

fn gradients<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (parts, channels): (BlockParts, u32),
    given: Given,
) {
    let (elements, wide) = ((parts.count * channels) as usize, channels as usize);
    let (d, values, outputs) = (memory.reals::<A>(elements), memory.reals::<A>(elements), memory.reals::<A>(elements));
    let [means, inverses, gammas, betas] = [(); 4].map(|()| memory.values(wide));
    let (d_y, x, y) = (memory.hold::<A>(&d), memory.hold::<A>(&values), memory.hold::<A>(&outputs));
    let masked = if given.in_place { d_y } else { memory.space(elements) };
    let from_input = matches!(given.rectified, Some(Output::Input));
    let own = |memory: &mut Memory, values: &[f32], there: bool| there.then(|| memory.put(values).read());
    let sums = ColumnGradients {
        d_y: d_y.read(),
        x: given.x.then(|| x.read()),
        y: matches!(given.rectified, Some(Output::Tensor)).then(|| y.read()),
        means: own(memory, &means, given.means),
        inverses: own(memory, &inverses, from_input),
        gammas: own(memory, &gammas, from_input),
        betas: own(memory, &betas, from_input),
        masked: given.masked.then(|| masked.write()),
        partials: memory.space(2 * wide * parts.parts as usize).write(),
        channels,
        parts,
        rectified: given.rectified.is_some(),
    };
    emulator.play(memory, &sums);
    let mean = |at: usize| if given.means { means[at % wide] } else { 0.0 };
    let off = |at: usize| if given.x { values[at] - mean(at) } else { 0.0 };
    let output = |at: usize| match given.rectified {
        None => 1.0,
        Some(Output::Tensor) => outputs[at],
        Some(Output::Input) => off(at) * (gammas[at % wide] * inverses[at % wide]) + betas[at % wide],
    };
    let gradients: Vec<f32> = (0..elements).map(|at| if output(at) <= 0.0 { 0.0 } else { d[at] }).collect();
    if given.masked {
        same_in(memory, masked, &gradients, "masked");
    }

    let before = memory.values(2 * wide);
    let held = memory.put(&before);
    let finish = ChannelGradientsFinish {
        partials: sums.partials.view(),
        inverses: None,
        d_factors: given.x.then(|| held.part(0..wide).write()),
        d_biases: Some(held.part(wide..2 * wide).write()),
        along: None,
        level: None,
        channels,
        parts,
        accumulate: true,
    };
    emulator.play(memory, &finish);
    let got = memory.get(held);
    for channel in 0..wide {
        let terms: Vec<f32> = column(&gradients, wide, channel).collect();
        let products: Vec<f32> = (0..elements).skip(channel).step_by(wide).map(|at| gradients[at] * off(at)).collect();
        let sum = |terms: &[f32], before: f32| terms.iter().map(|term| f64::from(*term)).sum::<f64>() as f32 + before;
        let check = |at: usize, terms: &[f32], what: &str| {
            let scale = [terms, &before[at..=at]].concat();
            near_within(1e-5, &got[at..=at], &[sum(terms, before[at])], &scale, what);
        };
        check(wide + channel, &terms, "sum of a column");
        if given.x {
            check(channel, &products, "sum of a column's products");
        }
    }
}

fn moments<A: Real>(emulator: &mut Emulator, memory: &mut Memory, (parts, channels): (BlockParts, u32), level: f32) {
    let (elements, wide) = ((parts.count * channels) as usize, channels as usize);
    let shifted: Vec<f32> = memory.values(elements).iter().map(|value| level + value).collect();
    let values = rounded::<A>(&shifted);
    let sums = ColumnMoments {
        x: memory.hold::<A>(&values).read(),
        partials: memory.space(2 * wide * parts.parts as usize).write(),
        channels,
        parts,
    };
    emulator.play(memory, &sums);
    let (means, inverses) = (memory.space::<f32>(wide), memory.space::<f32>(wide));
    let before: Vec<f32> = (0..2 * wide).map(|_| memory.rng.random_range(0.0..2.0)).collect();
    let running = memory.put(&before);
    let finish = BatchNormStatistics {
        partials: sums.partials.view(),
        means: means.write(),
        inverses: inverses.write(),
        running_means: running.part(0..wide).write(),
        running_variances: running.part(wide..2 * wide).write(),
        channels,
        parts,
        epsilon: EPSILON,
        keep: KEEP,
    };
    emulator.play(memory, &finish);
    let count = f64::from(parts.count);
    let mean = |channel: usize| column(&values, wide, channel).map(f64::from).sum::<f64>() / count;
    let squares = |channel: usize| {
        let mean = mean(channel);
        column(&values, wide, channel).map(|x| (f64::from(x) - mean).powi(2)).sum::<f64>()
    };
    let all = |of: &dyn Fn(usize) -> f64| (0..wide).map(|channel| of(channel) as f32).collect::<Vec<f32>>();
    near(&memory.get(means), &all(&mean), "means");
    let inverse = |channel: usize| 1.0 / (squares(channel) / count + f64::from(EPSILON)).sqrt();
    near(&memory.get(inverses), &all(&inverse), "inverses");
    let keep = f64::from(KEEP);
    let moved = |channel: usize| keep * f64::from(before[channel]) + (1.0 - keep) * mean(channel);
    let unbiased = |channel: usize| squares(channel) / (count - 1.0).max(1.0);
    let widened = |channel: usize| keep * f64::from(before[wide + channel]) + (1.0 - keep) * unbiased(channel);
    near(&memory.get(running), &[all(&moved), all(&widened)].concat(), "running statistics");
}
