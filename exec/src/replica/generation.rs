//! Continues a sequence of tokens with a trained decoder: the scores of the token that follows, and draws from their softmax.
//!
//! Positions after the last token are filled with zeros, which causal layers do not see. Of more tokens than positions the last
//! ones count.

use lockstep_data::random::{Purpose, stream};
use lockstep_models::{Buffer, LayerId};
use lockstep_topology::InputError;
use rand::RngExt;

use super::Replica;
use crate::device::Mode;
use crate::error::ExecError;

impl Replica {
    /// Draws `count` tokens, each from the softmax of the scores after `prompt` and those before it, with `seed`.
    ///
    /// # Errors
    /// A model of other samples than tokens or whose last layer is no loss of positions, an empty prompt or one of tokens that the model
    /// does not have, device errors.
    pub fn generate(&mut self, prompt: &[u32], count: usize, seed: u64) -> Result<Vec<u32>, ExecError> {
        let mut tokens = prompt.to_vec();
        for number in 0..count {
            let mut scores = self.scores_after(&tokens)?;
            // Scores beyond the tokens are padding.
            scores.truncate(self.model.tokens().map_or(0, |tokens| tokens as usize));
            tokens.push(drawn(&scores, stream(seed, Purpose::Generation, number as u64).random::<f64>()));
        }
        Ok(tokens.split_off(prompt.len()))
    }

    /// The scores of each token as the one that follows on `tokens`.
    ///
    /// # Errors
    /// As [`Replica::generate`].
    pub fn scores_after(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ExecError> {
        let (positions, most) = match (self.model.positions(), self.model.tokens()) {
            (Some(positions), Some(tokens)) => (positions as usize, tokens),
            _ => return Err(refused(self.model.name(), "reads no tokens: generate with a decoder").into()),
        };
        if let Some(token) = tokens.iter().find(|token| **token >= most) {
            let message = format!("is no token of {}, which has {most}: give smaller ones", self.model.name());
            return Err(refused(&token.to_string(), &message).into());
        }
        let own = &tokens[tokens.len().saturating_sub(positions)..];
        let Some(last) = own.len().checked_sub(1) else {
            return Err(refused("", "is an empty prompt: give at least one token").into());
        };
        let dtype = self.model.sample().dtype;
        let bytes = dtype.bytes(1) as usize;
        let input = self.device.input()?;
        input.fill(0);
        for (place, token) in input.chunks_exact_mut(bytes).zip(own) {
            place.copy_from_slice(&token.to_le_bytes()[..bytes]);
        }
        self.device.load()?;
        self.labels.clear();
        self.labels.resize(self.samples * positions, 0);
        self.device.turn_to(&self.labels, &(0..self.samples as u64).collect::<Vec<_>>())?;
        let end = self.chains.len() - 1;
        for chain in 0..end {
            self.forward(chain, Mode::Evaluate)?;
        }
        let input = self.chains[end].inputs[0];
        let features = self.model.node(input).output.features() as usize;
        let all = self.device.tensor(&self.output(input))?;
        let row = all[last * features..(last + 1) * features].to_vec();
        let scores = self.scores_of(self.chains[end].layers[0], row);
        self.device.release();
        scores
    }

    /// The scores that a loss makes of the features at a position.
    fn scores_of(&mut self, loss: LayerId, features: Vec<f32>) -> Result<Vec<f32>, ExecError> {
        let Some(output) = self.model.node(loss).layer.output_layer() else { return Ok(features) };
        let soft_cap = output.soft_cap;
        let own = self.model.parameters_read_by(loss);
        let ranges: Vec<_> = own.iter().map(|of| of.range.start as usize..of.range.end as usize).collect();
        let weights = self.device.read_part(Buffer::Parameters, ranges[0].clone())?;
        let biases = match ranges.get(1) {
            Some(range) => self.device.read_part(Buffer::Parameters, range.clone())?,
            None => vec![0.0; weights.len() / features.len()],
        };
        let score = |(row, bias): (&[f32], &f32)| {
            let score = row.iter().zip(&features).map(|(w, x)| w * x).sum::<f32>() + bias;
            soft_cap.map_or(score, |cap| cap * (score / cap).tanh())
        };
        Ok(weights.chunks_exact(features.len()).zip(&biases).map(score).collect())
    }
}

/// The first class at which the sum of probabilities exceeds `at`, which is below 1.
fn drawn(scores: &[f32], at: f64) -> u32 {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = scores.iter().map(|score| f64::from(score - most).exp()).collect();
    let mut left = at * powers.iter().sum::<f64>();
    let reaches = |power: &f64| {
        left -= power;
        left < 0.0
    };
    powers.iter().position(reaches).unwrap_or(scores.len() - 1) as u32
}

fn refused(value: &str, message: &str) -> InputError {
    InputError::flag("generate", value, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three classes with probabilities ¼, ½ and ¼, ends included.
    #[test]
    fn draws_follow_the_probabilities() {
        let scores = [0.0, std::f32::consts::LN_2, 0.0];
        let found = [0.0, 0.24, 0.26, 0.74, 0.76, 0.999_999].map(|at| drawn(&scores, at));
        assert_eq!(found, [0, 0, 1, 1, 2, 2]);
        assert_eq!(drawn(&[-1e30, 5.0], 0.0), 1);
    }
}
