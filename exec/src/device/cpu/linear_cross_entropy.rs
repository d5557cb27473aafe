//! Computes the output layer with its cross-entropy: scores of some classes at a time, for all rows, so that those of a batch are
//! never in memory at once.
//!
//! Forward passes keep the logarithm of each row's sum of exponentials; backward passes compute the scores again. Threads take tiles
//! of classes, of rows or of features, whose sizes depend on the layer alone; how many classes are taken at a time follows from
//! the rows of a batch too, and with it the order of sums over classes.

use lockstep_models::{IGNORED_LABEL, LinearCrossEntropy as Layer};

use super::Loss;
use super::elementwise::merge;
use super::loss::counted;
use super::matmul::{Matrix, multiply, multiply_part};
use super::threads::{Disjoint, Threads, tile_range, tile_ranges};
use crate::simd::{add_into, exp, maximum, sum, tanh, wide};
use crate::workspace::{Workspace, bytes};

/// Classes, rows or features of a tile.
const TILE: usize = 256;
/// Most scores at once, unless there are more rows than that of a tile of classes: 16 MiB.
const SCORES: usize = 1 << 22;

/// Scores of each row and their loss, for batches of up to a fixed number of samples.
pub struct LinearCrossEntropy {
    features: usize,
    classes: usize,
    bias: bool,
    cap: Option<f32>,
    /// Rows of a sample, whose loss is the mean over those that count.
    each: usize,
    /// Classes whose scores are computed at once.
    span: usize,
    threads: Threads,
    labels: Vec<u32>,
    /// By row: the logarithm of the sum of the exponentials of its scores.
    sums: Vec<f32>,
    /// By sample.
    losses: Vec<f64>,
}

/// What is known of a row's scores so far.
#[derive(Clone, Copy)]
struct Row {
    most: f32,
    /// The first class with that score.
    best: usize,
    /// Σ exp(score − most).
    sum: f64,
    of_label: f32,
}

impl LinearCrossEntropy {
    /// The loss of `layer`, whose inputs have `features` at each of the `each` positions of a sample.
    pub fn new(layer: &Layer, features: usize, samples: usize, each: usize, threads: &Threads) -> LinearCrossEntropy {
        let (classes, rows) = (layer.out_features as usize, samples * each);
        let span = (SCORES / rows.max(1) / TILE * TILE).clamp(TILE, classes.next_multiple_of(TILE));
        LinearCrossEntropy::with_span(layer, features, (samples, each), span, threads)
    }

    /// The same with scores of `span` classes at once.
    pub(super) fn with_span(
        layer: &Layer,
        features: usize,
        (samples, each): (usize, usize),
        span: usize,
        threads: &Threads,
    ) -> LinearCrossEntropy {
        let (classes, rows) = (layer.out_features as usize, samples * each);
        LinearCrossEntropy {
            features,
            classes,
            bias: layer.bias,
            cap: layer.soft_cap,
            each,
            span,
            threads: threads.clone(),
            labels: Vec::with_capacity(rows),
            sums: Vec::with_capacity(rows),
            losses: Vec::with_capacity(samples),
        }
    }

    /// Computes the loss of the rows of `input`, `[samples, …, features]`, with a label for each: a class, or [`IGNORED_LABEL`].
    /// `parameters`: the weight, `[classes, features]`, then the bias if there is one.
    pub fn forward(&mut self, input: &[f32], parameters: &[f32], labels: &[u32], workspace: &mut Workspace) -> Loss {
        assert_eq!(input.len(), labels.len() * self.features, "one label per row");
        let rows = labels.len();
        let [scores] = workspace.parts([rows * self.span]);
        let start = Row { most: f32::NEG_INFINITY, best: 0, sum: 0.0, of_label: f32::NEG_INFINITY };
        let mut found = vec![start; rows];
        for classes in tile_ranges(self.span, self.classes) {
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
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.sums.clear();
        self.sums.extend(found.iter().map(|row| (f64::from(row.most) + row.sum.ln()) as f32));
        self.losses.clear();
        let mut loss = Loss::default();
        for (found, labels) in found.chunks_exact(self.each).zip(labels.chunks_exact(self.each)) {
            let mut of_sample = 0.0;
            for (row, label) in found.iter().zip(labels).filter(|(_, label)| **label != IGNORED_LABEL) {
                of_sample += f64::from(row.most) + row.sum.ln() - f64::from(row.of_label);
                loss.correct += usize::from(row.best == *label as usize && row.of_label == row.most);
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

    /// Writes some columns of the scores of a span of classes that begins with `first`.
    ///
    /// # Safety
    /// Nothing else accesses these columns.
    unsafe fn scores(
        &self,
        (to, span): (&Disjoint<'_, f32>, usize),
        input: &[f32],
        parameters: &[f32],
        (first, columns): (usize, std::ops::Range<usize>),
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
        let bias = self.bias.then(|| &parameters[self.classes * features + class..][..count]);
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

    /// Computes the gradients that are requested of `scale · Σ losses`, of the last forward pass on the same `input` and
    /// `parameters`; each is added to what is there if its flag says so. `scale` is 1 / (samples of the global batch).
    pub fn backward(
        &self,
        scale: f32,
        (input, parameters): (&[f32], &[f32]),
        mut d_input: Option<(&mut [f32], bool)>,
        d_parameters: Option<(&mut [f32], bool)>,
        workspace: &mut Workspace,
    ) {
        let (features, rows) = (self.features, self.labels.len());
        let [scores, summed, scratch] = workspace.parts(self.parts(rows));
        let needs_input = d_input.is_some();
        // What is added to a gradient is summed apart, so that it is rounded as one.
        let (summed, target) = match d_input.take() {
            Some((d_input, true)) => (summed, Some(d_input)),
            Some((d_input, false)) => (d_input, None),
            None => (summed, None),
        };
        let samples = self.labels.chunks_exact(self.each);
        let scales: Vec<f32> = samples.map(|labels| scale / counted(labels) as f32).collect();
        let d_parameters = d_parameters.map(|(all, adds)| (Disjoint::new(all), adds));
        let scratch = Disjoint::new(scratch);
        for (number, classes) in tile_ranges(self.span, self.classes).enumerate() {
            let span = classes.len();
            let scores = &mut scores[..rows * span];
            let shared = Disjoint::new(scores);
            self.threads.each(span.div_ceil(TILE), |_, tile| {
                let columns = tile_range(tile, TILE, span);
                // SAFETY: these columns belong to this tile.
                unsafe {
                    self.scores((&shared, span), input, parameters, (classes.start, columns.clone()));
                    self.gradients((&shared, span), &scales, (classes.start, columns));
                }
            });
            let d_scores = &*scores;
            if needs_input {
                let (target, across) = (Disjoint::new(summed), features.div_ceil(TILE / 2));
                self.threads.each(rows.div_ceil(TILE) * across, |_, tile| {
                    let (own, columns) =
                        (tile_range(tile / across, TILE, rows), tile_range(tile % across, TILE / 2, features));
                    let weights = &parameters[classes.start * features + columns.start..self.classes * features];
                    let left = Matrix::rows(&d_scores[own.start * span..], span);
                    // SAFETY: these features of these rows belong to this tile.
                    unsafe {
                        let to = (&target, own.start * features + columns.start);
                        let shape = (own.len(), columns.len(), span);
                        multiply_part(shape, to, features, number > 0, left, Matrix::rows(weights, features));
                    }
                });
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
        scales: &[f32],
        (first, columns): (usize, std::ops::Range<usize>),
    ) {
        for (row, label) in self.labels.iter().enumerate() {
            // SAFETY: as the caller promises.
            let scores = unsafe { to.part(row * span + columns.start..row * span + columns.end) };
            if *label == IGNORED_LABEL {
                scores.fill(0.0);
                continue;
            }
            let (sum, scale) = (self.sums[row], scales[row / self.each]);
            let own = (*label as usize).checked_sub(first + columns.start).filter(|own| *own < scores.len());
            let of_label = own.map(|own| (own, scores[own]));
            let slope = |score: f32| self.cap.map_or(scale, |cap| scale * (1.0 - (score / cap) * (score / cap)));
            wide!(if let Some(cap) = self.cap {
                let slope = |score: f32| scale * (1.0 - (score / cap) * (score / cap));
                scores.iter_mut().for_each(|score| *score = exp(*score - sum) * slope(*score));
            } else {
                scores.iter_mut().for_each(|score| *score = exp(*score - sum) * scale);
            });
            if let Some((own, score)) = of_label {
                scores[own] = (exp(score - sum) - 1.0) * slope(score);
            }
        }
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
        (first, columns, span): (usize, std::ops::Range<usize>, usize),
    ) {
        let (features, rows, count) = (self.features, self.labels.len(), columns.len());
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
            let biases = self.classes * features + class;
            // SAFETY: as above.
            merge(unsafe { target.part(biases..biases + count) }, total, adds);
        }
    }

    /// Elements of a workspace: scores, the gradient of the input, a tile of the weight's gradient for each thread.
    fn parts(&self, rows: usize) -> [usize; 3] {
        let tile = TILE * self.features.max(1);
        [rows * self.span, rows * self.features, self.threads.count() * tile]
    }

    /// Bytes of workspace needed for a batch of `samples`.
    pub fn workspace_bytes(&self, samples: usize) -> usize {
        bytes(&self.parts(samples * self.each))
    }
}

impl Row {
    /// Adds the scores of further classes, of which the first is `first`.
    fn add(&mut self, first: usize, scores: &[f32], label: u32) {
        let most = wide!(maximum(scores));
        if most > self.most {
            self.sum *= f64::from(exp(self.most - most));
            self.most = most;
            self.best = first + scores.iter().position(|score| *score == most).unwrap_or(0);
        }
        let most = self.most;
        self.sum += f64::from(wide!(sum(scores, |score| exp(score - most))));
        if let Some(score) = (label as usize).checked_sub(first).and_then(|own| scores.get(own)) {
            self.of_label = *score;
        }
    }
}
