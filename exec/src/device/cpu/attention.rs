//! Computes attention, block by block of queries (Dao et al. 2022): no more than a block of scores is in memory, and the
//! backward pass computes them again from the log-sum-exp of each query. Keys that no query of a block sees are skipped. A thread
//! takes a head, or backward a group of heads that share keys and values.

mod scores;

use std::ops::Range;

use lockstep_models::Layer;

use super::elementwise::merge;
use super::matmul::{Matrix, multiply, multiply_part};
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted};
use crate::workspace::{Workspace, bytes};
use scores::{Scores, mean};

/// Queries of a block.
const BLOCK: usize = 64;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Attention(layer) = of.layer else { return None };
    let (heads, positions) = (layer.heads as usize, of.input().places() as usize);
    let width = of.input().features() as usize / heads;
    Some(Box::new(Attention {
        heads,
        groups: layer.key_heads as usize,
        width,
        positions,
        causal: layer.causal,
        window: layer.window.map_or(positions, |window| window as usize),
        scores: Scores { scale: layer.scale.unwrap_or(1.0 / (width as f32).sqrt()), cap: layer.soft_cap },
        threads: of.threads.clone(),
        kept: Vec::new(),
    }))
}

/// `y = softmax(scale · q · kᵀ) · v` of each head; q is `[samples, positions, heads · width]`, k and v have `groups` heads.
struct Attention {
    heads: usize,
    groups: usize,
    /// Features of a head.
    width: usize,
    positions: usize,
    causal: bool,
    /// Positions that a query sees at most, its own the last of them.
    window: usize,
    scores: Scores,
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

/// Some queries in a row, and the positions that any of them sees.
struct Block {
    queries: Range<usize>,
    seen: Range<usize>,
}

impl Rows {
    fn at(self, row: usize) -> usize {
        self.start + row * self.stride
    }
}

impl Attention {
    fn queries(&self, sample: usize, head: usize) -> Rows {
        let stride = self.heads * self.width;
        Rows { start: sample * self.positions * stride + head * self.width, stride }
    }

    fn keys(&self, sample: usize, group: usize) -> Rows {
        let stride = self.groups * self.width;
        Rows { start: sample * self.positions * stride + group * self.width, stride }
    }

    /// Blocks of queries, each with the positions that any of them sees: from the first of the first to the last of the last.
    fn blocks<'a>(&'a self, documents: &'a [Range<usize>]) -> impl Iterator<Item = Block> + use<'a> {
        (0..self.positions.div_ceil(BLOCK)).map(|block| {
            let queries = block * BLOCK..((block + 1) * BLOCK).min(self.positions);
            let seen = self.seen(documents, queries.start).start..self.seen(documents, queries.end - 1).end;
            Block { queries, seen }
        })
    }

    /// Positions that a query sees.
    fn seen(&self, documents: &[Range<usize>], query: usize) -> Range<usize> {
        let Range { start, end } = documents.get(query).cloned().unwrap_or(0..self.positions);
        if self.causal { start.max((query + 1).saturating_sub(self.window))..query + 1 } else { start..end }
    }

    /// For each position the positions of its document, from the numbers of documents; none where there is one document.
    fn documents(&self, inputs: &[&[f32]]) -> Vec<Range<usize>> {
        let mut documents = Vec::new();
        for numbers in inputs.get(3).into_iter().flat_map(|numbers| numbers.chunks_exact(self.positions)) {
            let mut first = 0;
            for document in numbers.chunk_by(|a, b| a == b) {
                documents.extend(std::iter::repeat_n(first..first + document.len(), document.len()));
                first += document.len();
            }
        }
        documents
    }

    /// The part of a block's row of scores that a query sees; the others become zeros.
    fn visible<'a>(
        &self,
        documents: &[Range<usize>],
        block: &Block,
        query: usize,
        row: &'a mut [f32],
    ) -> &'a mut [f32] {
        let Range { start, end } = self.seen(documents, query);
        let (start, end) = (start - block.seen.start, end - block.seen.start);
        row[..start].fill(0.0);
        row[end..].fill(0.0);
        &mut row[start..end]
    }

    /// Those of a sample among all; none where there are none.
    fn of_sample<'a>(&self, documents: &'a [Range<usize>], sample: usize) -> &'a [Range<usize>] {
        documents.get(sample * self.positions..(sample + 1) * self.positions).unwrap_or(&[])
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
        let (width, documents, this) = (self.width, self.documents(of.inputs), &*self);
        self.threads.each(samples * self.heads, |worker, task| {
            let (sample, head) = (task / this.heads, task % this.heads);
            let documents = this.of_sample(&documents, sample);
            let (own, keys) = (this.queries(sample, head), this.keys(sample, head / (this.heads / this.groups)));
            // SAFETY: a worker's scratch is its own, and a head's sums belong to its task.
            let (scratch, sums) = unsafe {
                let first = task * this.positions;
                (scratch.part(worker * per_worker..(worker + 1) * per_worker), sums.part(first..first + this.positions))
            };
            for block in this.blocks(documents) {
                let (rows, seen, first) = (block.queries.len(), block.seen.len(), keys.at(block.seen.start));
                let scores = &mut scratch[..rows * seen];
                let (left, right) = (
                    Matrix::rows(&q[own.at(block.queries.start)..], own.stride),
                    Matrix::transposed(&k[first..], keys.stride),
                );
                multiply((rows, seen, width), scores, seen, false, left, right);
                let mut powers = [0.0; BLOCK];
                for ((query, row), power) in block.queries.clone().zip(scores.chunks_exact_mut(seen)).zip(&mut powers) {
                    (*power, sums[query]) = this.scores.powers(this.visible(documents, &block, query, row));
                }
                let values = Matrix::rows(&v[first..], keys.stride);
                // SAFETY: a head's features of its rows belong to its task.
                unsafe {
                    let to = (&output, own.at(block.queries.start));
                    multiply_part((rows, width, seen), to, own.stride, false, Matrix::rows(scores, seen), values);
                }
                for (query, power) in block.queries.clone().zip(powers) {
                    // SAFETY: as above. Sums of few values are divided rather than the many powers.
                    let row = unsafe { output.part(own.at(query)..own.at(query) + width) };
                    row.iter_mut().for_each(|y| *y /= power);
                }
            }
        });
        self.kept = kept;
    }

    /// With probabilities p and dp = dy · vᵀ: ds = scale · p · (dp − Σ dy · y), dq = ds · k, dk = dsᵀ · q, dv = pᵀ · dy.
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
        let (each, documents, this) = (self.heads / self.groups, self.documents(of.inputs), &*self);
        self.threads.each(samples * self.groups, |worker, task| {
            let (sample, group) = (task / this.groups, task % this.groups);
            let documents = this.of_sample(&documents, sample);
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
                for block in this.blocks(documents) {
                    let all = block.queries.len() * block.seen.len();
                    let scores = (&mut probabilities[..all], &mut gradients[..all]);
                    this.scores(&values, (sample, head, documents), (own, keys), &block, scores);
                    let scores = (&probabilities[..all], &gradients[..all]);
                    this.add_gradients(&values, (own, keys), &block, scores, (d_queries, d_keys, d_values));
                    if let Some((target, adds)) = &targets[0] {
                        put_rows(target, own, block.queries, &d_queries[..], this.width, *adds);
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
    /// Probabilities of a block, and the gradients of its products.
    fn scores(
        &self,
        of: &Values<'_>,
        (sample, head, documents): (usize, usize, &[Range<usize>]),
        (own, keys): (Rows, Rows),
        block: &Block,
        (probabilities, gradients): (&mut [f32], &mut [f32]),
    ) {
        let (rows, seen, width) = (block.queries.len(), block.seen.len(), self.width);
        let (from, first) = (own.at(block.queries.start), keys.at(block.seen.start));
        let [k, v] = [of.keys, of.values].map(|values| Matrix::transposed(&values[first..], keys.stride));
        multiply((rows, seen, width), probabilities, seen, false, Matrix::rows(&of.queries[from..], own.stride), k);
        multiply((rows, seen, width), gradients, seen, false, Matrix::rows(&of.d_output[from..], own.stride), v);
        let kept = &self.kept[(sample * self.heads + head) * self.positions..][..self.positions];
        let both = probabilities.chunks_exact_mut(seen).zip(gradients.chunks_exact_mut(seen));
        for (query, (row, gradient)) in block.queries.clone().zip(both) {
            let at = own.at(query)..own.at(query) + width;
            let mean = mean(&of.d_output[at.clone()], &of.output[at]);
            let [row, gradient] = [row, gradient].map(|row| self.visible(documents, block, query, row));
            self.scores.gradients(row, gradient, kept[query], mean);
        }
    }

    /// The gradients of a block's queries, and what the block adds to those of keys and values.
    fn add_gradients(
        &self,
        of: &Values<'_>,
        (own, keys): (Rows, Rows),
        block: &Block,
        (probabilities, gradients): (&[f32], &[f32]),
        (d_queries, d_keys, d_values): (&mut [f32], &mut [f32], &mut [f32]),
    ) {
        let (rows, seen, width) = (block.queries.len(), block.seen.len(), self.width);
        let (from, first) = (own.at(block.queries.start), block.seen.start * width);
        let k = Matrix::rows(&of.keys[keys.at(block.seen.start)..], keys.stride);
        multiply((rows, width, seen), d_queries, width, false, Matrix::rows(gradients, seen), k);
        let q = Matrix::rows(&of.queries[from..], own.stride);
        multiply((seen, width, rows), &mut d_keys[first..], width, true, Matrix::transposed(gradients, seen), q);
        let d = Matrix::rows(&of.d_output[from..], own.stride);
        multiply((seen, width, rows), &mut d_values[first..], width, true, Matrix::transposed(probabilities, seen), d);
    }
}

/// Writes rows of a head, or adds them.
fn put_rows(target: &Disjoint<'_, f32>, to: Rows, rows: Range<usize>, values: &[f32], width: usize, adds: bool) {
    for (row, values) in rows.zip(values.chunks_exact(width)) {
        // SAFETY: a head's features of its rows belong to its task.
        merge(unsafe { target.part(to.at(row)..to.at(row) + width) }, values, adds);
    }
}
