//! Computes the scores of an output layer for its loss, and the gradients of both in the same pass: those of some rows at a time.
//!
//! They are `[classes, rows]`, so that what a softmax sums over classes is summed in registers of rows. The scores of a span of
//! classes are exponentiated as soon as they are there, less the largest so far; what was summed before is scaled when a later
//! span has a larger one. Sizes of tiles depend on the layer and on the number of rows alone.

use std::ops::Range;

use lockstep_models::LinearCrossEntropy as Layer;

use super::elementwise::merge;
use super::matmul::{Matrix, multiply, multiply_part, transpose};
use super::row_sums::{Row, RowGradient, RowSums, exponentiate, scale_rows};
use super::threads::{Disjoint, Threads, tile_range, tile_ranges};
use crate::simd::{exp, sum_pairs, tanh, wide};
use crate::workspace::{Workspace, bytes};

/// Classes that a thread takes at once.
const TILE: usize = 256;
/// Most scores at once, 64 MiB, unless [`FEWEST`] rows have more.
const SCORES: usize = 1 << 24;
/// Rows at once: products of fewer are slower, those of more are as fast.
const FEWEST: usize = 128;
const MOST: usize = 512;
/// Most features of a tile of the input's gradient, and what they are a multiple of: the columns of a product's inner loop.
const FEATURES: usize = 144;
const COLUMNS: usize = 6;
/// Rows whose gradient a thread finishes at once.
const FINISHED: usize = 16;

/// What a pass writes, each with whether it is added to; `None` where it is not needed.
pub(super) struct Written<'a> {
    pub(super) d_input: Option<(&'a mut [f32], bool)>,
    pub(super) d_parameters: Option<(&'a mut [f32], bool)>,
}

/// The output layer, for batches of any number of rows.
pub(super) struct LinearScores {
    features: usize,
    /// Rows of the weight: classes and padding.
    stored: usize,
    bias: bool,
    cap: Option<f32>,
    /// Classes whose exponentials have one shift.
    span: usize,
    /// Most rows at once.
    most: usize,
    threads: Threads,
}

/// Some rows, `[rows, features]`, with what is asked of them; and the parameters.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    input: &'a [f32],
    parameters: &'a [f32],
    asked: &'a [RowGradient],
    /// Whether gradients read the exponentials.
    keeps: bool,
}

/// What a chunk of rows leaves for the gradients.
struct Softmax<'a> {
    /// exp(score − shift) times the slope of a cap, `[classes, rows]`.
    exponentials: &'a [f32],
    /// `[spans, rows]`.
    shifts: &'a [f32],
    /// The last of these.
    most: &'a [f32],
    /// By row, as of [`RowSums::factors`] and [`RowSums::of_labels`].
    factors: &'a [f32],
    of_labels: &'a [f32],
}

impl LinearScores {
    pub(super) fn new(layer: &Layer, features: usize, threads: &Threads) -> LinearScores {
        let rows = (SCORES / layer.out_features.max(1) as usize).clamp(FEWEST, MOST);
        LinearScores::with_sizes(layer, features, (8 * TILE, rows), threads)
    }

    /// The same with spans of some classes, a multiple of a tile's, and at most so many rows at once.
    pub(super) fn with_sizes(
        layer: &Layer,
        features: usize,
        (span, most): (usize, usize),
        threads: &Threads,
    ) -> LinearScores {
        let (stored, bias, cap) = (layer.out_features as usize, layer.bias, layer.soft_cap);
        LinearScores { features, stored, bias, cap, span, most, threads: threads.clone() }
    }

    /// Rows whose scores are there at once, of a batch of `rows`.
    fn rows_at_once(&self, rows: usize) -> usize {
        let rows = rows.max(1);
        rows.div_ceil(rows.div_ceil(self.most)).next_multiple_of(FINISHED).min(rows)
    }

    /// Elements of a workspace: scores, the input's gradient of some rows, their scaled input, their shifts, numbers of tiles.
    fn parts(&self, rows: usize) -> [usize; 5] {
        let rows = self.rows_at_once(rows);
        let (spans, tiles) = (self.stored.div_ceil(self.span), self.span.div_ceil(TILE));
        let of_rows = rows * self.features;
        [rows * self.stored, of_rows, of_rows, spans * rows, 2 * tiles * rows]
    }

    /// Bytes of workspace for a batch of `rows`.
    pub(super) fn workspace_bytes(&self, rows: usize) -> usize {
        bytes(&self.parts(rows))
    }

    /// Bytes more where the parameters' gradient is added to what is there.
    pub(super) fn added_bytes(&self) -> usize {
        bytes(&[self.parameters()])
    }

    fn parameters(&self) -> usize {
        self.stored * (self.features + usize::from(self.bias))
    }

    /// Finds what a softmax needs of the scores of the first `classes` classes of rows of `input`, `[rows, features]`, unless it is
    /// given, and writes the gradients that are requested of these scores. Classes behind are padding, without gradients.
    pub(super) fn run(
        &self,
        (input, parameters): (&[f32], &[f32]),
        classes: usize,
        asked: &[RowGradient],
        Written { mut d_input, d_parameters }: Written<'_>,
        workspace: &mut Workspace,
    ) -> Vec<Row> {
        let adds = d_parameters.as_ref().is_some_and(|(_, adds)| *adds);
        let [scores, d_rows, scaled, shifts, numbers] = self.parts(asked.len());
        let whole = if adds { self.parameters() } else { 0 };
        let [scores, d_rows, scaled, shifts, numbers, whole] =
            workspace.parts([scores, d_rows, scaled, shifts, numbers, whole]);
        // What is added to a gradient is summed apart, so that it is rounded as one.
        let (mut d_parameters, target) = match d_parameters {
            Some((target, true)) => (Some(whole), Some(target)),
            Some((target, false)) => (Some(target), None),
            None => (None, None),
        };
        let keeps = d_input.is_some() || d_parameters.is_some();
        let mut found = Vec::with_capacity(asked.len());
        for rows in tile_ranges(self.rows_at_once(asked.len()), asked.len()) {
            let places = rows.start * self.features..rows.end * self.features;
            let input = &input[places.clone()];
            let chunk = Chunk { input, parameters, asked: &asked[rows.clone()], keeps };
            let mut sums = RowSums::new(chunk.asked);
            self.transpose(chunk, scaled);
            if classes == 0 {
                d_rows.fill(0.0);
            }
            for (number, classes) in tile_ranges(self.span, classes).enumerate() {
                let first = if keeps { classes.start * rows.len() } else { 0 };
                let own = &mut scores[first..first + classes.len() * rows.len()];
                self.exponentials(chunk, scaled, &classes, (own, &mut *numbers), &mut sums);
                shifts[number * rows.len()..][..rows.len()].copy_from_slice(&sums.most);
                if d_input.is_some() {
                    let rescale = (number > 0).then_some(&sums.rescale[..]);
                    self.add_to_input(chunk, &classes, own, (&mut *d_rows, rescale));
                }
            }
            let (factors, of_labels) = (sums.factors(chunk.asked), sums.of_labels(chunk.asked, self.cap));
            let exponentials = &scores[..classes * rows.len()];
            let of = Softmax { exponentials, shifts, most: &sums.most, factors: &factors, of_labels: &of_labels };
            if let Some((d_input, adds)) = &mut d_input {
                self.finish_input(chunk, &of, (d_rows, scaled), (&mut d_input[places], *adds));
            }
            if let Some(d_parameters) = &mut d_parameters {
                self.of_parameters(chunk, classes, &of, scaled, (d_parameters, rows.start > 0));
            }
            found.extend(sums.rows(chunk.asked));
        }
        if let Some(d_parameters) = &mut d_parameters {
            let (weights, biases) = d_parameters.split_at_mut(self.stored * self.features);
            weights[classes * self.features..].fill(0.0);
            biases.get_mut(classes..).into_iter().for_each(|padding| padding.fill(0.0));
        }
        if let (Some(target), Some(whole)) = (target, d_parameters) {
            self.threads.each_chunk(target, TILE * self.features, |_, range, part| merge(part, &whole[range], true));
        }
        found
    }

    /// Writes the input of some rows as `[features, rows]`.
    fn transpose(&self, chunk: Chunk<'_>, to: &mut [f32]) {
        let (features, rows) = (self.features, chunk.asked.len());
        self.threads.each_chunk(&mut to[..rows * features], FINISHED * rows, |_, range, to| {
            transpose(&chunk.input[range.start / rows..], features, to, rows);
        });
    }

    /// Computes the scores of some classes of an input that is `[features, rows]`, and in their place their exponentials less the
    /// largest so far. `numbers` are for the shift and the sum of each tile of classes.
    ///
    /// A tile is exponentiated while it is in the cache, less the largest up to it; where a tile beside it has a larger one, it is
    /// scaled.
    fn exponentials(
        &self,
        chunk: Chunk<'_>,
        input: &[f32],
        classes: &Range<usize>,
        (scores, numbers): (&mut [f32], &mut [f32]),
        found: &mut RowSums,
    ) {
        let given = found.given;
        let (rows, tiles) = (chunk.asked.len(), classes.len().div_ceil(TILE));
        let (shifts, sums) = numbers[..2 * tiles * rows].split_at_mut(tiles * rows);
        let tile_of = |tile: usize| tile_range(tile, TILE, classes.len());
        let labels = found.labels();
        let (all, every_shift, every_sum) = (Disjoint::new(scores), Disjoint::new(shifts), Disjoint::new(sums));
        self.threads.each(tiles, |_, tile| {
            let (own, of_tile) = (tile_of(tile), tile * rows..(tile + 1) * rows);
            let places = own.start * rows..own.end * rows;
            let own = classes.start + own.start..classes.start + own.end;
            // SAFETY: these classes belong to this tile.
            let (scores, shifts, sums) = unsafe {
                self.scores(chunk, input, own.start, (&all, places.clone()));
                (all.part(places), every_shift.part(of_tile.clone()), every_sum.part(of_tile))
            };
            shifts.copy_from_slice(labels.most);
            if !given {
                wide!(for scores in scores.chunks_exact(rows) {
                    let pairs = shifts.iter_mut().zip(scores);
                    pairs.for_each(|(most, score)| *most = if *score > *most { *score } else { *most });
                });
            }
            labels.take(&own, scores, shifts, chunk.asked);
            match self.cap {
                None => exponentiate(scores, shifts, sums, |_| 1.0),
                Some(cap) => exponentiate(scores, shifts, sums, |score| 1.0 - (score / cap) * (score / cap)),
            }
        });
        if given {
            return;
        }
        found.add((classes.start, TILE), shifts, sums, chunk.asked);
        if !chunk.keeps {
            return;
        }
        let (all, most) = (Disjoint::new(scores), &found.most[..]);
        let (shifts, every_factor) = (&*shifts, Disjoint::new(sums));
        self.threads.each(tiles, |_, tile| {
            let (own, of_tile) = (tile_of(tile), tile * rows..(tile + 1) * rows);
            // SAFETY: as above.
            let (scores, factors) =
                unsafe { (all.part(own.start * rows..own.end * rows), every_factor.part(of_tile.clone())) };
            let pairs = shifts[of_tile].iter().zip(most);
            factors.iter_mut().zip(pairs).for_each(|(factor, (shift, most))| *factor = exp(shift - most));
            scale_rows(scores, factors);
        });
    }

    /// Writes the scores of classes from `first` on to `places`.
    ///
    /// # Safety
    /// Nothing else accesses these places.
    unsafe fn scores(
        &self,
        chunk: Chunk<'_>,
        input: &[f32],
        first: usize,
        (to, places): (&Disjoint<'_, f32>, Range<usize>),
    ) {
        let (features, rows) = (self.features, chunk.asked.len());
        let count = places.len() / rows;
        let weights = Matrix::rows(&chunk.parameters[first * features..(first + count) * features], features);
        let input = Matrix::rows(input, rows);
        // SAFETY: as the caller promises.
        let scores = unsafe {
            multiply_part((count, rows, features), (to, places.start), rows, false, weights, input);
            to.part(places)
        };
        if self.bias {
            let biases = &chunk.parameters[self.stored * features + first..];
            for (scores, bias) in scores.chunks_exact_mut(rows).zip(biases) {
                wide!(scores.iter_mut().for_each(|score| *score += bias));
            }
        }
        if let Some(cap) = self.cap {
            wide!(scores.iter_mut().for_each(|score| *score = cap * tanh(*score / cap)));
        }
    }

    /// Adds Σ exponential · weight over some classes to `d_rows`, `[features, rows]`, after multiplying what is there, if anything.
    fn add_to_input(
        &self,
        chunk: Chunk<'_>,
        classes: &Range<usize>,
        exponentials: &[f32],
        (d_rows, rescale): (&mut [f32], Option<&[f32]>),
    ) {
        let (features, rows) = (self.features, chunk.asked.len());
        let weights = &chunk.parameters[classes.start * features..self.stored * features];
        let of_tile = features.div_ceil(features.div_ceil(FEATURES)).next_multiple_of(COLUMNS);
        let target = Disjoint::new(d_rows);
        self.threads.each(features.div_ceil(of_tile), |_, tile| {
            let lines = tile_range(tile, of_tile, features);
            // SAFETY: these features belong to this tile.
            let d_rows = unsafe { target.part(lines.start * rows..lines.end * rows) };
            if let Some(rescale) = rescale {
                scale_rows(d_rows, rescale);
            }
            let shape = (lines.len(), rows, classes.len());
            let weights = Matrix::transposed(&weights[lines.start..], features);
            multiply(shape, d_rows, rows, rescale.is_some(), weights, Matrix::rows(exponentials, rows));
        });
    }

    /// Writes or adds the gradient of the input of some rows: of each the sum in `d_rows` times its factor, and the label's part.
    fn finish_input(
        &self,
        chunk: Chunk<'_>,
        of: &Softmax<'_>,
        (d_rows, made): (&[f32], &mut [f32]),
        (d_input, adds): (&mut [f32], bool),
    ) {
        let (features, rows) = (self.features, chunk.asked.len());
        let made = Disjoint::new(made);
        self.threads.each_chunk(d_input, FINISHED * features, |_, range, d_input| {
            // SAFETY: these rows belong to this chunk.
            let made = unsafe { made.part(range.clone()) };
            let first = range.start / features;
            let own = first..first + made.len() / features;
            for (feature, sums) in d_rows.chunks_exact(rows).take(features).enumerate() {
                for (at, (sum, factor)) in sums[own.clone()].iter().zip(&of.factors[own.clone()]).enumerate() {
                    made[at * features + feature] = sum * factor;
                }
            }
            for (row, made) in own.zip(made.chunks_exact_mut(features)) {
                if let Some(label) = chunk.asked[row].label {
                    let (weights, more) = (&chunk.parameters[label * features..][..features], of.of_labels[row]);
                    wide!(made.iter_mut().zip(weights).for_each(|(d, weight)| *d += more * weight));
                }
            }
            merge(d_input, made, adds);
        });
    }

    /// Writes or adds the gradients of the parameters from some rows. `scaled` is for their inputs, multiplied.
    fn of_parameters(
        &self,
        chunk: Chunk<'_>,
        classes: usize,
        of: &Softmax<'_>,
        scaled: &mut [f32],
        (d_parameters, adds): (&mut [f32], bool),
    ) {
        let (features, rows) = (self.features, chunk.asked.len());
        let (d_weights, d_biases) = d_parameters.split_at_mut(self.stored * features);
        let (d_weights, d_biases) = (Disjoint::new(d_weights), Disjoint::new(d_biases));
        let scaled = &mut scaled[..rows * features];
        let mut factors: Vec<f32> = Vec::new();
        let mut shift: &[f32] = &[];
        for (classes, own_shift) in tile_ranges(self.span, classes).zip(of.shifts.chunks_exact(rows)) {
            if shift != own_shift {
                shift = own_shift;
                let of_row = |((factor, shift), most): ((&f32, &f32), &f32)| factor * exp(shift - most);
                factors = of.factors.iter().zip(shift).zip(of.most).map(of_row).collect();
                self.threads.each_chunk(scaled, FINISHED * features, |_, range, scaled| {
                    let own = scaled.chunks_exact_mut(features).zip(chunk.input[range.clone()].chunks_exact(features));
                    for ((scaled, input), factor) in own.zip(&factors[range.start / features..]) {
                        wide!(scaled.iter_mut().zip(input).for_each(|(scaled, x)| *scaled = x * factor));
                    }
                });
            }
            let (scaled, factors) = (&*scaled, &factors[..]);
            self.threads.each(classes.len().div_ceil(TILE), |_, tile| {
                let own = tile_range(tile, TILE, classes.len());
                let own = classes.start + own.start..classes.start + own.end;
                let exponentials = &of.exponentials[own.start * rows..own.end * rows];
                let (shape, to) = ((own.len(), features, rows), (&d_weights, own.start * features));
                let factor = Matrix::rows(exponentials, rows);
                // SAFETY: these classes belong to this tile.
                let d_weights = unsafe {
                    multiply_part(shape, to, features, adds, factor, Matrix::rows(scaled, features));
                    d_weights.part(own.start * features..own.end * features)
                };
                // SAFETY: as above.
                let d_biases = unsafe { d_biases.part(if self.bias { own.clone() } else { 0..0 }) };
                for (d_bias, exponentials) in d_biases.iter_mut().zip(exponentials.chunks_exact(rows)) {
                    let sum = wide!(sum_pairs(exponentials, factors, |x, factor| x * factor));
                    *d_bias = if adds { *d_bias + sum } else { sum };
                }
                for (row, more) in of.of_labels.iter().enumerate() {
                    let Some(label) = chunk.asked[row].label.filter(|label| own.contains(label)) else { continue };
                    let input = &chunk.input[row * features..][..features];
                    let d_weight = &mut d_weights[(label - own.start) * features..][..features];
                    wide!(d_weight.iter_mut().zip(input).for_each(|(d, x)| *d += more * x));
                    d_biases.get_mut(label - own.start).into_iter().for_each(|d_bias| *d_bias += more);
                }
            });
        }
    }
}
