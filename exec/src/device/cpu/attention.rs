//! Computes attention, block by block of queries (Dao et al. 2022): no more than a block of scores is in memory, and the
//! backward pass computes them again from the log-sum-exp of each query. A thread takes a head, or backward a group of heads
//! that share keys and values.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::matmul::{Matrix, multiply, multiply_part};
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted};
use crate::simd::wide;
use crate::workspace::{Workspace, bytes};

/// Queries of a block.
const BLOCK: usize = 64;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Attention(layer) = of.layer else { return None };
    let heads = layer.heads as usize;
    Some(Box::new(Attention {
        heads,
        groups: layer.key_heads as usize,
        width: of.input().features() as usize / heads,
        positions: of.input().places() as usize,
        causal: layer.causal,
        threads: of.threads.clone(),
        kept: Vec::new(),
    }))
}

/// `y = softmax(q · kᵀ / √width) · v` of each head; q is `[samples, positions, heads · width]`, k and v have `groups` heads.
struct Attention {
    heads: usize,
    groups: usize,
    /// Features of a head.
    width: usize,
    positions: usize,
    causal: bool,
    threads: Threads,
    /// Per sample, head and position: the logarithm of the sum of the exponentials of its scaled scores.
    kept: Vec<f32>,
}

/// The places of one head's rows among those of a sample.
#[derive(Clone, Copy)]
struct Rows {
    /// The first element of the first row.
    start: usize,
    /// Elements from a row to the next.
    stride: usize,
}

impl Rows {
    fn at(self, row: usize) -> usize {
        self.start + row * self.stride
    }
}

impl Attention {
    fn scale(&self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }

    fn queries(&self, sample: usize, head: usize) -> Rows {
        let stride = self.heads * self.width;
        Rows { start: sample * self.positions * stride + head * self.width, stride }
    }

    fn keys(&self, sample: usize, group: usize) -> Rows {
        let stride = self.groups * self.width;
        Rows { start: sample * self.positions * stride + group * self.width, stride }
    }

    /// The queries of a block, and how many positions they see together.
    fn block(&self, block: usize) -> (std::ops::Range<usize>, usize) {
        let queries = block * BLOCK..((block + 1) * BLOCK).min(self.positions);
        let seen = if self.causal { queries.end } else { self.positions };
        (queries, seen)
    }

    fn blocks(&self) -> usize {
        self.positions.div_ceil(BLOCK)
    }

    /// Positions that a query sees.
    fn seen(&self, query: usize) -> usize {
        if self.causal { query + 1 } else { self.positions }
    }

    fn samples(&self, elements: usize) -> usize {
        elements / (self.positions * self.heads * self.width)
    }

    /// Elements of a thread's scratch in the backward pass: probabilities and their gradients of a block, gradients of the
    /// queries of a block, of keys and of values of a group.
    fn backward_parts(&self) -> [usize; 5] {
        let (scores, block) = (BLOCK * self.positions, BLOCK * self.width);
        let keys = self.positions * self.width;
        [scores, scores, block, keys, keys]
    }
}

impl Head for Attention {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        let samples = self.samples(of.output.len());
        let per_worker = BLOCK * self.positions;
        let [scratch] = workspace.parts([self.threads.count() * per_worker]);
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(kept.len().max(samples * self.heads * self.positions), 0.0);
        let (scratch, output, sums) = (Disjoint::new(scratch), Disjoint::new(of.output), Disjoint::new(&mut kept));
        let [q, k, v] = [0, 1, 2].map(|input| of.inputs[input]);
        let (width, scale, this) = (self.width, self.scale(), &*self);
        self.threads.each(samples * self.heads, |worker, task| {
            let (sample, head) = (task / this.heads, task % this.heads);
            let (own, keys) = (this.queries(sample, head), this.keys(sample, head / (this.heads / this.groups)));
            // SAFETY: a worker's scratch is its own, and a head's sums belong to its task.
            let (scratch, sums) = unsafe {
                let first = task * this.positions;
                (scratch.part(worker * per_worker..(worker + 1) * per_worker), sums.part(first..first + this.positions))
            };
            for (queries, seen) in (0..this.blocks()).map(|block| this.block(block)) {
                let rows = queries.len();
                let scores = &mut scratch[..rows * seen];
                let (left, right) = (
                    Matrix::rows(&q[own.at(queries.start)..], own.stride),
                    Matrix::transposed(&k[keys.at(0)..], keys.stride),
                );
                multiply((rows, seen, width), scores, seen, false, left, right);
                for (query, row) in queries.clone().zip(scores.chunks_exact_mut(seen)) {
                    let (row, hidden) = row.split_at_mut(this.seen(query));
                    hidden.fill(0.0);
                    sums[query] = normalise(row, scale);
                }
                let values = Matrix::rows(&v[keys.at(0)..], keys.stride);
                // SAFETY: a head's features of its rows belong to its task.
                unsafe {
                    let to = (&output, own.at(queries.start));
                    multiply_part((rows, width, seen), to, own.stride, false, Matrix::rows(scores, seen), values);
                }
            }
        });
        self.kept = kept;
    }

    /// With probabilities p and dp = dy · vᵀ: ds = p · (dp − Σ dy · y), dq = ds · k / √width, dk = dsᵀ · q / √width,
    /// dv = pᵀ · dy.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (samples, parts) = (self.samples(of.d_output.len()), self.backward_parts());
        let per_worker = parts.iter().sum::<usize>();
        let [scratch] = workspace.parts([self.threads.count() * per_worker]);
        let scratch = Disjoint::new(scratch);
        let [queries, keys, values] = [0, 1, 2].map(|input| of.inputs[input]);
        let values = Values { queries, keys, values, output: of.output, d_output: of.d_output };
        let mut targets = of.d_inputs.iter_mut();
        let mut next = || targets.next().and_then(Option::as_mut).map(|(target, adds)| (Disjoint::new(target), *adds));
        let targets = [next(), next(), next()];
        let each = self.heads / self.groups;
        let this = &*self;
        self.threads.each(samples * self.groups, |worker, task| {
            let (sample, group) = (task / this.groups, task % this.groups);
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { scratch.part(worker * per_worker..(worker + 1) * per_worker) };
            let (probabilities, rest) = scratch.split_at_mut(parts[0]);
            let (gradients, rest) = rest.split_at_mut(parts[1]);
            let (d_queries, rest) = rest.split_at_mut(parts[2]);
            let (d_keys, d_values) = rest.split_at_mut(parts[3]);
            d_keys.fill(0.0);
            d_values.fill(0.0);
            let keys = this.keys(sample, group);
            for head in group * each..(group + 1) * each {
                let own = this.queries(sample, head);
                for (queries, seen) in (0..this.blocks()).map(|block| this.block(block)) {
                    let scores = (&mut probabilities[..queries.len() * seen], &mut gradients[..queries.len() * seen]);
                    this.scores(&values, (sample, head), (own, keys), (queries.clone(), seen), scores);
                    let scores = (&probabilities[..queries.len() * seen], &gradients[..queries.len() * seen]);
                    this.add_gradients(
                        &values,
                        (own, keys),
                        (queries.clone(), seen),
                        scores,
                        (d_queries, d_keys, d_values),
                    );
                    if let Some((target, adds)) = &targets[0] {
                        put_rows(target, own, queries, &d_queries[..], this.width, *adds);
                    }
                }
            }
            for (target, values) in targets[1..].iter().zip([&*d_keys, &*d_values]) {
                if let Some((target, adds)) = target {
                    put_rows(target, keys, 0..this.positions, values, this.width, *adds);
                }
            }
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        let forward = BLOCK * self.positions;
        bytes(&[self.threads.count() * self.backward_parts().iter().sum::<usize>().max(forward)])
    }
}

/// What the backward pass reads.
struct Values<'a> {
    queries: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    output: &'a [f32],
    d_output: &'a [f32],
}

impl Attention {
    /// Probabilities of a block and the gradients of its scaled scores, times the scale.
    fn scores(
        &self,
        of: &Values<'_>,
        (sample, head): (usize, usize),
        (own, keys): (Rows, Rows),
        (queries, seen): (std::ops::Range<usize>, usize),
        (probabilities, gradients): (&mut [f32], &mut [f32]),
    ) {
        let (rows, width, scale) = (queries.len(), self.width, self.scale());
        let from = own.at(queries.start);
        let [k, v] = [of.keys, of.values].map(|values| Matrix::transposed(&values[keys.at(0)..], keys.stride));
        multiply((rows, seen, width), probabilities, seen, false, Matrix::rows(&of.queries[from..], own.stride), k);
        multiply((rows, seen, width), gradients, seen, false, Matrix::rows(&of.d_output[from..], own.stride), v);
        let kept = &self.kept[(sample * self.heads + head) * self.positions..][..self.positions];
        let both = probabilities.chunks_exact_mut(seen).zip(gradients.chunks_exact_mut(seen));
        for (query, (row, gradient)) in queries.zip(both) {
            let at = own.at(query)..own.at(query) + width;
            let mean: f32 = of.d_output[at.clone()].iter().zip(&of.output[at]).map(|(d, y)| d * y).sum();
            let (row, hidden) = row.split_at_mut(self.seen(query));
            let (gradient, unseen) = gradient.split_at_mut(self.seen(query));
            hidden.fill(0.0);
            unseen.fill(0.0);
            row.iter_mut().for_each(|score| *score = (*score * scale - kept[query]).exp());
            wide!(gradient.iter_mut().zip(row).for_each(|(d, p)| *d = *p * (*d - mean) * scale));
        }
    }

    /// The gradients of a block's queries, and what the block adds to those of keys and values.
    fn add_gradients(
        &self,
        of: &Values<'_>,
        (own, keys): (Rows, Rows),
        (queries, seen): (std::ops::Range<usize>, usize),
        (probabilities, gradients): (&[f32], &[f32]),
        (d_queries, d_keys, d_values): (&mut [f32], &mut [f32], &mut [f32]),
    ) {
        let (rows, width, from) = (queries.len(), self.width, own.at(queries.start));
        let k = Matrix::rows(&of.keys[keys.at(0)..], keys.stride);
        multiply((rows, width, seen), d_queries, width, false, Matrix::rows(gradients, seen), k);
        let q = Matrix::rows(&of.queries[from..], own.stride);
        multiply((seen, width, rows), d_keys, width, true, Matrix::transposed(gradients, seen), q);
        let d = Matrix::rows(&of.d_output[from..], own.stride);
        multiply((seen, width, rows), d_values, width, true, Matrix::transposed(probabilities, seen), d);
    }
}

/// Makes scores probabilities of their scaled values; returns the logarithm of the sum of exponentials.
fn normalise(row: &mut [f32], scale: f32) -> f32 {
    let most = row.iter().fold(f32::NEG_INFINITY, |most, score| most.max(*score));
    let mut sum = 0.0;
    for score in row.iter_mut() {
        *score = ((*score - most) * scale).exp();
        sum += *score;
    }
    wide!(row.iter_mut().for_each(|score| *score /= sum));
    most * scale + sum.ln()
}

/// Writes rows of a head, or adds them.
fn put_rows(
    target: &Disjoint<'_, f32>,
    to: Rows,
    rows: std::ops::Range<usize>,
    values: &[f32],
    width: usize,
    adds: bool,
) {
    for (row, values) in rows.zip(values.chunks_exact(width)) {
        // SAFETY: a head's features of its rows belong to its task.
        merge(unsafe { target.part(to.at(row)..to.at(row) + width) }, values, adds);
    }
}
