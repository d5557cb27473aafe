//! Keeps what is known of the softmax of some rows while the scores of further classes arrive (Milakov and Gimelshein 2018, §3).

use std::ops::Range;

use super::threads::Disjoint;
use crate::simd::exp;

/// A row's label and the weight of its loss.
#[derive(Clone, Copy, Default)]
pub(super) struct RowLabel {
    /// `None` where it is ignored.
    pub(super) label: Option<usize>,
    /// The factor of the gradient; 0 where the label is ignored.
    pub(super) factor: f32,
}

/// The loss of a row.
#[derive(Clone, Copy, Default)]
pub(super) struct RowLoss {
    /// In nats; 0 where the label is ignored.
    pub(super) loss: f64,
    /// Whether the label is the first class with the largest score.
    pub(super) correct: bool,
}

/// Where tiles of classes write what they find of labels, by row.
pub(super) struct LabelScores<'a> {
    of_label: Disjoint<'a, f32>,
    before_label: Disjoint<'a, f32>,
    /// The largest scores of the spans before.
    pub(super) most: &'a [f32],
}

impl LabelScores<'_> {
    /// Takes the labels among `classes`, whose scores are `[classes, rows]` and at most `shifts` by row.
    pub(super) fn take(&self, classes: &Range<usize>, scores: &[f32], shifts: &[f32], labels: &[RowLabel]) {
        let rows = labels.len();
        for (row, label) in labels.iter().enumerate() {
            let Some(label) = label.label.filter(|label| classes.contains(label)) else { continue };
            let own = (label - classes.start) * rows + row;
            // Otherwise it is not the largest anyway.
            let before = match scores[own] >= shifts[row] {
                true => scores[row..own].iter().step_by(rows).copied().fold(f32::NEG_INFINITY, f32::max),
                false => f32::INFINITY,
            };
            // SAFETY: the label is a class of one tile alone.
            unsafe {
                self.of_label.part(row..row + 1)[0] = scores[own];
                self.before_label.part(row..row + 1)[0] = before;
            }
        }
    }
}

/// The sums of some rows over the classes so far, by row.
pub(super) struct RowSums {
    /// The largest score.
    pub(super) most: Vec<f32>,
    /// Σ exp(score − most).
    sum: Vec<f64>,
    of_label: Vec<f32>,
    /// The largest score of a class before the label.
    before_label: Vec<f32>,
    /// By what sums of earlier spans are multiplied.
    pub(super) rescale: Vec<f32>,
}

impl RowSums {
    /// Of `rows` rows, before any score.
    pub(super) fn new(rows: usize) -> RowSums {
        let none = || vec![f32::NEG_INFINITY; rows];
        RowSums { most: none(), sum: vec![0.0; rows], of_label: none(), before_label: none(), rescale: vec![0.0; rows] }
    }

    /// What the tiles of a span write of labels.
    pub(super) fn labels(&mut self) -> LabelScores<'_> {
        LabelScores {
            of_label: Disjoint::new(&mut self.of_label),
            before_label: Disjoint::new(&mut self.before_label),
            most: &self.most,
        }
    }

    /// Takes the tiles of a span of classes that begins with `first`: of each the largest scores up to it, which are its shifts, and
    /// the sums of exponentials less these, `[tiles, rows]` both; a tile has `tile` classes.
    pub(super) fn add(&mut self, (first, tile): (usize, usize), shifts: &[f32], sums: &[f32], labels: &[RowLabel]) {
        let rows = self.most.len();
        for (row, (label, before)) in labels.iter().zip(&mut self.before_label).enumerate() {
            let own = label.label.and_then(|label| label.checked_sub(first)).map(|own| own / tile * rows);
            let Some(own) = own.filter(|own| *own < shifts.len()) else { continue };
            *before = shifts[..own].iter().skip(row).step_by(rows).copied().fold(before.max(self.most[row]), f32::max);
        }
        self.rescale.copy_from_slice(&self.most);
        for shifts in shifts.chunks_exact(rows) {
            self.most.iter_mut().zip(shifts).for_each(|(most, shift)| *most = most.max(*shift));
        }
        for ((rescale, most), sum) in self.rescale.iter_mut().zip(&self.most).zip(&mut self.sum) {
            *rescale = exp(*rescale - most);
            *sum *= f64::from(*rescale);
        }
        for (shifts, sums) in shifts.chunks_exact(rows).zip(sums.chunks_exact(rows)) {
            let own = shifts.iter().zip(sums).zip(&self.most);
            self.sum
                .iter_mut()
                .zip(own)
                .for_each(|(sum, ((shift, more), most))| *sum += f64::from(more * exp(shift - most)));
        }
    }

    /// The losses, after all classes.
    pub(super) fn losses(&self, labels: &[RowLabel]) -> Vec<RowLoss> {
        let of_row = |(row, label): (usize, &RowLabel)| match label.label {
            None => RowLoss::default(),
            Some(_) => RowLoss {
                loss: f64::from(self.most[row]) + self.sum[row].ln() - f64::from(self.of_label[row]),
                correct: self.of_label[row] == self.most[row] && self.of_label[row] > self.before_label[row],
            },
        };
        labels.iter().enumerate().map(of_row).collect()
    }

    /// What exponentials are multiplied with to be the gradient of the scores, after all classes.
    pub(super) fn factors(&self, labels: &[RowLabel]) -> Vec<f32> {
        labels.iter().zip(&self.sum).map(|(label, sum)| (f64::from(label.factor) / sum) as f32).collect()
    }

    /// What the gradient of the label's score has less than that of other classes: the factor, times the slope of a `cap`.
    pub(super) fn of_labels(&self, labels: &[RowLabel], cap: Option<f32>) -> Vec<f32> {
        let slope = |score: f32| cap.map_or(1.0, |cap| 1.0 - (score / cap) * (score / cap));
        labels
            .iter()
            .zip(&self.of_label)
            .map(|(label, score)| match label.label {
                Some(_) => label.factor * slope(*score),
                None => 0.0,
            })
            .collect()
    }
}
