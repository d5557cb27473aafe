//! Computes cross-entropies against labels, the end of every model: of a softmax, or of independent logistic units.

use lockstep_models::{IGNORED_LABEL, Layer};

use super::Loss;
use super::partial_softmax::{Found, Has, NUMBERS, in_two};
use crate::simd::{put, wide};

/// The link function from scores to probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// pᵢ = eˣⁱ / Σ eˣ; the loss is −ln p(label).
    Softmax,
    /// pᵢ = 1 / (1 + e⁻ˣⁱ), independently; the loss is −ln p(label) − Σ ln(1 − pᵢ) over the others (Krizhevsky 2014,
    /// §5).
    Logistic,
    /// Softmax from what parts of the classes have found.
    Merged,
}

/// Cross-entropy over `classes`; keeps the probabilities for the backward pass.
///
/// ```
/// # use lockstep_exec::device::cpu::CrossEntropy;
/// # use lockstep_models::Layer;
/// let mut loss = CrossEntropy::new(&Layer::SoftmaxCrossEntropy, 2, 1);
/// let result = loss.forward(&[0.0, 0.0], &[0]); // p = ½, ½
/// assert!((result.sum - 2f64.ln()).abs() < 1e-7 && result.correct == 1);
/// let mut d_logits = [0.0; 2];
/// loss.backward(1.0, &mut d_logits, false);
/// assert_eq!(d_logits, [-0.5, 0.5]); // p − 1 at the label, p elsewhere
/// ```
pub struct CrossEntropy {
    link: Link,
    /// Numbers of a row: scores, or what parts have found.
    classes: usize,
    /// `[samples, classes]` of the last forward pass; of parts the gradient of the loss.
    probabilities: Vec<f32>,
    labels: Vec<u32>,
    /// The loss of each sample of the last forward pass.
    losses: Vec<f64>,
    /// Labels of a sample; its loss is the mean over those that count.
    each: usize,
}

impl CrossEntropy {
    /// The loss of `layer`, for batches of up to `samples`.
    ///
    /// # Panics
    /// When the layer is not a loss.
    pub fn new(layer: &Layer, classes: usize, samples: usize) -> CrossEntropy {
        CrossEntropy::of_labels(layer, classes, samples, 1)
    }

    /// The same with `each` labels for each sample, whose loss is the mean over those that count.
    ///
    /// # Panics
    /// As there.
    pub fn of_labels(layer: &Layer, classes: usize, samples: usize, each: usize) -> CrossEntropy {
        let link = match layer {
            Layer::SoftmaxCrossEntropy => Link::Softmax,
            Layer::LogisticCrossEntropy => Link::Logistic,
            Layer::MergedCrossEntropy(_) => Link::Merged,
            other => panic!("{} is not a loss", other.kind()),
        };
        CrossEntropy {
            link,
            classes,
            probabilities: Vec::with_capacity(classes * samples * each),
            labels: Vec::with_capacity(samples * each),
            losses: Vec::with_capacity(samples),
            each,
        }
    }

    /// Computes the loss of `logits`, `[samples, …, classes]`, with a label for each row: a class, or [`IGNORED_LABEL`].
    pub fn forward(&mut self, logits: &[f32], labels: &[u32]) -> Loss {
        assert_eq!(logits.len(), labels.len() * self.classes, "one label per row of scores");
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.probabilities.clear();
        self.losses.clear();
        let mut loss = Loss::default();
        for (rows, labels) in logits.chunks_exact(self.classes * self.each).zip(labels.chunks_exact(self.each)) {
            let mut of_sample = 0.0;
            for (row, label) in rows.chunks_exact(self.classes).zip(labels) {
                if *label == IGNORED_LABEL {
                    self.probabilities.resize(self.probabilities.len() + self.classes, 0.0);
                    continue;
                }
                let (label, kept) = (*label as usize, &mut self.probabilities);
                let (best, largest) = first_largest(row);
                // Nothing compares larger than NaN, but it is no answer.
                let is_best = best == label && !largest.is_nan();
                let (of_row, is_right) = match self.link {
                    Link::Softmax => (softmax(row, label, largest, kept), is_best),
                    Link::Logistic => (logistic(row, label, kept), is_best),
                    Link::Merged => merged(row, kept),
                };
                of_sample += of_row;
                loss.correct += usize::from(is_right);
            }
            let of_sample = of_sample / counted(labels) as f64;
            loss.sum += of_sample;
            self.losses.push(of_sample);
        }
        loss
    }

    /// The losses of the last forward pass by sample, in nats.
    pub fn losses(&self) -> Vec<f64> {
        self.losses.clone()
    }

    /// Computes the gradient of `scale · Σ losses` with respect to the logits; `scale` is 1 / (samples of the global
    /// batch). Adds to `d_logits` when `accumulate`.
    pub fn backward(&mut self, scale: f32, d_logits: &mut [f32], accumulate: bool) {
        assert_eq!(d_logits.len(), self.probabilities.len(), "the gradient of the last forward pass");
        let of_sample = self.classes * self.each;
        let samples = self.probabilities.chunks_exact(of_sample).zip(self.labels.chunks_exact(self.each));
        for ((rows, labels), targets) in samples.zip(d_logits.chunks_exact_mut(of_sample)) {
            let scale = scale / counted(labels) as f32;
            let rows = rows.chunks_exact(self.classes).zip(labels);
            for ((row, label), target) in rows.zip(targets.chunks_exact_mut(self.classes)) {
                let label = if self.link == Link::Merged { self.classes } else { *label as usize };
                let gradient = |(class, p): (usize, &f32)| if class == label { (*p - 1.0) * scale } else { *p * scale };
                wide!(put(target, accumulate, row.iter().enumerate().map(gradient)));
            }
        }
    }
}

/// The labels that count, at least one: where none does, the loss is 0.
pub(super) fn counted(labels: &[u32]) -> usize {
    labels.iter().filter(|label| **label != IGNORED_LABEL).count().max(1)
}

/// The first of the largest numbers, and where it is.
fn first_largest(row: &[f32]) -> (usize, f32) {
    let larger = |(best, largest), (class, number): (usize, &f32)| match *number > largest {
        true => (class, *number),
        false => (best, largest),
    };
    row.iter().enumerate().fold((0, row[0]), larger)
}

/// ln Σ eˣ − x(label) from what the parts of the classes have found, and whether the label has the first of the largest scores;
/// appends the gradient of these numbers.
fn merged(row: &[f32], gradients: &mut Vec<f32>) -> (f64, bool) {
    let parts: Vec<Found> = row.chunks_exact(NUMBERS).map(Found::read).collect();
    let largest: Vec<f32> = parts.iter().map(|part| part.most).collect();
    let (best, _) = first_largest(&largest);
    let shift = f64::from(parts[best].shift);
    let powers: Vec<f64> = parts.iter().map(|part| (f64::from(part.shift) - shift).exp()).collect();
    let total: f64 = parts.iter().zip(&powers).map(|(part, power)| f64::from(part.sum) * power).sum();
    for (part, power) in parts.iter().zip(&powers) {
        let [of_sum, rest] = in_two((power / total) as f32);
        let of_label = if part.has == Has::Nothing { 0.0 } else { -1.0 };
        gradients.extend([0.0, 0.0, of_sum, rest, of_label, 0.0, 0.0]);
    }
    let of_label = parts.iter().find(|part| part.has != Has::Nothing).map_or(f32::NEG_INFINITY, |part| part.of_label);
    let is_right = parts[best].has == Has::Best && !largest[best].is_nan();
    (shift + total.ln() - f64::from(of_label), is_right)
}

/// ln Σ eˣ − x(label), shifted by the largest so that no power overflows; appends the probabilities.
fn softmax(row: &[f32], label: usize, largest: f32, probabilities: &mut Vec<f32>) -> f64 {
    let mut total = 0.0f64;
    let start = probabilities.len();
    for logit in row {
        let power = (*logit - largest).exp();
        total += f64::from(power);
        probabilities.push(power);
    }
    let inverse = (1.0 / total) as f32;
    probabilities[start..].iter_mut().for_each(|p| *p *= inverse);
    total.ln() - f64::from(row[label] - largest)
}

/// Σ ln(1 + eˣ) − x(label), where ln(1 + eˣ) = max(x, 0) + ln(1 + e^−|x|) does not overflow; appends the probabilities.
fn logistic(row: &[f32], label: usize, probabilities: &mut Vec<f32>) -> f64 {
    let mut total = 0.0f64;
    for logit in row {
        let x = f64::from(*logit);
        let power = (-x.abs()).exp();
        // `max` would turn NaN into a number.
        total += if x < 0.0 { 0.0 } else { x } + power.ln_1p();
        let small = power / (1.0 + power);
        probabilities.push(if x < 0.0 { small } else { 1.0 - small } as f32);
    }
    total - f64::from(row[label])
}
