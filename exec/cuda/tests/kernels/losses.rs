//! Tests dropout, to the bit of the CPU's, and cross-entropies with their ranks.

use std::cell::RefCell;

use lockstep_cuda::Bf16;
use lockstep_cuda::layers::kernels::{DropoutBackward, DropoutForward, blocks_of_draws};
use lockstep_cuda::table::{LogisticForward, LossBackward, LossTotals, SoftmaxForward};
use lockstep_exec::device::cpu::{CrossEntropy, Draw};
use lockstep_models::{Dropout, Layer, Shape};
use proptest::prelude::*;
use rand::RngExt;

use crate::emulator::Emulator;
use crate::memory::{Memory, Real, rounded};
use crate::{OnCpu, Theme, few, merged, near, near_in, property, same_in};

pub(crate) const THEME: Theme = Theme {
    kernels: &[
        "dropout_backward",
        "dropout_forward",
        "logistic_forward",
        "loss_backward",
        "loss_totals",
        "softmax_forward",
    ],
    play,
};

fn play(emulator: &RefCell<Emulator>) {
    let rate = prop_oneof![Just(0.0f32), Just(0.5), 0.01f32..0.99];
    let draw = (any::<u64>(), any::<u32>(), prop_oneof![Just(0u64), 0..100u64, Just(1 << 36)]);
    property((1..6u32, 1..200u32, rate, draw, any::<bool>(), any::<bool>()), few(60), |case, memory| {
        let (samples, size, rate, (seed, layer, offset), in_place, accumulate) = case;
        let draw = Draw { seed, layer, first: 0, offset, entry: 0, row: 0, skipped: 0 };
        dropped::<f32>(&mut emulator.borrow_mut(), memory, (samples, size), rate, draw, (in_place, accumulate));
        dropped::<Bf16>(&mut emulator.borrow_mut(), memory, (samples, size), rate, draw, (in_place, accumulate));
    });
    property((1..40u32, 1..130u32, any::<bool>(), any::<bool>()), few(60), |case, memory| {
        let (samples, classes, logistic, accumulate) = case;
        judged::<f32>(&mut emulator.borrow_mut(), memory, (samples, classes), logistic, accumulate);
        judged::<Bf16>(&mut emulator.borrow_mut(), memory, (samples, classes), logistic, accumulate);
    });
    no_numbers::<f32>(&mut emulator.borrow_mut());
    no_numbers::<Bf16>(&mut emulator.borrow_mut());
}

fn dropped<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (samples, size): (u32, u32),
    rate: f32,
    draw: Draw,
    (in_place, accumulate): (bool, bool),
) {
    let elements = (samples * size) as usize;
    let shape = Shape::of_image(size, 1, 1);
    let (values, d) = (memory.reals::<A>(elements), memory.reals::<A>(elements));
    let places: Vec<u64> = (0..samples).map(|_| memory.rng.random()).collect();
    let mut expected = OnCpu::plain(&Layer::Dropout(Dropout { rate }), &[shape], samples, &[&values]);
    expected.draw(draw, &places);
    let x = memory.hold::<A>(&values);
    let y = if in_place { x } else { memory.space(elements) };
    let kept = memory.space::<u16>(samples as usize * blocks_of_draws(draw.offset, size) as usize);
    let factor = 1.0 / (1.0 - rate);
    let forward = DropoutForward {
        x: x.read(),
        places: memory.put(&places).read(),
        y: y.write(),
        kept: kept.write(),
        samples,
        size,
        draws: draw,
        below: (f64::from(rate) * 2f64.powi(32)) as u32,
        factor,
    };
    emulator.play(memory, &forward);
    same_in(memory, y, &expected.output, "dropout");

    let before = memory.reals::<A>(elements);
    let d_y = memory.hold::<A>(&d);
    let d_x = if in_place && !accumulate { d_y } else { memory.hold::<A>(&before) };
    let backward = DropoutBackward {
        d_y: d_y.read(),
        kept: kept.read(),
        d_x: d_x.write(),
        samples,
        size,
        offset: draw.offset,
        factor,
        accumulate,
    };
    emulator.play(memory, &backward);
    let (d_inputs, _) = expected.backward(&d);
    same_in(memory, d_x, &merged(&before, &d_inputs[0], accumulate), "dropout's gradient");
}

/// The number of classes ahead of the label, by the definition.
fn rank(row: &[f32], label: usize) -> u32 {
    if row[label].is_nan() || row[0].is_nan() {
        return row.len() as u32;
    }
    let ahead = |(class, score): (usize, &f32)| *score > row[label] || (*score == row[label] && class < label);
    row.iter().enumerate().filter(|other| ahead(*other)).count() as u32
}

fn judged<A: Real>(
    emulator: &mut Emulator,
    memory: &mut Memory,
    (samples, classes): (u32, u32),
    logistic: bool,
    accumulate: bool,
) {
    let elements = (samples * classes) as usize;
    // Steps of a quarter, so that some are equal; some extreme.
    let scores = memory.values(elements);
    let logits = scores.iter().map(|x| (x * 8.0).round() / 4.0 * if *x > 1.9 { 50.0 } else { 1.0 });
    let logits: Vec<f32> = rounded::<A>(&logits.collect::<Vec<f32>>());
    let labels: Vec<u32> = (0..samples).map(|_| memory.rng.random_range(0..classes)).collect();
    let layer = if logistic { Layer::LogisticCrossEntropy } else { Layer::SoftmaxCrossEntropy };
    let mut expected = CrossEntropy::new(&layer, classes as usize, samples as usize);
    let result = expected.forward(&logits, &labels);

    let (x, held_labels) = (memory.hold::<A>(&logits), memory.put(&labels));
    let probabilities = memory.space::<f32>(elements);
    let (losses, ranks) = (memory.space::<f64>(samples as usize), memory.space::<u32>(samples as usize));
    let softmax = SoftmaxForward {
        logits: x.read(),
        labels: held_labels.read(),
        probabilities: probabilities.write(),
        losses: losses.write(),
        ranks: ranks.write(),
        samples,
        classes,
    };
    let SoftmaxForward { logits: of, labels: right, .. } = softmax;
    let units = LogisticForward {
        logits: of,
        labels: right,
        probabilities: probabilities.write(),
        losses: losses.write(),
        ranks: ranks.write(),
        samples,
        classes,
    };
    if logistic {
        emulator.play(memory, &units);
    } else {
        emulator.play(memory, &softmax);
    }
    let narrow = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<f32>>();
    near(&narrow(&memory.get(losses)), &narrow(&expected.losses()), "losses");
    let by_definition: Vec<u32> =
        logits.chunks(classes as usize).zip(&labels).map(|(row, label)| rank(row, *label as usize)).collect();
    assert_eq!(memory.get(ranks), by_definition, "ranks");

    let (totals, counts) = (memory.space::<f64>(1), memory.space::<u32>(2));
    let launch = LossTotals {
        losses: losses.read(),
        ranks: ranks.read(),
        totals: totals.write(),
        counts: counts.write(),
        samples,
    };
    emulator.play(memory, &launch);
    let sum = memory.get(totals)[0];
    assert!((sum - result.sum).abs() <= 1e-5 * result.sum.abs().max(1e-2), "{sum} is not {}", result.sum);
    let five = by_definition.iter().filter(|rank| **rank < 5).count();
    assert_eq!(memory.get(counts), [result.correct as u32, five as u32], "right answers");

    let before = memory.reals::<A>(elements);
    let mut d_logits = before.clone();
    let scale = 1.0 / samples as f32;
    expected.backward(scale, &mut d_logits, accumulate);
    let held = memory.hold::<A>(&before);
    let backward = LossBackward {
        probabilities: probabilities.read(),
        labels: held_labels.read(),
        d_logits: held.write(),
        samples,
        classes,
        scale,
        accumulate,
    };
    emulator.play(memory, &backward);
    near_in(memory, held, &d_logits, "the loss's gradient");
}

/// NaN stays NaN and counts as a wrong answer, as on the CPU.
fn no_numbers<A: Real>(emulator: &mut Emulator) {
    let rows = [[f32::NAN, 1.0, 0.0], [1.0, f32::NAN, 0.0], [1.0, 0.0, f32::NAN], [f32::NAN; 3]];
    for (row, label) in rows.iter().flat_map(|row| (0..3u32).map(move |label| (row, label))) {
        let mut expected = CrossEntropy::new(&Layer::SoftmaxCrossEntropy, 3, 1);
        let result = expected.forward(row, &[label]);
        let memory = &mut Memory::new(label.into());
        let (losses, ranks) = (memory.space::<f64>(1), memory.space::<u32>(1));
        let launch = SoftmaxForward {
            logits: memory.hold::<A>(row).read(),
            labels: memory.put(&[label]).read(),
            probabilities: memory.space(3).write(),
            losses: losses.write(),
            ranks: ranks.write(),
            samples: 1,
            classes: 3,
        };
        emulator.play(memory, &launch);
        assert!(memory.get(losses)[0].is_nan() && result.sum.is_nan(), "{row:?}");
        assert_eq!(memory.get(ranks)[0] == 0, result.correct == 1, "{row:?}, label {label}");
    }
}
