//! Turns rows of scores into probabilities, and gradients of probabilities into those of scores.

use crate::simd::{exp, maximum, replace_and_sum, sum_pairs, tanh, wide};

/// How products of queries and keys become scores.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    /// The factor of products.
    pub(super) scale: f32,
    /// The bound that scores approach: `cap · tanh(scale · product / cap)`.
    pub(super) cap: Option<f32>,
}

impl Scores {
    /// Makes products powers of their scores, relative to the largest; returns the sum of the powers, and the logarithm of the sum
    /// of the scores' exponentials.
    pub(super) fn powers(self, row: &mut [f32]) -> (f32, f32) {
        let Scores { scale, cap } = self;
        wide!({
            let most = if let Some(cap) = cap {
                let bend = scale / cap;
                row.iter_mut().for_each(|product| *product = cap * tanh(*product * bend));
                maximum(row)
            } else {
                maximum(row) * scale
            };
            let factor = if cap.is_some() { 1.0 } else { scale };
            let sum = replace_and_sum(row, |score| exp(score * factor - most));
            (sum, most + sum.ln())
        })
    }

    /// Makes products probabilities p of the logarithm that [`Scores::powers`] found, and `gradients`, those of the probabilities,
    /// the gradients of the products: scale · p · (d − Σ dy · y), times 1 − tanh² where scores are capped.
    pub(super) fn gradients(self, row: &mut [f32], gradients: &mut [f32], kept: f32, mean: f32) {
        let Scores { scale, cap } = self;
        let both = gradients.iter_mut().zip(row);
        wide!(if let Some(cap) = cap {
            let bend = scale / cap;
            both.for_each(|(d, p)| {
                let bent = tanh(*p * bend);
                *p = exp(cap * bent - kept);
                *d = *p * (*d - mean) * (1.0 - bent * bent) * scale;
            });
        } else {
            both.for_each(|(d, p)| {
                *p = exp(*p * scale - kept);
                *d = *p * (*d - mean) * scale;
            });
        });
    }
}

/// Σ dy · y of a query.
pub(super) fn mean(d_output: &[f32], output: &[f32]) -> f32 {
    wide!(sum_pairs(d_output, output, |d, y| d * y))
}
