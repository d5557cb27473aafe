//! Continues a sequence of tokens with a trained decoder: the scores of the token that follows, and draws from their softmax.
//!
//! Positions after the last token are filled with zeros, which causal layers do not see. Of more tokens than positions the last
//! ones count.

use lockstep_data::random::{Purpose, stream};
use lockstep_models::Buffer;
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
        let output = self.output_layer()?;
        for number in 0..count {
            let mut scores = self.scores_by(&output, &tokens)?;
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
        let output = self.output_layer()?;
        self.scores_by(&output, tokens)
    }

    fn scores_by(&mut self, output: &OutputLayer, tokens: &[u32]) -> Result<Vec<f32>, ExecError> {
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
        let scores = output.scores(&all[last * features..(last + 1) * features]);
        self.device.release();
        Ok(scores)
    }

    /// What the last layer makes scores with.
    fn output_layer(&mut self) -> Result<OutputLayer, ExecError> {
        let loss = self.chains[self.chains.len() - 1].layers[0];
        let Some(layer) = self.model.node(loss).layer.output_layer() else { return Ok(OutputLayer::default()) };
        let own = self.model.parameters_read_by(loss);
        let ranges: Vec<_> = own.iter().map(|of| of.range.start as usize..of.range.end as usize).collect();
        let (soft_cap, mut read) = (layer.soft_cap, |range| self.device.read_part(Buffer::Parameters, range));
        let values = ranges.into_iter().map(&mut read).collect::<Result<Vec<_>, _>>()?;
        let mut values = values.into_iter();
        let [weights, biases] = [(); 2].map(|()| values.next().unwrap_or_default());
        Ok(OutputLayer { weights, biases, soft_cap })
    }
}

/// The output layer of a loss that has one; without weights of a loss whose input are scores.
#[derive(Debug, Default)]
struct OutputLayer {
    /// `[classes, features]`.
    weights: Vec<f32>,
    /// By class, where classes have some.
    biases: Vec<f32>,
    soft_cap: Option<f32>,
}

impl OutputLayer {
    /// The scores that it makes of the features at a position.
    fn scores(&self, features: &[f32]) -> Vec<f32> {
        if self.weights.is_empty() {
            return features.to_vec();
        }
        let score = |(class, row): (usize, &[f32])| {
            let product = row.iter().zip(features).map(|(w, x)| w * x).sum::<f32>();
            let score = product + self.biases.get(class).copied().unwrap_or(0.0);
            self.soft_cap.map_or(score, |cap| cap * (score / cap).tanh())
        };
        self.weights.chunks_exact(features.len()).enumerate().map(score).collect()
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
