//! Keeps what is known of the softmax of some rows while the scores of further classes arrive (Milakov and Gimelshein 2018, §3).

use std::ops::Range;

use super::threads::Disjoint;
use crate::simd::{exp, wide};

/// Up to one row in so many is multiplied by itself, more with all.
const FEW: usize = 16;

/// The gradient of a row's scores: exp(score − shift) · factor, and `of_label` more at the label.
#[derive(Clone, Copy)]
pub(super) struct RowGradient {
    /// `None` where it is found: then the shift is the largest score, and the factor is divided by the sum.
    pub(super) shift: Option<f32>,
    pub(super) factor: f32,
    pub(super) of_label: f32,
    /// `None` where it is not among the classes.
    pub(super) label: Option<usize>,
}

/// What is found of a row.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// The largest score; −∞ without classes.
    pub(super) most: f32,
    /// Σ exp(score − most).
    pub(super) sum: f64,
    /// The label's, if there was one.
    pub(super) of_label: Option<f32>,
    /// Whether the label is the first class with the largest score.
    pub(super) is_best: bool,
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
    pub(super) fn take(&self, classes: &Range<usize>, scores: &[f32], shifts: &[f32], asked: &[RowGradient]) {
        let rows = asked.len();
        for (row, of) in asked.iter().enumerate() {
            let Some(label) = of.label.filter(|label| classes.contains(label)) else { continue };
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
    /// Whether shifts and factors are given.
    pub(super) given: bool,
}

impl RowSums {
    /// Of some rows, before any score.
    pub(super) fn new(asked: &[RowGradient]) -> RowSums {
        let (rows, given) = (asked.len(), asked.iter().any(|of| of.shift.is_some()));
        let none = || vec![f32::NEG_INFINITY; rows];
        RowSums {
            most: asked.iter().map(|of| of.shift.unwrap_or(f32::NEG_INFINITY)).collect(),
            sum: vec![0.0; rows],
            of_label: none(),
            before_label: none(),
            rescale: vec![1.0; rows],
            given,
        }
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
    pub(super) fn add(&mut self, (first, tile): (usize, usize), shifts: &[f32], sums: &[f32], asked: &[RowGradient]) {
        let rows = self.most.len();
        for (row, (of, before)) in asked.iter().zip(&mut self.before_label).enumerate() {
            let own = of.label.and_then(|label| label.checked_sub(first)).map(|own| own / tile * rows);
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

    /// What is found, after all classes.
    pub(super) fn rows(&self, asked: &[RowGradient]) -> Vec<Row> {
        let of_row = |(row, of): (usize, &RowGradient)| {
            let (most, of_label) = (self.most[row], self.of_label[row]);
            let is_best = of.label.is_some() && of_label == most && of_label > self.before_label[row];
            Row { most, sum: self.sum[row], of_label: of.label.map(|_| of_label), is_best }
        };
        asked.iter().enumerate().map(of_row).collect()
    }

    /// What exponentials are multiplied with to be the gradient of the scores, after all classes.
    pub(super) fn factors(&self, asked: &[RowGradient]) -> Vec<f32> {
        let of_row = |(of, sum): (&RowGradient, &f64)| match of.shift {
            Some(_) => of.factor,
            None => (f64::from(of.factor) / sum) as f32,
        };
        asked.iter().zip(&self.sum).map(of_row).collect()
    }

    /// What the gradient of the label's score has more than that of other classes, times the slope of a `cap`.
    pub(super) fn of_labels(&self, asked: &[RowGradient], cap: Option<f32>) -> Vec<f32> {
        let slope = |score: f32| cap.map_or(1.0, |cap| 1.0 - (score / cap) * (score / cap));
        let of_row = |(of, score): (&RowGradient, &f32)| of.label.map_or(0.0, |_| of.of_label * slope(*score));
        asked.iter().zip(&self.of_label).map(of_row).collect()
    }
}

/// Makes scores, `[classes, rows]`, their exponentials less a shift by row, times a slope; writes sums of the exponentials by row.
pub(super) fn exponentiate(scores: &mut [f32], shifts: &[f32], sums: &mut [f32], slope: impl Fn(f32) -> f32) {
    let rows = sums.len();
    sums.fill(0.0);
    wide!(for scores in scores.chunks_exact_mut(rows) {
        for ((score, shift), sum) in scores.iter_mut().zip(shifts).zip(sums.iter_mut()) {
            let of_score = exp(*score - shift);
            *sum += of_score;
            *score = of_score * slope(*score);
        }
    });
}

/// Multiplies what is `[classes, rows]` by a factor by row. Most are 1 often.
pub(super) fn scale_rows(values: &mut [f32], factors: &[f32]) {
    let rows = factors.len();
    let others = || factors.iter().enumerate().filter(|(_, factor)| **factor != 1.0);
    if others().count() > rows / FEW {
        wide!(for values in values.chunks_exact_mut(rows) {
            values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
        });
        return;
    }
    for (row, factor) in others() {
        values[row..].iter_mut().step_by(rows).for_each(|value| *value *= factor);
    }
}
