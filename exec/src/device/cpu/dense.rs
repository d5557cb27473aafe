//! Computes the fully connected layer, of samples or of positions: three matrix products, each cut into fixed tiles of its result.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::matmul::{Matrix, multiply, multiply_part};
use super::tail::{before_relu, relu};
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head, Wanted, only, size};
use crate::simd::{add_into, put, wide};
use crate::workspace::{Workspace, bytes};

/// Most output or input features of one tile, and tiles of a layer, which keep threads busy.
const TILE: usize = 256;
const TILES: usize = 4;
/// Tiles are multiples of this: what four of the widest registers hold, since products of fewer features are slower.
const LEAST_TILE: usize = 64;
/// Rows from which on the weights are packed and rows of the output are written as they are; fewer are packed themselves, and the
/// products are turned. Both give the same bits, except where the library makes at most 16 by 16 sums at once.
const MANY_ROWS: usize = 128;
/// Elements of one tile of the weight gradient, where rows are long.
const WEIGHT_TILE: usize = 1024 * 1024;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (inputs, outputs, bias, rows) = match of.layer {
        Layer::Dense(layer) => (size(of.input()), layer.out_features, layer.bias, 1),
        Layer::Linear(layer) => (of.channels(), layer.out_features, layer.bias, of.input().places() as usize),
        _ => return None,
    };
    let (outputs, relu, threads) = (outputs as usize, of.tail.relu, of.threads.clone());
    Some(Box::new(Dense { inputs, outputs, bias, rows, relu, threads }))
}

/// The features of one tile among these.
fn tile_of(features: usize) -> usize {
    features.div_ceil(TILES).next_multiple_of(LEAST_TILE).min(TILE)
}

/// `y = x · Wᵀ + b`, rectified or not; x is `[samples · rows, in]`, W `[out, in]`.
struct Dense {
    inputs: usize,
    outputs: usize,
    bias: bool,
    /// Rows of a sample: its positions, or one.
    rows: usize,
    relu: bool,
    threads: Threads,
}

impl Dense {
    /// Rows of the weight gradient in one tile.
    fn weight_rows(&self) -> usize {
        (WEIGHT_TILE / self.inputs).clamp(32, tile_of(self.outputs))
    }

    /// Elements of a backward pass's workspace: per thread a tile of a product; the gradient before the ReLU; the
    /// gradient of the bias.
    pub(crate) fn workspace(&self, samples: usize) -> [usize; 3] {
        let masked = if self.relu { samples * self.outputs } else { 0 };
        [self.threads.count() * self.per_worker(samples), masked, self.outputs]
    }

    /// Elements of a thread's tile of a product.
    fn per_worker(&self, samples: usize) -> usize {
        (samples * TILE).max(self.weight_rows() * self.inputs)
    }
}

impl Head for Dense {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        let Forward { parameters, output, .. } = of;
        let input = of.inputs[0];
        let (inputs, outputs) = (self.inputs, self.outputs);
        let samples = output.len() / outputs;
        let (weights, bias) = parameters.split_at(outputs * inputs);
        let per_worker = self.per_worker(samples);
        let [scratch] = workspace.parts([self.threads.count() * per_worker]);
        let (scratch, output) = (Disjoint::new(scratch), Disjoint::new(output));
        let rectified = self.relu;
        let size = tile_of(outputs);
        let finish = |row: &mut [f32], bias: &[f32]| {
            if !bias.is_empty() {
                add_into(row, bias);
            }
            if rectified {
                row.iter_mut().for_each(|y| *y = relu(*y));
            }
        };
        self.threads.each(outputs.div_ceil(size), |worker, tile| {
            let range = tile_range(tile, size, outputs);
            let width = range.len();
            let bias = bias.get(range.clone()).unwrap_or_default();
            // SAFETY: these columns of the rows belong to this tile.
            let row =
                |sample: usize| unsafe { output.part(sample * outputs + range.start..sample * outputs + range.end) };
            if samples >= MANY_ROWS {
                let shape = (samples, width, inputs);
                let weights = Matrix::transposed(&weights[range.start * inputs..range.end * inputs], inputs);
                // SAFETY: as above.
                unsafe {
                    let place = (&output, range.start);
                    multiply_part(shape, place, outputs, false, Matrix::rows(input, inputs), weights);
                }
                (0..samples).for_each(|sample| finish(row(sample), bias));
                return;
            }
            // SAFETY: a worker's scratch is its own.
            let products = unsafe { scratch.part(worker * per_worker..worker * per_worker + samples * width) };
            // Features by samples: so the few samples are packed and the many weights are read in place.
            let weights = Matrix::rows(&weights[range.start * inputs..range.end * inputs], inputs);
            multiply((width, samples, inputs), products, samples, false, weights, Matrix::transposed(input, inputs));
            for sample in 0..samples {
                let row = row(sample);
                row.iter_mut().enumerate().for_each(|(feature, y)| *y = products[feature * samples + sample]);
                finish(row, bias);
            }
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let (input, samples) = (of.inputs[0], of.d_output.len() / outputs);
        let (tile_rows, per_worker) = (self.weight_rows(), self.per_worker(samples));
        let [scratch, masked, summed] = workspace.parts(self.workspace(samples));
        if self.relu {
            wide!(put(masked, false, before_relu(of.d_output, of.output)));
        }
        let d_products = if self.relu { &*masked } else { of.d_output };
        let scratch = Disjoint::new(scratch);
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (d_weights, d_bias) = d_parameters.split_at_mut(outputs * inputs);
            if self.bias {
                summed.fill(0.0);
                d_products.chunks_exact(outputs).for_each(|row| add_into(summed, row));
                merge(d_bias, summed, accumulate);
            }
            let d_weights = Disjoint::new(d_weights);
            self.threads.each(outputs.div_ceil(tile_rows), |worker, tile| {
                let rows = tile_range(tile, tile_rows, outputs);
                let (shape, len) = ((rows.len(), inputs, samples), rows.len() * inputs);
                // SAFETY: these rows belong to this tile, a worker's scratch is its own.
                let (target, scratch) = unsafe {
                    let scratch = scratch.part(worker * per_worker..worker * per_worker + len);
                    (d_weights.part(rows.start * inputs..rows.end * inputs), scratch)
                };
                let left = Matrix::transposed(&d_products[rows.start..], outputs);
                if accumulate {
                    multiply(shape, scratch, inputs, false, left, Matrix::rows(input, inputs));
                    merge(target, scratch, true);
                } else {
                    multiply(shape, target, inputs, false, left, Matrix::rows(input, inputs));
                }
            });
        }
        if let Some((d_input, accumulate)) = only(of.d_inputs) {
            let d_input = Disjoint::new(d_input);
            let size = tile_of(inputs);
            self.threads.each(inputs.div_ceil(size), |worker, tile| {
                let range = tile_range(tile, size, inputs);
                let width = range.len();
                // SAFETY: a worker's scratch is its own.
                let products = unsafe { scratch.part(worker * per_worker..worker * per_worker + samples * width) };
                let weights = Matrix::rows(&of.parameters[range.start..outputs * inputs], inputs);
                // A single column is summed in another order.
                if !accumulate && width > 1 {
                    let shape = (samples, width, outputs);
                    let place = (&d_input, range.start);
                    // SAFETY: these columns of the rows belong to this tile.
                    unsafe { multiply_part(shape, place, inputs, false, Matrix::rows(d_products, outputs), weights) };
                    return;
                }
                multiply((samples, width, outputs), products, width, false, Matrix::rows(d_products, outputs), weights);
                for (sample, row) in products.chunks_exact(width).enumerate() {
                    // SAFETY: these columns of the row belong to this tile.
                    let target = unsafe { d_input.part(sample * inputs + range.start..sample * inputs + range.end) };
                    merge(target, row, accumulate);
                }
            });
        }
    }

    fn workspace_bytes(&self, samples: usize) -> usize {
        bytes(&self.workspace(samples * self.rows))
    }
}
