//! The loss against its definition in f64.

use super::*;

/// Softmax cross-entropy against finite differences of ln Σ eˣ − x_label in f64, and its counts.
#[test]
fn loss_agrees_with_its_definition() {
    let (samples, classes) = (5, 7);
    let logits: Vec<f32> =
        spread(samples * classes, &mut ChaCha8Rng::seed_from_u64(1)).iter().map(|x| 8.0 * x).collect();
    let labels: Vec<u32> = (0..samples as u32).map(|sample| sample % classes as u32).collect();
    let value = |logits: &[f64]| -> f64 {
        let one = |(row, label): (&[f64], &u32)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[*label as usize];
        logits.chunks(classes).zip(&labels).map(one).sum()
    };
    let mut loss = SoftmaxCrossEntropy::new(classes, samples);
    let result = loss.forward(&logits, &labels);
    let mut wide: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    assert!((result.sum - value(&wide)).abs() < 1e-5, "{} is not {}", result.sum, value(&wide));
    let right = |(row, label): &(&[f32], &u32)| row.iter().all(|x| *x <= row[**label as usize]);
    assert_eq!(result.correct, logits.chunks(classes).zip(&labels).filter(right).count());
    let mut slopes = Vec::new();
    for at in 0..wide.len() {
        let middle = wide[at];
        wide[at] = middle + 1e-5;
        let above = value(&wide);
        wide[at] = middle - 1e-5;
        slopes.push((above - value(&wide)) / 2e-5 * 0.25);
        wide[at] = middle;
    }
    let mut d_logits = vec![f32::NAN; logits.len()];
    loss.backward(0.25, &mut d_logits, false);
    near(&floats(&bits(&d_logits)), &slopes, "the loss's gradient");
    let once = d_logits.clone();
    loss.backward(0.25, &mut d_logits, true);
    assert!(d_logits.iter().zip(&once).all(|(twice, once)| *twice == once + once), "accumulates");
}
