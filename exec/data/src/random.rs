//! Draws seeded random numbers from a ChaCha8 stream for each purpose and index.
//!
//! The draws are written out here instead of taken from a library, whose values may change with its version: a seed
//! must mean the same data order and the same initial weights for as long as results are compared.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The purpose of a stream: streams of one seed but different purposes are independent.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Which samples are held out.
    Split = 1,
    /// The order of an epoch.
    Epoch = 2,
    /// Patterns of synthetic classes.
    Pattern = 3,
    /// Noise of synthetic samples.
    Noise = 4,
    /// Initial parameters.
    Parameter = 5,
    /// Which elements of a sample a dropout layer drops.
    Dropout = 6,
    /// What augmentation does to a sample.
    Augmentation = 7,
    /// Which rank holds which samples in memory.
    Partition = 8,
    /// The order in which a rank draws its samples.
    Draw = 9,
    /// Tokens that a trained model writes.
    Generation = 10,
}

/// The stream number `index` of `purpose` under `seed`; the three are the key, so no two streams overlap.
pub fn stream(seed: u64, purpose: Purpose, index: u64) -> ChaCha8Rng {
    stream_within(seed, purpose, index, 0)
}

/// As [`stream`], but one of many under the same index.
pub fn stream_within(seed: u64, purpose: Purpose, index: u64, part: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&(purpose as u64).to_le_bytes());
    key[16..24].copy_from_slice(&index.to_le_bytes());
    key[24..].copy_from_slice(&part.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// A uniform number in `0..bound` without bias (Lemire 2019, Algorithm 5); `bound` must not be zero.
pub fn below(rng: &mut ChaCha8Rng, bound: u32) -> u32 {
    let mut product = u64::from(rng.next_u32()) * u64::from(bound);
    let threshold = bound.wrapping_neg() % bound;
    // The low half is below 2³² mod bound for exactly the surplus draws that would bias some results.
    while (product as u32) < threshold {
        product = u64::from(rng.next_u32()) * u64::from(bound);
    }
    (product >> 32) as u32
}

/// Shuffles `items` uniformly at random (Fisher and Yates, Durstenfeld's form).
pub fn shuffle(rng: &mut ChaCha8Rng, items: &mut [u32]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last as u32 + 1) as usize);
    }
}

/// A uniform number in [0, 1), a multiple of 2⁻⁵³.
pub fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Two independent standard normal variates (Box and Muller 1958).
///
/// `ln`, `sin` and `cos` come from the platform's libm, whose last bit may differ elsewhere; after rounding to `f32` one
/// variate in hundreds of millions shows it.
pub fn normal_pair(rng: &mut ChaCha8Rng) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * uniform(rng)).sin_cos();
    [radius * cos, radius * sin]
}

/// A bell-shaped number of mean 0 and variance 1: the sum of four random bytes, so the same bits on every platform.
///
/// A byte has the mean 127.5 and the variance (256² − 1) / 12 = 5461.25, four of them 510 and 21845.
pub fn bell(rng: &mut ChaCha8Rng) -> f32 {
    let sum: i32 = rng.next_u32().to_le_bytes().into_iter().map(i32::from).sum();
    (sum - 510) as f32 / 21845f32.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_all_three_parts_of_their_key() {
        let first = |seed, purpose, index| stream(seed, purpose, index).next_u64();
        let base = first(1, Purpose::Epoch, 2);
        assert_eq!(base, first(1, Purpose::Epoch, 2));
        assert_ne!(base, first(2, Purpose::Epoch, 1));
        assert_ne!(base, first(1, Purpose::Noise, 2));
        assert_ne!(base, first(1, Purpose::Epoch, 3));
        assert_eq!(base, stream_within(1, Purpose::Epoch, 2, 0).next_u64());
        assert_ne!(base, stream_within(1, Purpose::Epoch, 2, 1).next_u64());
    }

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let mut order: Vec<u32> = (0..8).collect();
        shuffle(&mut stream(1, Purpose::Epoch, 0), &mut order);
        assert_eq!(order, PINNED_ORDER);
    }

    #[test]
    fn below_is_uniform_and_in_range() {
        let mut rng = stream(3, Purpose::Split, 0);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[below(&mut rng, 7) as usize] += 1;
        }
        // 10,000 are expected, with a deviation of √(70000 · 1/7 · 6/7) = 93: five deviations on each side.
        assert!(counts.iter().all(|count| (9_537..=10_463).contains(count)), "{counts:?}");
        assert_eq!(below(&mut rng, 1), 0);
    }

    #[test]
    fn shuffles_are_permutations_and_all_orders_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        let mut rng = stream(4, Purpose::Epoch, 0);
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            shuffle(&mut rng, &mut items);
            *counts.entry(items).or_insert(0u32) += 1;
        }
        // 4! orders, 1,000 of each expected, with a deviation of 31.
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (840..=1_160).contains(count)), "{counts:?}");
    }

    #[test]
    fn variates_have_the_moments_of_the_standard_normal() {
        let mut rng = stream(5, Purpose::Parameter, 0);
        let normal: Vec<f64> = (0..100_000).flat_map(|_| normal_pair(&mut rng)).collect();
        let bells: Vec<f64> = (0..200_000).map(|_| f64::from(bell(&mut rng))).collect();
        // Fourth moments: 3 for a normal variate, 3 − 1.2/4 = 2.7 for a sum of four uniform ones.
        for (values, fourth) in [(normal, 3.0), (bells, 2.7)] {
            let moment = |power| values.iter().map(|x| x.powi(power)).sum::<f64>() / values.len() as f64;
            for (power, expected, tolerance) in [(1, 0.0, 0.012), (2, 1.0, 0.016), (3, 0.0, 0.045), (4, fourth, 0.12)] {
                let found = moment(power);
                assert!((found - expected).abs() < tolerance, "moment {power}: {found}, expected {expected}");
            }
        }
    }

    #[test]
    fn uniform_numbers_fill_zero_to_one() {
        let mut rng = stream(6, Purpose::Parameter, 0);
        let numbers: Vec<f64> = (0..100_000).map(|_| uniform(&mut rng)).collect();
        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = numbers.iter().sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    /// Recorded once; a change here changes every result ever published with a seed.
    const PINNED_ORDER: [u32; 8] = [0, 3, 4, 6, 5, 7, 2, 1];
}
