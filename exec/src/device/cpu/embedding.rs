//! Looks vectors up in a table, one for each token; backward, the rows of a token add to its vector's gradient. A thread takes
//! some of the tokens' rows forward, and some of the vectors backward.

use std::ops::Range;

use lockstep_models::Layer;
use lockstep_topology::Dtype;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Draw, Forward, Gradients, Head, Wanted};
use crate::simd::add_into;
use crate::workspace::{Workspace, bytes};

/// Rows that a thread copies at once.
const ROWS: usize = 64;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Embedding(layer) = of.layer else { return None };
    let (entries, features) = (layer.entries as usize, layer.out_features as usize);
    Some(Box::new(Embedding { entries, features, first: 0, threads: of.threads.clone(), tokens: Vec::new() }))
}

/// `y = w[token]`; zeros for tokens whose vectors other ranks have.
struct Embedding {
    entries: usize,
    features: usize,
    /// The token of the first vector.
    first: u64,
    threads: Threads,
    /// Of the samples at hand.
    tokens: Vec<u32>,
}

impl Embedding {
    /// The elements of a token's vector; `None` where another rank has it.
    fn vector(&self, token: u32) -> Option<Range<usize>> {
        let own = u64::from(token).checked_sub(self.first)?;
        (own < self.entries as u64).then(|| own as usize * self.features..(own as usize + 1) * self.features)
    }
}

/// The tokens in the bytes of samples.
pub(super) fn tokens(samples: &[u8], dtype: Dtype) -> impl Iterator<Item = u32> {
    let token = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
    samples.chunks_exact(dtype.bytes(1) as usize).map(token)
}

impl Head for Embedding {
    fn take_integers(&mut self, samples: &[u8], dtype: Dtype) {
        self.tokens.clear();
        self.tokens.extend(tokens(samples, dtype));
    }

    fn draw(&mut self, draw: Draw, _: &[u64]) {
        self.first = draw.entry;
    }

    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (features, this) = (self.features, &*self);
        this.threads.each_chunk(of.output, ROWS * features, |_, range, output| {
            let tokens = &this.tokens[range.start / features..];
            for (row, token) in output.chunks_exact_mut(features).zip(tokens) {
                match this.vector(*token) {
                    Some(vector) => row.copy_from_slice(&of.parameters[vector]),
                    None => row.fill(0.0),
                }
            }
        });
    }

    /// Sums the rows of a token in their order, so that a gradient is added to another one once.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some((d_parameters, accumulate)) = of.d_parameters else { return };
        let features = self.features;
        let tokens = &self.tokens[..of.d_output.len() / features];
        let is_own = |row: &u32| self.vector(tokens[*row as usize]).is_some();
        let mut order: Vec<u32> = (0..tokens.len() as u32).filter(is_own).collect();
        order.sort_by_key(|row| tokens[*row as usize]);
        let of_tokens: Vec<&[u32]> = order.chunk_by(|a, b| tokens[*a as usize] == tokens[*b as usize]).collect();
        if !accumulate {
            d_parameters.fill(0.0);
        }
        let [scratch] = workspace.parts([self.threads.count() * features]);
        let (scratch, d_parameters) = (Disjoint::new(scratch), Disjoint::new(d_parameters));
        self.threads.each(of_tokens.len(), |worker, task| {
            // SAFETY: a worker's scratch is its own.
            let sum = unsafe { scratch.part(worker * features..(worker + 1) * features) };
            let rows = of_tokens[task];
            let Some(vector) = self.vector(tokens[rows[0] as usize]) else { return };
            let row = |row: u32| &of.d_output[row as usize * features..(row as usize + 1) * features];
            sum.copy_from_slice(row(rows[0]));
            rows[1..].iter().for_each(|other| add_into(sum, row(*other)));
            // SAFETY: a token's vector belongs to its task.
            merge(unsafe { d_parameters.part(vector) }, sum, accumulate);
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * self.features])
    }
}
