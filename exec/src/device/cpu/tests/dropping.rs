//! Tests dropout: the dropped elements depend on the sample's place alone, and evaluation changes nothing.

use super::*;

const SIZE: usize = 40;

/// The output of a training pass over `samples` samples of ones, the first at place `first`.
fn pass(rate: f32, draw: Draw, samples: usize) -> Vec<f32> {
    let (layer, shapes) = (Layer::Dropout(DropoutLayer { rate }), [shape(SIZE as u32, 1, 1)]);
    let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shapes }], samples, &Threads::one());
    kernel.draw(draw, &[]);
    let mut output = vec![f32::NAN; samples * SIZE];
    kernel.forward(Mode::Train, &[&vec![1.0; samples * SIZE]], &[], &mut [], &mut output);
    let mut same = vec![f32::NAN; samples * SIZE];
    kernel.forward(Mode::Evaluate, &[&output], &[], &mut [], &mut same);
    assert_eq!(same, output);
    output
}

#[test]
fn batches_cut_otherwise_drop_the_same() {
    let draw = |first| Draw { seed: 7, layer: 3, first, offset: 0, entry: 0, row: 0, skipped: 0 };
    let whole = pass(0.5, draw(100), 12);
    for cut in [1, 2, 3, 4, 6] {
        let parts: Vec<f32> = (0..12 / cut).flat_map(|part| pass(0.5, draw(100 + (part * cut) as u64), cut)).collect();
        assert_eq!(parts, whole, "{cut} at a time");
    }
    let others = [Draw { seed: 8, ..draw(100) }, Draw { layer: 4, ..draw(100) }, draw(101)];
    assert!(others.into_iter().all(|other| pass(0.5, other, 12) != whole));
}

/// A rank with some of the features, for samples at arbitrary places, drops what a rank with all features drops.
#[test]
fn features_and_samples_drop_wherever_they_are() {
    let draw = Draw { seed: 7, layer: 3, first: 100, offset: 0, entry: 0, row: 0, skipped: 0 };
    let whole = pass(0.5, draw, 12);
    let (layer, shapes) = (Layer::Dropout(DropoutLayer { rate: 0.5 }), [shape(15, 1, 1)]);
    let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shapes }], 3, &Threads::one());
    kernel.draw(Draw { offset: 20, ..draw }, &[107, 108, 101]);
    let mut output = vec![f32::NAN; 3 * 15];
    kernel.forward(Mode::Train, &[&[1.0; 3 * 15]], &[], &mut [], &mut output);
    for (sample, row) in [7, 8, 1].into_iter().zip(output.chunks_exact(15)) {
        assert_eq!(row, &whole[sample * SIZE + 20..sample * SIZE + 35]);
    }
}

/// A rank with some of the features of each position of a sequence drops what a rank with all of them drops.
#[test]
fn features_of_positions_drop_wherever_they_are() {
    let sequence = |features| Shape::new(&[(Dimension::Position, 5), (Dimension::Feature, features)]);
    let output = |features, draw| {
        let (layer, shapes) = (Layer::Dropout(DropoutLayer { rate: 0.5 }), [sequence(features)]);
        let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shapes }], 2, &Threads::one());
        kernel.draw(draw, &[]);
        let mut output = vec![f32::NAN; 10 * features as usize];
        kernel.forward(Mode::Train, &[&vec![1.0; 10 * features as usize]], &[], &mut [], &mut output);
        output
    };
    let draw = Draw { seed: 7, layer: 3, first: 100, offset: 0, entry: 0, row: 0, skipped: 0 };
    let (whole, part) = (output(8, draw), output(3, Draw { offset: 4, row: 8, ..draw }));
    for (own, all) in part.chunks_exact(3).zip(whole.chunks_exact(8)) {
        assert_eq!(own, &all[4..7]);
    }
}

#[test]
fn the_share_that_falls_is_the_rate_and_the_mean_stays() {
    for rate in [0.0, 0.1, 0.5, 0.9] {
        let output = pass(rate, Draw::default(), 500);
        let fallen = output.iter().filter(|y| **y == 0.0).count() as f64 / output.len() as f64;
        // 20,000 draws: five deviations of √(p·(1 − p) / 20000).
        let rate = f64::from(rate);
        assert!((fallen - rate).abs() <= 5.0 * (rate * (1.0 - rate) / 2e4).sqrt(), "{fallen} fell at {rate}");
        let kept = output.iter().copied().fold(0.0, f32::max);
        assert!((f64::from(kept) * (1.0 - rate) - 1.0).abs() < 1e-6);
    }
}
