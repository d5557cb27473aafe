//! Tests the losses against their definitions in f64.

use super::*;

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
        assert_eq!((mean.sum, mean.correct), (all.sum / 2.0, all.correct));
        let halves: Vec<f64> = single.losses().chunks(each).map(|two| (two[0] + two[1]) / 2.0).collect();
        assert_eq!(several.losses(), halves);
        let [mut of_all, mut of_mean] = [vec![0.0; logits.len()], vec![0.0; logits.len()]];
        single.backward(0.5, &mut of_all, false);
        several.backward(1.0, &mut of_mean, false);
        assert_eq!(of_mean, of_all);
    }
}
