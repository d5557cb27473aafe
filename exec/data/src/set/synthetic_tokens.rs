//! Generates synthetic sequences of tokens of any number of positions and vocabulary: the same on every platform.
//!
//! Three of four tokens follow from the one before, 2t + 1 modulo the vocabulary; the others are drawn uniformly. So a model
//! can learn to predict them, though not all.

use lockstep_models::{Model, SampleTensor, SetSizes};
use lockstep_topology::InputError;

use super::Dataset;
use super::synthetic::{SEED, wanted};
use super::tokens::{IN_MEMORY, Tokens};
use crate::random::{Purpose, below, stream};

/// One of so many tokens is drawn; the others follow.
const DRAWN: u32 = 4;

/// The token that follows on another.
fn follower(token: u32, vocabulary: u32) -> u32 {
    ((2 * u64::from(token) + 1) % u64::from(vocabulary)) as u32
}

/// Returns (training part, held-out part a quarter as large) for `model`; `samples` is the text after `synthetic:`.
pub(super) fn load(model: &Model, vocabulary: u32, samples: Option<&str>) -> Result<(Dataset, Dataset), InputError> {
    let sample = model.sample();
    let count = wanted(sample.shape, IN_MEMORY.bytes(sample.elements() + 1), samples)?;
    let part = |first, count| samples_of(sample, vocabulary, first, count);
    Ok((part(0, count)?, part(count, SetSizes::synthetic(count).held_out)?))
}

/// Samples `first` to `first + count`; a sample does not depend on which others are made.
fn samples_of(sample: SampleTensor, vocabulary: u32, first: u64, count: u64) -> Result<Dataset, InputError> {
    let each = sample.elements() + 1;
    let mut tokens: Vec<u32> = Vec::new();
    if tokens.try_reserve_exact((count * each) as usize).is_err() {
        let message = format!("{count} samples of {sample} do not fit into memory: write a smaller number");
        return Err(InputError::flag("data", "synthetic", message));
    }
    for sample in first..first + count {
        let mut random = stream(SEED, Purpose::Pattern, sample);
        let mut token = below(&mut random, vocabulary);
        for _ in 0..each {
            tokens.push(token);
            let follows = below(&mut random, DRAWN) > 0;
            token = if follows { follower(token, vocabulary) } else { below(&mut random, vocabulary) };
        }
    }
    let starts = (0..count).map(|window| window * each).collect();
    Ok(Dataset::of_tokens("synthetic", vocabulary, Tokens::new(tokens, starts, sample)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_do_not_depend_on_which_others_are_made() {
        let sample = SampleTensor::tokens(9, 70_000);
        let all = samples_of(sample, 70_000, 0, 6).unwrap();
        let some = samples_of(sample, 70_000, 4, 2).unwrap();
        assert_eq!(all.labels_of(&[4, 5]), some.labels_of(&[0, 1]));
        assert_ne!(all.labels_of(&[0]), all.labels_of(&[1]));
    }

    /// 3/4 + 1/4V of the labels follow from their tokens: of 20,000 with V = 5, 16,000 with a deviation of 57.
    #[test]
    fn most_tokens_follow_from_the_one_before() {
        let data = samples_of(SampleTensor::tokens(100, 5), 5, 0, 200).unwrap();
        let (mut tokens, mut labels) = (vec![0u16; 20_000], vec![0; 20_000]);
        data.draw(&(0..200).collect::<Vec<u32>>(), 1, 0, &mut tokens, &mut labels).unwrap();
        let followed = tokens.iter().zip(&labels).filter(|(token, label)| follower(u32::from(**token), 5) == **label);
        assert!((15_700..16_300).contains(&followed.count()));
        // The label at a position is the token at the next.
        assert!(tokens[1..100].iter().zip(&labels).all(|(token, label)| u32::from(*token) == *label));
    }
}
