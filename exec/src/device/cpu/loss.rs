//! Softmax and cross-entropy against labels, the end of every model.

use super::elementwise::merge;
use super::simd::wide;

/// What one forward pass of the loss says of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Σ −ln p(label) over the samples, in nats; divide by their number for the mean.
    pub sum: f64,
    /// Samples whose largest logit is their label's (the first of equals counts).
    pub correct: usize,
}

/// Softmax cross-entropy over `classes`; keeps the probabilities for the backward pass.
///
/// ```
/// # use lockstep_exec::device::cpu::SoftmaxCrossEntropy;
/// let mut loss = SoftmaxCrossEntropy::new(2, 1);
/// let result = loss.forward(&[0.0, 0.0], &[0]); // p = ½, ½
/// assert!((result.sum - 2f64.ln()).abs() < 1e-7 && result.correct == 1);
/// let mut d_logits = [0.0; 2];
/// loss.backward(1.0, &mut d_logits, false);
/// assert_eq!(d_logits, [-0.5, 0.5]); // p − 1 at the label, p elsewhere
/// ```
pub struct SoftmaxCrossEntropy {
    classes: usize,
    /// `[samples, classes]` of the last forward pass.
    probabilities: Vec<f32>,
    labels: Vec<u32>,
    scratch: Vec<f32>,
}

impl SoftmaxCrossEntropy {
    /// For batches of up to `samples`.
    pub fn new(classes: usize, samples: usize) -> SoftmaxCrossEntropy {
        SoftmaxCrossEntropy {
            classes,
            probabilities: Vec::with_capacity(classes * samples),
            labels: Vec::with_capacity(samples),
            scratch: vec![0.0; classes],
        }
    }

    /// `logits` is `[samples, classes]`, each label below `classes`.
    pub fn forward(&mut self, logits: &[f32], labels: &[u32]) -> Loss {
        assert_eq!(logits.len(), labels.len() * self.classes, "one label per sample");
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.probabilities.clear();
        let mut loss = Loss::default();
        for (row, label) in logits.chunks_exact(self.classes).zip(labels) {
            let label = *label as usize;
            let (mut best, mut largest) = (0, row[0]);
            for (class, logit) in row.iter().enumerate() {
                if *logit > largest {
                    (best, largest) = (class, *logit);
                }
            }
            let mut total = 0.0f64;
            for logit in row {
                let power = (*logit - largest).exp();
                total += f64::from(power);
                self.probabilities.push(power);
            }
            let inverse = (1.0 / total) as f32;
            let start = self.probabilities.len() - self.classes;
            self.probabilities[start..].iter_mut().for_each(|p| *p *= inverse);
            loss.sum += total.ln() - f64::from(row[label] - largest);
            loss.correct += usize::from(best == label);
        }
        loss
    }

    /// The gradient of `scale · Σ losses` towards the logits; `scale` is 1 / (samples of the global batch). Adds to
    /// `d_logits` when `accumulate`.
    pub fn backward(&mut self, scale: f32, d_logits: &mut [f32], accumulate: bool) {
        assert_eq!(d_logits.len(), self.probabilities.len(), "the gradient of the last forward pass");
        let rows = self.probabilities.chunks_exact(self.classes).zip(&self.labels);
        for ((row, label), target) in rows.zip(d_logits.chunks_exact_mut(self.classes)) {
            wide(
                #[inline(always)]
                || self.scratch.iter_mut().zip(row).for_each(|(d, p)| *d = *p * scale),
            );
            self.scratch[*label as usize] = (row[*label as usize] - 1.0) * scale;
            merge(target, &self.scratch, accumulate);
        }
    }
}
