//! Computes what a loss needs of some classes' scores, and from its gradient theirs: of scores, and of an output layer whose scores
//! are never in memory at once.

use lockstep_models::{IGNORED_LABEL, Layer, PARTIAL_NUMBERS};

use super::linear_scores::{LinearScores, Written};
use super::row_sums::{Row, RowGradient};
use super::{Draw, Forward, Gradients, Head, Threads, Wanted, boxed, only};
use crate::bf16::{Bf16, Float};
use crate::simd::{exp, maximum, put, sum, wide};
use crate::workspace::Workspace;

/// Numbers of a part at a position.
pub(super) const NUMBERS: usize = PARTIAL_NUMBERS as usize;
/// Rows that a thread takes at once.
const TILE: usize = 64;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (own, classes, work) = match of.layer {
        Layer::PartialSoftmax(layer) => (of.channels(), layer.classes, Work::Scores(of.threads.clone())),
        Layer::LinearPartialSoftmax(layer) => {
            let scores = LinearScores::new(&layer.own, of.channels(), of.threads);
            (layer.own.out_features as usize, layer.classes, Work::Linear(scores))
        }
        _ => return None,
    };
    let classes = classes as usize;
    Some(boxed(PartialSoftmax { own, classes, first: 0, each: of.input().places() as usize, labels: Vec::new(), work }))
}

/// What a part's numbers say of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    /// The largest score.
    pub(super) most: f32,
    /// That is subtracted from scores.
    pub(super) shift: f32,
    /// Σ exp(score − shift).
    pub(super) sum: f32,
    pub(super) of_label: f32,
    pub(super) has: Has,
}

/// What a part has of a row's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    /// It is a class of another part.
    Nothing,
    /// A class that is not the first of the largest scores.
    Label,
    /// The first of the part's largest scores.
    Best,
}

/// The part of a rank.
struct PartialSoftmax {
    /// Classes of the part, padding included.
    own: usize,
    /// Of all parts.
    classes: usize,
    /// The part's first class.
    first: usize,
    /// Rows of a sample.
    each: usize,
    labels: Vec<u32>,
    work: Work,
}

/// What makes the scores.
enum Work {
    /// Another layer.
    Scores(Threads),
    Linear(LinearScores),
}

impl PartialSoftmax {
    /// Classes of the part without padding.
    fn counted(&self) -> usize {
        self.classes.saturating_sub(self.first).min(self.own)
    }

    /// The place of a row's label among the part's classes, if it is one of them.
    fn label(&self, row: usize) -> Option<usize> {
        let label = self.labels.get(row).filter(|label| **label != IGNORED_LABEL)?;
        (*label as usize).checked_sub(self.first).filter(|label| *label < self.counted())
    }

    fn gradient(&self, row: usize, found: &[f32], d_found: &[f32]) -> RowGradient {
        let (factor, of_label) = (d_found[2] + d_found[3], d_found[4] + d_found[5]);
        RowGradient { shift: Some(found[0]), factor, of_label, label: self.label(row) }
    }
}

impl Head for PartialSoftmax {
    fn draw(&mut self, draw: Draw, _: &[u64]) {
        self.first = draw.entry as usize;
    }

    fn take_labels(&mut self, labels: &[u32]) {
        self.labels.clear();
        self.labels.extend_from_slice(labels);
    }

    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        let (this, input) = (&*self, of.inputs[0]);
        match &this.work {
            Work::Scores(threads) => threads.each_chunk(of.output, TILE * NUMBERS, |_, range, output| {
                for (at, numbers) in output.chunks_exact_mut(NUMBERS).enumerate() {
                    let row = range.start / NUMBERS + at;
                    let scores = &input[row * this.own..][..this.counted()];
                    Found::of_scores(scores, this.label(row)).write(numbers);
                }
            }),
            Work::Linear(scores) => {
                let rows = of.output.len() / NUMBERS;
                let of_row =
                    |row: usize| RowGradient { shift: None, factor: 0.0, of_label: 0.0, label: this.label(row) };
                let asked: Vec<RowGradient> = (0..rows).map(of_row).collect();
                let written = Written { d_input: None, d_parameters: None };
                let found = scores.run((input, of.parameters), this.counted(), &asked, written, workspace);
                let rows = found.iter().zip(of.output.chunks_exact_mut(NUMBERS));
                rows.for_each(|(row, numbers)| Found::of_row(row).write(numbers));
            }
        }
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (this, input, found) = (&*self, of.inputs[0], of.output);
        let gradient = |row: usize| {
            let numbers = row * NUMBERS..(row + 1) * NUMBERS;
            this.gradient(row, &found[numbers.clone()], &of.d_output[numbers])
        };
        match &this.work {
            Work::Scores(threads) => {
                let Some((d_input, adds)) = only(of.d_inputs) else { return };
                threads.each_chunk(d_input, TILE * this.own, |_, range, d_input| {
                    for (at, d_scores) in d_input.chunks_exact_mut(this.own).enumerate() {
                        let row = range.start / this.own + at;
                        let scores = &input[row * this.own..][..this.own];
                        of_scores(scores, gradient(row), (d_scores, adds), this.counted());
                    }
                });
            }
            Work::Linear(scores) => {
                let gradients: Vec<RowGradient> = (0..found.len() / NUMBERS).map(gradient).collect();
                let written = Written { d_input: only(of.d_inputs), d_parameters: of.d_parameters };
                scores.run((input, of.parameters), this.counted(), &gradients, written, workspace);
            }
        }
    }

    fn workspace_bytes(&self, samples: usize) -> usize {
        match &self.work {
            Work::Scores(_) => 0,
            Work::Linear(scores) => scores.workspace_bytes(samples * self.each),
        }
    }

    fn added_bytes(&self) -> usize {
        if let Work::Linear(scores) = &self.work { scores.added_bytes() } else { 0 }
    }
}

/// The gradient of a row's scores; of those from `counted` on, which are padding, it is 0.
fn of_scores(scores: &[f32], of: RowGradient, (d_scores, adds): (&mut [f32], bool), counted: usize) {
    let RowGradient { factor, of_label, label, .. } = of;
    let shift = of.shift.unwrap_or_default();
    let (own, padding) = d_scores.split_at_mut(counted);
    let before = label.map(|label| (label, if adds { own[label] } else { 0.0 }));
    let nothing = factor == 0.0 && of_label == 0.0;
    wide!(put(
        own,
        adds,
        scores[..counted].iter().map(|score| { if nothing { 0.0 } else { exp(*score - shift) * factor } })
    ));
    if let Some((label, before)) = before.filter(|_| !nothing) {
        own[label] = before + (exp(scores[label] - shift) * factor + of_label);
    }
    if !adds {
        padding.fill(0.0);
    }
}

impl Found {
    /// Of a part without classes.
    const NOTHING: Found = Found { most: -1e30, shift: -1e30, sum: 0.0, of_label: 0.0, has: Has::Nothing };

    fn of_scores(scores: &[f32], label: Option<usize>) -> Found {
        if scores.is_empty() {
            return Found::NOTHING;
        }
        let most = wide!(maximum(scores));
        let shift = near(most);
        let best = || scores.iter().position(|score| *score == most);
        let has = match label {
            None => Has::Nothing,
            Some(label) if scores[label] == most && best() == Some(label) => Has::Best,
            Some(_) => Has::Label,
        };
        let sum = wide!(sum(scores, |score| exp(score - shift)));
        Found { most, shift, sum, of_label: label.map_or(0.0, |label| scores[label]), has }
    }

    fn of_row(row: &Row) -> Found {
        // Scores that are no numbers are no largest ones, but their sum says so.
        if row.most == f32::NEG_INFINITY && !row.sum.is_nan() {
            return Found::NOTHING;
        }
        let shift = near(row.most);
        let has = match row.of_label {
            Some(_) if row.is_best => Has::Best,
            Some(_) => Has::Label,
            None => Has::Nothing,
        };
        let sum = (row.sum * f64::from(row.most - shift).exp()) as f32;
        Found { most: row.most, shift, sum, of_label: row.of_label.unwrap_or(0.0), has }
    }

    fn write(self, numbers: &mut [f32]) {
        let [[_, rest], sum, of_label] = [self.most, self.sum, self.of_label].map(in_two);
        let has = match self.has {
            Has::Nothing => 0.0,
            Has::Label => 1.0,
            Has::Best => 2.0,
        };
        numbers.copy_from_slice(&[self.shift, rest, sum[0], sum[1], of_label[0], of_label[1], has]);
    }

    /// What the numbers of a part say.
    pub(super) fn read(numbers: &[f32]) -> Found {
        let has = match numbers[6] {
            2.0 => Has::Best,
            1.0 => Has::Label,
            _ => Has::Nothing,
        };
        let [most, sum, of_label] = [0, 2, 4].map(|at| numbers[at] + numbers[at + 1]);
        Found { most, shift: numbers[0], sum, of_label, has }
    }
}

/// The number of bf16 next to one.
fn near(x: f32) -> f32 {
    Bf16::nearest(x).widened()
}

/// A number as what bf16 has of it and the rest.
pub(super) fn in_two(x: f32) -> [f32; 2] {
    let first = near(x);
    [first, if first.is_finite() { x - first } else { 0.0 }]
}
