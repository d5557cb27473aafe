//! Computes the scores of an output layer for its loss: those of some classes at a time, for all rows, so that those of a batch are
//! never in memory at once.
//!
//! Backward passes compute the scores again. Threads take tiles of classes, of rows or of features, whose sizes depend on the layer
//! alone; how many classes are taken at a time follows from the rows of a batch too, and with it the order of sums over classes.

use std::ops::Range;

use lockstep_models::LinearCrossEntropy as Layer;

use super::elementwise::merge;
use super::matmul::{Matrix, multiply, multiply_part};
use super::threads::{Disjoint, Threads, tile_range, tile_ranges};
use crate::simd::{add_into, exp, maximum, sum, tanh, wide};
use crate::workspace::{Workspace, bytes};

/// Classes, rows or features of a tile.
const TILE: usize = 256;
/// Most scores at once, unless there are more rows than that of a tile of classes: 16 MiB.
const SCORES: usize = 1 << 22;

/// The linear layer, for batches of up to a fixed number of rows.
pub(super) struct LinearScores {
    features: usize,
    /// Rows of the weight.
    stored: usize,
    bias: bool,
    cap: Option<f32>,
    /// Classes whose scores are computed at once.
    span: usize,
    threads: Threads,
}

/// What is known of a row's scores so far.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// The largest.
    pub(super) most: f32,
    /// The first class with that score.
    pub(super) best: usize,
    /// Σ exp(score − most).
    pub(super) sum: f64,
    /// The label's, if there was one.
    pub(super) of_label: Option<f32>,
}

/// The gradient of a row's scores: exp(score − shift) · factor, and `of_label` more at the label.
#[derive(Clone, Copy, Default)]
pub(super) struct RowGradient {
    pub(super) shift: f32,
    pub(super) factor: f32,
    pub(super) of_label: f32,
    /// `None` where it is not among the classes.
    pub(super) label: Option<usize>,
}

/// What a backward pass writes, each with whether it is added to; `None` where it is not needed.
pub(super) struct Written<'a> {
    pub(super) d_input: Option<(&'a mut [f32], bool)>,
    pub(super) d_parameters: Option<(&'a mut [f32], bool)>,
}

impl LinearScores {
    /// Of `layer`, whose inputs have `features`, for batches of up to `rows`.
    pub(super) fn new(layer: &Layer, features: usize, rows: usize, threads: &Threads) -> LinearScores {
        let classes = layer.out_features as usize;
        let span = (SCORES / rows.max(1) / TILE * TILE).clamp(TILE, classes.next_multiple_of(TILE));
        LinearScores::with_span(layer, features, span, threads)
    }

    /// The same with scores of `span` classes at once.
    pub(super) fn with_span(layer: &Layer, features: usize, span: usize, threads: &Threads) -> LinearScores {
        let (stored, bias, cap) = (layer.out_features as usize, layer.bias, layer.soft_cap);
        LinearScores { features, stored, bias, cap, span, threads: threads.clone() }
    }

    /// Finds what a softmax needs of the scores of the first `classes` classes. `labels`: of each row its class, if it is among
    /// these.
    pub(super) fn forward(
        &self,
        (input, parameters): (&[f32], &[f32]),
        classes: usize,
        labels: &[Option<usize>],
        workspace: &mut Workspace,
    ) -> Vec<Row> {
        assert_eq!(input.len(), labels.len() * self.features, "one label per row");
        let rows = labels.len();
        let [scores] = workspace.parts([rows * self.span]);
        let mut found = vec![Row { most: f32::NEG_INFINITY, best: 0, sum: 0.0, of_label: None }; rows];
        for classes in tile_ranges(self.span, classes) {
            let span = classes.len();
            let scores = &mut scores[..rows * span];
            let shared = Disjoint::new(scores);
            self.threads.each(span.div_ceil(TILE), |_, tile| {
                let columns = tile_range(tile, TILE, span);
                // SAFETY: these columns belong to this tile.
                unsafe { self.scores((&shared, span), input, parameters, (classes.start, columns)) };
            });
            let scores = &*scores;
            self.threads.each_chunk(&mut found, TILE, |_, range, found| {
                let own = scores[range.start * span..range.end * span].chunks_exact(span).zip(&labels[range]);
                found.iter_mut().zip(own).for_each(|(row, (scores, label))| row.add(classes.start, scores, *label));
            });
        }
        found
    }

    /// Writes some columns of the scores of a span of classes that begins with `first`.
    ///
    /// # Safety
    /// Nothing else accesses these columns.
    unsafe fn scores(
        &self,
        (to, span): (&Disjoint<'_, f32>, usize),
        input: &[f32],
        parameters: &[f32],
        (first, columns): (usize, Range<usize>),
    ) {
        let (features, rows, count) = (self.features, input.len() / self.features, columns.len());
        let class = first + columns.start;
        let weights = Matrix::transposed(&parameters[class * features..(class + count) * features], features);
        // SAFETY: as the caller promises.
        unsafe {
            let shape = (rows, count, features);
            multiply_part(shape, (to, columns.start), span, false, Matrix::rows(input, features), weights);
        }
        if !self.bias && self.cap.is_none() {
            return;
        }
        let bias = self.bias.then(|| &parameters[self.stored * features + class..][..count]);
        for row in 0..rows {
            // SAFETY: as above.
            let scores = unsafe { to.part(row * span + columns.start..row * span + columns.end) };
            if let Some(bias) = bias {
                add_into(scores, bias);
            }
            if let Some(cap) = self.cap {
                wide!(scores.iter_mut().for_each(|score| *score = cap * tanh(*score / cap)));
            }
        }
    }

    /// Computes the gradients that are requested from those of the scores of the first `classes` classes, of the last forward pass on
    /// the same `input` and `parameters`.
    pub(super) fn backward(
        &self,
        (input, parameters): (&[f32], &[f32]),
        classes: usize,
        gradients: &[RowGradient],
        Written { mut d_input, d_parameters }: Written<'_>,
        workspace: &mut Workspace,
    ) {
        let (features, rows) = (self.features, gradients.len());
        let [scores, summed, scratch] = workspace.parts(self.parts(rows));
        let needs_input = d_input.is_some();
        // What is added to a gradient is summed apart, so that it is rounded as one.
        let (summed, target) = match d_input.take() {
            Some((d_input, true)) => (summed, Some(d_input)),
            Some((d_input, false)) => (d_input, None),
            None => (summed, None),
        };
        if classes == 0 && needs_input {
            summed.fill(0.0);
        }
        let d_parameters = d_parameters.map(|(all, adds)| (Disjoint::new(all), adds));
        let scratch = Disjoint::new(scratch);
        for (number, classes) in tile_ranges(self.span, classes).enumerate() {
            let span = classes.len();
            let scores = &mut scores[..rows * span];
            let shared = Disjoint::new(scores);
            self.threads.each(span.div_ceil(TILE), |_, tile| {
                let columns = tile_range(tile, TILE, span);
                // SAFETY: these columns belong to this tile.
                unsafe {
                    self.scores((&shared, span), input, parameters, (classes.start, columns.clone()));
                    self.gradients((&shared, span), gradients, (classes.start, columns));
                }
            });
            let d_scores = &*scores;
            if needs_input {
                self.of_input((summed, number > 0), parameters, d_scores, &classes);
            }
            if let Some((target, adds)) = &d_parameters {
                self.threads.each(span.div_ceil(TILE), |worker, tile| {
                    let columns = tile_range(tile, TILE, span);
                    // SAFETY: a worker's scratch is its own, and these classes belong to this tile.
                    unsafe {
                        let of_worker = worker * TILE * features..(worker + 1) * TILE * features;
                        let scratch = scratch.part(of_worker);
                        self.of_parameters((target, *adds), scratch, (d_scores, input), (classes.start, columns, span));
                    }
                });
            }
        }
        if let Some((target, false)) = &d_parameters {
            // Classes that are padding have no gradient.
            let (end, biases) = (self.stored * features, if self.bias { self.stored } else { 0 });
            // SAFETY: all tiles are done.
            unsafe {
                target.part(classes * features..end).fill(0.0);
                target.part(end + classes.min(biases)..end + biases).fill(0.0);
            }
        }
        if let Some(d_input) = target {
            merge(d_input, summed, true);
        }
    }

    /// Makes scores the gradients of the linear layer's output.
    ///
    /// # Safety
    /// Nothing else accesses these columns.
    unsafe fn gradients(
        &self,
        (to, span): (&Disjoint<'_, f32>, usize),
        gradients: &[RowGradient],
        (first, columns): (usize, Range<usize>),
    ) {
        for (row, of) in gradients.iter().enumerate() {
            // SAFETY: as the caller promises.
            let scores = unsafe { to.part(row * span + columns.start..row * span + columns.end) };
            let RowGradient { shift, factor, .. } = *of;
            if factor == 0.0 && of.of_label == 0.0 {
                scores.fill(0.0);
                continue;
            }
            let own = of.label.and_then(|label| label.checked_sub(first + columns.start));
            let of_label = own.filter(|own| *own < scores.len()).map(|own| (own, scores[own]));
            let slope = |score: f32| self.cap.map_or(1.0, |cap| 1.0 - (score / cap) * (score / cap));
            wide!(if let Some(cap) = self.cap {
                let slope = |score: f32| factor * (1.0 - (score / cap) * (score / cap));
                scores.iter_mut().for_each(|score| *score = exp(*score - shift) * slope(*score));
            } else {
                scores.iter_mut().for_each(|score| *score = exp(*score - shift) * factor);
            });
            if let Some((own, score)) = of_label {
                scores[own] = (exp(score - shift) * factor + of.of_label) * slope(score);
            }
        }
    }

    /// Writes the gradient of the input from those of the scores of some classes, or adds it.
    fn of_input(
        &self,
        (d_input, adds): (&mut [f32], bool),
        parameters: &[f32],
        d_scores: &[f32],
        classes: &Range<usize>,
    ) {
        let (features, span) = (self.features, classes.len());
        let rows = d_scores.len() / span;
        let (target, across) = (Disjoint::new(d_input), features.div_ceil(TILE / 2));
        self.threads.each(rows.div_ceil(TILE) * across, |_, tile| {
            let (own, columns) = (tile_range(tile / across, TILE, rows), tile_range(tile % across, TILE / 2, features));
            let weights = &parameters[classes.start * features + columns.start..self.stored * features];
            let left = Matrix::rows(&d_scores[own.start * span..], span);
            // SAFETY: these features of these rows belong to this tile.
            unsafe {
                let to = (&target, own.start * features + columns.start);
                let shape = (own.len(), columns.len(), span);
                multiply_part(shape, to, features, adds, left, Matrix::rows(weights, features));
            }
        });
    }

    /// Writes the gradients of the weights of some classes, and of their biases, or adds them.
    ///
    /// # Safety
    /// Nothing else accesses these.
    unsafe fn of_parameters(
        &self,
        (target, adds): (&Disjoint<'_, f32>, bool),
        scratch: &mut [f32],
        (d_scores, input): (&[f32], &[f32]),
        (first, columns, span): (usize, Range<usize>, usize),
    ) {
        let (features, rows, count) = (self.features, d_scores.len() / span, columns.len());
        let class = first + columns.start;
        // SAFETY: as the caller promises.
        let weights = unsafe { target.part(class * features..(class + count) * features) };
        let (shape, left) = ((count, features, rows), Matrix::transposed(&d_scores[columns.start..], span));
        if adds {
            let scratch = &mut scratch[..count * features];
            multiply(shape, scratch, features, false, left, Matrix::rows(input, features));
            add_into(weights, scratch);
        } else {
            multiply(shape, weights, features, false, left, Matrix::rows(input, features));
        }
        if self.bias {
            let total = &mut scratch[..count];
            total.fill(0.0);
            d_scores.chunks_exact(span).for_each(|row| add_into(total, &row[columns.clone()]));
            let biases = self.stored * features + class;
            // SAFETY: as above.
            merge(unsafe { target.part(biases..biases + count) }, total, adds);
        }
    }

    /// Elements of a workspace: scores, the gradient of the input, a tile of the weight's gradient for each thread.
    fn parts(&self, rows: usize) -> [usize; 3] {
        let tile = TILE * self.features.max(1);
        [rows * self.span, rows * self.features, self.threads.count() * tile]
    }

    /// Bytes of workspace needed for a batch of `rows`.
    pub(super) fn workspace_bytes(&self, rows: usize) -> usize {
        bytes(&self.parts(rows))
    }
}

impl Row {
    /// Adds the scores of further classes, of which the first is `first`.
    fn add(&mut self, first: usize, scores: &[f32], label: Option<usize>) {
        let most = wide!(maximum(scores));
        if most > self.most {
            self.sum *= f64::from(exp(self.most - most));
            self.most = most;
            self.best = first + scores.iter().position(|score| *score == most).unwrap_or(0);
        }
        let most = self.most;
        self.sum += f64::from(wide!(sum(scores, |score| exp(score - most))));
        if let Some(score) = label.and_then(|label| label.checked_sub(first)).and_then(|own| scores.get(own)) {
            self.of_label = Some(*score);
        }
    }
}
