//! Draws random numbers that depend on nothing but their key: seed, trial, what is drawn, for which rank,
//! and the index.
//!
//! The key seeds a ChaCha8 stream, of which the first number is taken. So neither the order of events nor the number of
//! threads nor other draws change a draw.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The purpose of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// One run of one task.
    Kernel = 1,
    /// All work of a rank in one iteration.
    Step = 2,
    /// All work of a rank.
    Rank = 3,
    /// The latency of a message.
    Latency = 4,
    /// The bytes of a message.
    Bandwidth = 5,
}

/// A number above 0 and below 1: the `index`-th draw of `what` for `who` about `which`.
pub(crate) fn uniform(seed: u64, trial: u32, what: What, (who, which): (u32, u32), index: u64) -> f64 {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..12].copy_from_slice(&trial.to_le_bytes());
    key[12..16].copy_from_slice(&(what as u32).to_le_bytes());
    key[16..20].copy_from_slice(&who.to_le_bytes());
    key[20..24].copy_from_slice(&which.to_le_bytes());
    key[24..].copy_from_slice(&index.to_le_bytes());
    // 52 random bits and a half: neither end of the interval is ever drawn.
    let bits = ChaCha8Rng::from_seed(key).next_u64() >> 12;
    (bits as f64 + 0.5) / (1u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_every_part_of_its_key() {
        let first = uniform(1, 0, What::Kernel, (3, 4), 5);
        assert_eq!(first, uniform(1, 0, What::Kernel, (3, 4), 5));
        let others = [
            uniform(2, 0, What::Kernel, (3, 4), 5),
            uniform(1, 1, What::Kernel, (3, 4), 5),
            uniform(1, 0, What::Step, (3, 4), 5),
            uniform(1, 0, What::Kernel, (4, 3), 5),
            uniform(1, 0, What::Kernel, (3, 5), 5),
            uniform(1, 0, What::Kernel, (3, 4), 6),
        ];
        assert!(others.iter().all(|other| *other != first), "{first} {others:?}");
    }

    #[test]
    fn draws_are_uniform() {
        // The mean of 10,000 has a standard deviation of 1/√(12·10⁴) = 0.0029, the share below 0.1 one of 0.003.
        let draws: Vec<f64> = (0..10_000).map(|index| uniform(7, 0, What::Step, (0, 0), index)).collect();
        assert!(draws.iter().all(|u| *u > 0.0 && *u < 1.0));
        let mean = draws.iter().sum::<f64>() / 1e4;
        let below = draws.iter().filter(|u| **u < 0.1).count() as f64 / 1e4;
        assert!((mean - 0.5).abs() < 0.01 && (below - 0.1).abs() < 0.01, "{mean} {below}");
    }
}
