//! Tests the losses against their definitions in f64.

use lockstep_models::IGNORED_LABEL;

use super::*;
use crate::device::cpu::linear_scores::{LinearScores, Written};
use crate::device::cpu::row_sums::{Row, RowGradient};

/// A sample's loss from its scores.
type Definition = fn(&[f64], usize) -> f64;

/// ln Σ eˣ − x(label).
fn softmax(row: &[f64], label: usize) -> f64 {
    row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[label]
}

/// −ln σ(x) for the label, −ln (1 − σ(x)) for the others.
fn logistic(row: &[f64], label: usize) -> f64 {
    let sigma = |x: &f64| 1.0 / (1.0 + (-x).exp());
    let unit = |(class, x): (usize, &f64)| if class == label { -sigma(x).ln() } else { -(1.0 - sigma(x)).ln() };
    row.iter().enumerate().map(unit).sum()
}

const LOSSES: [(Layer, Definition); 2] =
    [(Layer::SoftmaxCrossEntropy, softmax), (Layer::LogisticCrossEntropy, logistic)];

/// Value, counts and finite differences.
#[test]
fn losses_agree_with_their_definitions() {
    let (samples, classes) = (5, 7);
    let logits: Vec<f32> =
        spread(samples * classes, &mut ChaCha8Rng::seed_from_u64(1)).iter().map(|x| 8.0 * x).collect();
    let labels: Vec<u32> = (0..samples as u32).map(|sample| sample % classes as u32).collect();
    for (layer, definition) in LOSSES {
        let value = |logits: &[f64]| -> f64 {
            logits.chunks(classes).zip(&labels).map(|(row, label)| definition(row, *label as usize)).sum()
        };
        let mut loss = CrossEntropy::new(&layer, classes, samples);
        let result = loss.forward(&logits, &labels);
        let mut wide: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
        assert!((result.sum - value(&wide)).abs() < 1e-5, "{} is not {}", result.sum, value(&wide));
        let right = |(row, label): &(&[f32], &u32)| row.iter().all(|x| *x <= row[**label as usize]);
        assert_eq!(result.correct, logits.chunks(classes).zip(&labels).filter(right).count());
        let mut gradients = Vec::new();
        for at in 0..wide.len() {
            let middle = wide[at];
            wide[at] = middle + 1e-5;
            let above = value(&wide);
            wide[at] = middle - 1e-5;
            gradients.push((above - value(&wide)) / 2e-5 * 0.25);
            wide[at] = middle;
        }
        let mut d_logits = vec![f32::NAN; logits.len()];
        loss.backward(0.25, &mut d_logits, false);
        near(&floats(&bits(&d_logits)), &gradients, "the loss's gradient");
        let once = d_logits.clone();
        loss.backward(0.25, &mut d_logits, true);
        assert!(d_logits.iter().zip(&once).all(|(twice, once)| *twice == once + once), "accumulates");
    }
}

/// Extreme scores do not overflow, and NaN stays NaN and counts as a wrong answer.
#[test]
fn extreme_scores() {
    for (layer, _) in LOSSES {
        let mut loss = CrossEntropy::new(&layer, 2, 1);
        assert_eq!(loss.forward(&[1e30, -1e30], &[0]).sum, 0.0);
        // Softmax: the difference of both; logistic: each unit is off by its own.
        let wrong = loss.forward(&[500.0, -500.0], &[1]).sum;
        assert!((wrong - 1000.0).abs() < 1e-9, "{wrong}");
        let nothing = loss.forward(&[f32::NAN, f32::NAN], &[0]);
        assert!(nothing.sum.is_nan() && nothing.correct == 0);
    }
}

/// Positions that are ignored count neither in the loss nor in its mean, and get no gradient.
#[test]
fn ignored_labels_count_nowhere() {
    let (classes, each) = (3, 4);
    let logits: Vec<f32> = (0..2 * each * classes).map(|at| (at * 5 % 7) as f32 * 0.5 - 1.0).collect();
    // Of the second sample none counts.
    let labels = [2, IGNORED_LABEL, 0, IGNORED_LABEL, IGNORED_LABEL, IGNORED_LABEL, IGNORED_LABEL, IGNORED_LABEL];
    let mut loss = CrossEntropy::of_labels(&Layer::SoftmaxCrossEntropy, classes, 2, each);
    let found = loss.forward(&logits, &labels);
    let rows: Vec<Vec<f64>> = logits.chunks(classes).map(|row| floats(&bits(row))).collect();
    let expected = (softmax(&rows[0], 2) + softmax(&rows[2], 0)) / 2.0;
    assert!((found.sum - expected).abs() < 1e-6, "{} is not {expected}", found.sum);
    assert_eq!((loss.losses().len(), loss.losses()[1]), (2, 0.0));
    let mut d_logits = vec![f32::NAN; logits.len()];
    loss.backward(0.5, &mut d_logits, false);
    // The gradient of the labels that count alone.
    let mut single = CrossEntropy::new(&Layer::SoftmaxCrossEntropy, classes, 2);
    single.forward(&[&logits[..3], &logits[6..9]].concat(), &[2, 0]);
    let mut of_counted = vec![0.0; 2 * classes];
    single.backward(0.25, &mut of_counted, false);
    let mut wanted = vec![0.0; logits.len()];
    wanted[..3].copy_from_slice(&of_counted[..3]);
    wanted[6..9].copy_from_slice(&of_counted[3..]);
    assert_eq!(d_logits, wanted);
}

/// A sample with several labels has the mean of their losses, and its gradient is that of the mean.
#[test]
fn samples_with_several_labels_have_their_mean_loss() {
    let (classes, samples, each) = (3, 4, 2);
    let rows = samples * each;
    let logits: Vec<f32> = (0..rows * classes).map(|at| (at * 7 % 11) as f32 * 0.25 - 1.0).collect();
    let labels: Vec<u32> = (0..rows as u32).map(|row| row * 2 % classes as u32).collect();
    for layer in [Layer::SoftmaxCrossEntropy, Layer::LogisticCrossEntropy] {
        let mut single = CrossEntropy::new(&layer, classes, rows);
        let mut several = CrossEntropy::of_labels(&layer, classes, samples, each);
        let [all, mean] = [&mut single, &mut several].map(|loss| loss.forward(&logits, &labels));
        assert_eq!(mean.correct, all.correct);
        assert!((mean.sum - all.sum / 2.0).abs() < 1e-12, "{} and {}", mean.sum, all.sum);
        let halves: Vec<f64> = single.losses().chunks(each).map(|two| (two[0] + two[1]) / 2.0).collect();
        assert_eq!(several.losses(), halves);
        let [mut of_all, mut of_mean] = [vec![0.0; logits.len()], vec![0.0; logits.len()]];
        single.backward(0.5, &mut of_all, false);
        several.backward(1.0, &mut of_mean, false);
        assert_eq!(of_mean, of_all);
    }
}

/// The output layer with its loss against the linear layer and the loss one after the other: over several spans of classes and
/// several chunks of rows, with ignored labels, in the same bits for any number of threads, for passes apart, and added to gradients that are there.
#[test]
fn an_output_layer_with_its_loss_is_both_one_after_the_other() {
    for (classes, features, samples, each, bias, soft_cap) in [
        (700, 9, 2, 3, true, None),
        (300, 5, 3, 2, false, Some(0.5)),
        (70, 3, 5, 9, true, Some(2.0)),
        (2, 1, 1, 1, false, None),
    ] {
        let layer = lockstep_models::LinearCrossEntropy { out_features: classes as u32, bias, tie: None, soft_cap };
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let rows = samples * each;
        let input = spread(rows * features, rng);
        let parameters: Vec<f32> =
            spread(classes * (features + usize::from(bias)), rng).iter().map(|w| 2.0 * w).collect();
        let mut labels: Vec<u32> = (0..rows).map(|row| (row * 37 % classes) as u32).collect();
        if rows > 1 {
            labels[1] = IGNORED_LABEL;
        }
        let value = |input: &[f64], parameters: &[f64]| -> f64 {
            let row_loss = |(x, label): (&[f64], &u32)| {
                let score = |o: usize| {
                    let product: f64 = x.iter().zip(&parameters[o * features..]).map(|(x, w)| x * w).sum();
                    let score = product + if bias { parameters[classes * features + o] } else { 0.0 };
                    soft_cap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
                };
                let scores: Vec<f64> = (0..classes).map(score).collect();
                if *label == IGNORED_LABEL { 0.0 } else { softmax(&scores, *label as usize) }
            };
            let of_rows: Vec<f64> = input.chunks(features).zip(&labels).map(row_loss).collect();
            let counted = |labels: &[u32]| labels.iter().filter(|label| **label != IGNORED_LABEL).count().max(1);
            let samples = of_rows.chunks(each).zip(labels.chunks(each));
            samples.map(|(losses, labels)| losses.iter().sum::<f64>() / counted(labels) as f64).sum()
        };
        let run = |threads: usize, apart: bool, start: Option<f32>| {
            let threads = Threads::new(threads).expect("a few threads");
            let scores = LinearScores::with_sizes(&layer, features, (256, 16), &threads);
            let mut loss = LinearCrossEntropy::of(scores, &layer, each);
            let mut workspace = Workspace::default();
            workspace.parts([1 << 18]);
            workspace.fill(f32::NAN);
            let found = loss.loss(&input, &parameters, &labels, &mut workspace);
            workspace.fill(f32::NAN);
            let (first, adds) = (start.unwrap_or(f32::NAN), start.is_some());
            let (mut dx, mut dw) = (vec![first; input.len()], vec![first; parameters.len()]);
            let of = (&input[..], &parameters[..]);
            if apart {
                loss.backward(0.25, of, Some((&mut dx, adds)), None, &mut workspace);
                loss.backward(0.25, of, None, Some((&mut dw, adds)), &mut workspace);
            } else {
                loss.backward(0.25, of, Some((&mut dx, adds)), Some((&mut dw, adds)), &mut workspace);
            }
            (found.sum, found.correct, bits(&dx), bits(&dw))
        };
        let (sum, _, dx, dw) = run(1, false, None);
        for (threads, apart) in [(3, false), (1, true)] {
            assert!(run(threads, apart, None) == run(1, false, None), "{threads} threads, apart {apart}");
        }
        let added = |gradient: &[u32]| gradient.iter().map(|bits| 0.5 + f32::from_bits(*bits)).collect::<Vec<f32>>();
        let (_, _, more_dx, more_dw) = run(2, false, Some(0.5));
        assert_eq!((more_dx, more_dw), (bits(&added(&dx)), bits(&added(&dw))));
        let (mut x, mut w) = (floats(&bits(&input)), floats(&bits(&parameters)));
        assert!((sum - value(&x, &w)).abs() < 2e-6 * value(&x, &w).abs().max(1.0), "{sum} is not {}", value(&x, &w));
        let mut slopes = Vec::new();
        for at in 0..x.len() + w.len() {
            let mut moved = |by: f64| {
                if at < x.len() {
                    x[at] += by;
                } else {
                    w[at - x.len()] += by;
                }
                value(&x, &w)
            };
            let (above, below) = (moved(1e-5), moved(-2e-5));
            moved(1e-5);
            slopes.push((above - below) / 2e-5 * 0.25);
        }
        near(&floats(&dx), &slopes[..x.len()], "towards the input");
        near(&floats(&dw), &slopes[x.len()..], "towards the parameters");
    }
}

/// Where shifts and factors are given, as by the numbers of all parts of a loss, gradients are those that are found; of padding there
/// are none.
#[test]
fn gradients_of_given_sums_are_those_that_are_found() {
    let (stored, classes, features, rows) = (700, 650, 5, 45);
    let layer =
        lockstep_models::LinearCrossEntropy { out_features: stored, bias: true, tie: None, soft_cap: Some(1.5) };
    let (stored, rng) = (stored as usize, &mut ChaCha8Rng::seed_from_u64(4));
    let (input, parameters) = (spread(rows * features, rng), spread(stored * (features + 1), rng));
    let threads = Threads::new(2).expect("a few threads");
    let scores = LinearScores::with_sizes(&layer, features, (256, 16), &threads);
    let label = |row: usize| (!row.is_multiple_of(7)).then_some(row * 37 % classes);
    let factor = |row: usize| label(row).map_or(0.0, |_| 0.1 + row as f32 / 100.0);
    let run = |asked: &[RowGradient], first: Option<f32>| {
        let (mut dx, mut dw) =
            (vec![first.unwrap_or(f32::NAN); input.len()], vec![first.unwrap_or(f32::NAN); parameters.len()]);
        let written =
            Written { d_input: Some((&mut dx, first.is_some())), d_parameters: Some((&mut dw, first.is_some())) };
        let found = scores.run((&input, &parameters), classes, asked, written, &mut Workspace::default());
        let change =
            |values: Vec<f32>| values.iter().map(|d| f64::from(d - first.unwrap_or(0.0))).collect::<Vec<f64>>();
        (found, change(dx), change(dw))
    };
    let wanted =
        |row: usize| RowGradient { shift: None, factor: factor(row), of_label: -factor(row), label: label(row) };
    let (found, dx, dw) = run(&(0..rows).map(wanted).collect::<Vec<_>>(), None);
    let given = |(row, of): (usize, &Row)| {
        let (shift, factor) = (of.most + 0.25, f64::from(factor(row)) * 0.25f64.exp() / of.sum);
        RowGradient { shift: Some(shift), factor: factor as f32, ..wanted(row) }
    };
    let (_, more_dx, more_dw) = run(&found.iter().enumerate().map(given).collect::<Vec<_>>(), Some(0.5));
    near(&more_dx, &dx, "towards the input");
    near(&more_dw, &dw, "towards the parameters");
    for dw in [dw, more_dw] {
        assert!(
            dw[classes * features..stored * features]
                .iter()
                .chain(&dw[stored * features + classes..])
                .all(|d| *d == 0.0)
        );
    }
}
