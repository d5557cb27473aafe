//! Computes exponentials, hyperbolic tangents and logistic functions in plain Rust that the compiler vectorises: the same bits on
//! every processor, where the platform's own functions take one element at a time and differ in their last bits.
//!
//! Polynomials: Moshier's Cephes, `expf` and `tanhf`.

use super::{LANES, sum_in_halves};

/// 1.5 · 2²³: a number of less than 2²² plus it is rounded to a whole one, in its last bits.
const ROUNDS: f32 = 12_582_912.0;

/// ln 2 in two parts, of which the first has few bits, so that products with whole numbers are exact.
const LN_2: (f32, f32) = (355.0 / 512.0, -2.121_944_4e-4);

/// eˣ within 2 units of the last place; 0 below −87.3, where it has fewer digits, ∞ above 88.3; NaN of NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // eˣ = 2ⁿ · eʳ with |r| ≤ ln 2 / 2.
    let shifted = x * std::f32::consts::LOG2_E + ROUNDS;
    let n = shifted - ROUNDS;
    let r = x - n * LN_2.0 - n * LN_2.1;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = p * r + coefficient;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let value = (p * r * r + r + 1.0) * power;
    if x < -87.3 {
        0.0
    } else if x > 88.3 {
        f32::INFINITY
    } else {
        value
    }
}

/// tanh x within 3 units of the last place; NaN of NaN.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let mut p = -5.704_988_7e-3;
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8] {
        p = p * square + coefficient;
    }
    let small = p * square * x + x;
    let large = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { small } else { large.copysign(x) }
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The largest element, −∞ of none; NaNs are no elements.
#[inline(always)]
pub(crate) fn maximum(xs: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut blocks = xs.chunks_exact(LANES);
    for block in blocks.by_ref() {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    for (lane, x) in lanes.iter_mut().zip(blocks.remainder()) {
        *lane = if *x > *lane { *x } else { *lane };
    }
    lanes.iter().fold(f32::NEG_INFINITY, |most, lane| if *lane > most { *lane } else { most })
}

/// Makes each element what `f` gives of it; returns their sum, in the order of [`sum_pairs`](super::sum_pairs).
#[inline(always)]
pub(crate) fn replace_and_sum(xs: &mut [f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut blocks = xs.chunks_exact_mut(LANES);
    for block in blocks.by_ref() {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *x = f(*x);
            *lane += *x;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(blocks.into_remainder()) {
        *x = f(*x);
        *lane += *x;
    }
    sum_in_halves(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from −100 to 100, near 0 densely.
    fn numbers() -> impl Iterator<Item = f32> {
        let even = (-100_000..=100_000).map(|at| at as f32 / 1000.0);
        even.chain((-1000..=1000).map(|at| (at as f32 / 250.0).powi(7) * 1e-6))
    }

    #[test]
    fn functions_are_near_their_definitions() {
        let near = |found: f32, expected: f64, units: f64, x: f32| {
            let error = (f64::from(found) - expected).abs() / expected.abs().max(f64::from(f32::MIN_POSITIVE));
            assert!(error <= units * f64::from(f32::EPSILON), "{x}: {found} is not {expected}");
        };
        for x in numbers() {
            let wide = f64::from(x);
            if (-87.3..=88.3).contains(&x) {
                near(exp(x), wide.exp(), 2.0, x);
            }
            near(tanh(x), wide.tanh(), 3.0, x);
            if x > -87.0 {
                near(logistic(x), 1.0 / (1.0 + (-wide).exp()), 3.0, x);
            }
        }
    }

    #[test]
    fn ends() {
        assert_eq!([exp(f32::NEG_INFINITY), exp(-1e30), exp(0.0)], [0.0, 0.0, 1.0]);
        assert_eq!([exp(f32::INFINITY), exp(1e30), exp(89.0)], [f32::INFINITY; 3]);
        assert_eq!([tanh(f32::INFINITY), tanh(-50.0), tanh(0.0)], [1.0, -1.0, 0.0]);
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && logistic(f32::NAN).is_nan());
    }

    #[test]
    fn rows_by_hand() {
        let row: Vec<f32> = (0..70).map(|at| ((at * 29) % 70) as f32).collect();
        assert_eq!((maximum(&row), maximum(&[]), maximum(&[f32::NAN, -1.0])), (69.0, f32::NEG_INFINITY, -1.0));
        let mut twice = row.clone();
        assert_eq!(replace_and_sum(&mut twice, |x| 2.0 * x), 70.0 * 69.0);
        assert!(row.iter().zip(&twice).all(|(x, y)| 2.0 * x == *y));
    }
}
