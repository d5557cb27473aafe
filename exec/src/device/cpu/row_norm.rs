//! Normalises rows: the features of each position, or of each head of it, by their root mean square, or by their mean and
//! deviation. A thread takes some of the rows.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{LANES, add_into, put, sum, sum_in_halves, sum_pairs, wide};
use crate::workspace::{Workspace, bytes};

/// Elements of the rows that a thread takes at once.
const TILE: usize = 32 * 1024;

/// Makes the head of such a layer; images are normalised elsewhere.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (heads, centred, offset, epsilon) = match of.layer {
        Layer::RmsNorm(layer) => (layer.heads, false, f32::from(u8::from(layer.unit_offset)), layer.epsilon),
        Layer::LayerNorm(layer) if of.plane() == 1 => (1, true, 0.0, layer.epsilon),
        _ => return None,
    };
    let (width, rows) = (of.channels() / heads as usize, of.input().places() as usize * heads as usize);
    let (threads, means, inverses) = (of.threads.clone(), Vec::new(), Vec::new());
    Some(Box::new(RowNorm { width, rows, centred, offset, epsilon, threads, means, inverses }))
}

/// `y = (offset + w) · n + β` with `n = (x − mean) · inverse`, the inverse of `√(mean((x − mean)²) + ε)`. Rows that are not
/// centred have the mean 0 and no β.
struct RowNorm {
    /// Features of a row.
    width: usize,
    /// Rows of a sample.
    rows: usize,
    centred: bool,
    offset: f32,
    epsilon: f32,
    threads: Threads,
    /// Of each row, if they are centred.
    means: Vec<f32>,
    inverses: Vec<f32>,
}

impl RowNorm {
    /// Rows of a tile; sums over rows are made by tile, then added in the order of the tiles.
    fn tile(&self) -> usize {
        (TILE / self.width).max(16)
    }

    /// Parameters: weights, then β if rows are centred.
    fn parameters(&self) -> usize {
        if self.centred { 2 * self.width } else { self.width }
    }

    fn sums(&self, rows: usize) -> usize {
        rows.div_ceil(self.tile()) * self.parameters()
    }
}

impl Head for RowNorm {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (width, tile, epsilon, offset) = (self.width, self.tile(), self.epsilon, self.offset);
        let rows = of.output.len() / width;
        self.inverses.resize(self.inverses.len().max(rows), 0.0);
        if self.centred {
            self.means.resize(self.means.len().max(rows), 0.0);
        }
        let (weights, beta) = of.parameters.split_at(width);
        let (means, inverses) = (Disjoint::new(&mut self.means), Disjoint::new(&mut self.inverses));
        let (input, centred) = (of.inputs[0], self.centred);
        self.threads.each_chunk(of.output, tile * width, |_, range, output| {
            let own = range.start / width..range.end / width;
            // SAFETY: a row's statistics belong to its tile.
            let (means, inverses) = unsafe {
                (if centred { means.part(own.clone()) } else { <&mut [f32]>::default() }, inverses.part(own))
            };
            let rows = output.chunks_exact_mut(width).zip(input[range].chunks_exact(width)).zip(inverses);
            wide!(for (row, ((y, x), kept)) in rows.enumerate() {
                let mean = if centred { sum(x, |x| x) / width as f32 } else { 0.0 };
                let square = sum(x, |x| (x - mean) * (x - mean)) / width as f32;
                let inverse = 1.0 / (square + epsilon).sqrt();
                *kept = inverse;
                if centred {
                    means[row] = mean;
                    let features = y.iter_mut().zip(x).zip(weights.iter().zip(beta));
                    features.for_each(|((y, x), (w, beta))| *y = *w * ((*x - mean) * inverse) + *beta);
                } else {
                    let features = y.iter_mut().zip(x).zip(weights);
                    features.for_each(|((y, x), w)| *y = (offset + *w) * (*x * inverse));
                }
            });
        });
    }

    /// With g = (offset + w) · dy: dx = inverse · (g − mean(g) − n · mean(g · n)), without mean(g) where rows are not centred;
    /// dw = Σ dy · n, dβ = Σ dy.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (width, tile, this) = (self.width, self.tile(), &*self);
        let (rows, parameters) = (of.d_output.len() / width, self.parameters());
        let [sums] = workspace.parts([if of.d_parameters.is_some() { self.sums(rows) } else { 0 }]);
        let d_input = only(of.d_inputs).map(|(d_input, adds)| (Disjoint::new(d_input), adds));
        let (of_tiles, input, weights) = (Disjoint::new(sums), of.inputs[0], &of.parameters[..width]);
        let wants = of.d_parameters.is_some();
        self.threads.each(rows.div_ceil(tile), |_, task| {
            let own = tile_range(task, tile, rows);
            // SAFETY: a tile has its own sums, and its own rows of the gradient.
            let (sums, mut d_input) = unsafe {
                let sums = if wants { task * parameters..(task + 1) * parameters } else { 0..0 };
                let part = d_input.as_ref().map(|(d, adds)| (d.part(own.start * width..own.end * width), *adds));
                (of_tiles.part(sums), part)
            };
            sums.fill(0.0);
            for (at, row) in own.enumerate() {
                let part = row * width..(row + 1) * width;
                let (x, d) = (&input[part.clone()], &of.d_output[part]);
                let mean = if this.centred { this.means[row] } else { 0.0 };
                let inverse = this.inverses[row];
                if let Some((d_input, adds)) = &mut d_input {
                    let target = &mut d_input[at * width..(at + 1) * width];
                    wide!(this.towards_input(target, *adds, (x, d, weights), (mean, inverse)));
                }
                if wants {
                    wide!({
                        let (d_weights, d_beta) = sums.split_at_mut(width);
                        let features = d_weights.iter_mut().zip(x).zip(d);
                        features.for_each(|((sum, x), d)| *sum += *d * ((*x - mean) * inverse));
                        d_beta.iter_mut().zip(d).for_each(|(sum, d)| *sum += *d);
                    });
                }
            }
        });
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (total, others) = sums.split_at_mut(parameters);
            others.chunks_exact(parameters).for_each(|sums| add_into(total, sums));
            merge(d_parameters, total, accumulate);
        }
    }

    fn workspace_bytes(&self, samples: usize) -> usize {
        bytes(&[self.sums(samples * self.rows)])
    }
}

impl RowNorm {
    /// The gradient of a row.
    #[inline(always)]
    fn towards_input(
        &self,
        target: &mut [f32],
        adds: bool,
        (x, d, weights): (&[f32], &[f32], &[f32]),
        (mean, inverse): (f32, f32),
    ) {
        let (width, offset) = (self.width as f32, self.offset);
        let normal = |x: f32| (x - mean) * inverse;
        // In partial sums, as `sum_pairs` makes them.
        let mut lanes = [0.0f32; LANES];
        let [(xs, x_rest), (ds, d_rest), (ws, w_rest)] = [x, d, weights].map(<[f32]>::as_chunks::<LANES>);
        for ((x, d), w) in xs.iter().zip(ds).zip(ws) {
            for lane in 0..LANES {
                lanes[lane] += (offset + w[lane]) * d[lane] * normal(x[lane]);
            }
        }
        let rest = lanes.iter_mut().zip(x_rest).zip(d_rest.iter().zip(w_rest));
        rest.for_each(|((lane, x), (d, w))| *lane += (offset + *w) * *d * normal(*x));
        let product = sum_in_halves(lanes) / width;
        let gradient = if self.centred { sum_pairs(d, weights, |d, w| w * d) / width } else { 0.0 };
        let features = x.iter().zip(d).zip(weights);
        put(target, adds, features.map(|((x, d), w)| inverse * ((offset + *w) * *d - gradient - normal(*x) * product)));
    }
}
