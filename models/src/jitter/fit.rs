//! Fits distributions to recorded factors: finds the family with the largest likelihood, and its distance from them.
//!
//! All families have two parameters, so the least Akaike information criterion is the largest likelihood. Slices of a
//! record are consecutive and not independent; the criterion ranks families, it proves none.

use special::Gamma as _;

use super::{Distribution, Family};
use crate::profile::NoiseTrace;

/// A family fitted to a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The member with the largest likelihood of the sample.
    pub distribution: Distribution,
    /// 4 − 2 ln likelihood (Akaike 1974): less is better.
    pub aic: f64,
    /// The largest distance between the sample's cumulative share and the member's (Kolmogorov), from 0 to 1.
    pub distance: f64,
}

/// Distributions fitted to the slices of all cores while all are busy, the best first.
pub fn fits(trace: &NoiseTrace) -> Vec<Fit> {
    let all: Vec<f64> = trace.together.iter().flatten().map(|factor| f64::from(*factor)).collect();
    fit(&all)
}

/// The families fitted to `sample`, the best first; empty where the sample does not vary or has values that are
/// not positive.
fn fit(sample: &[f64]) -> Vec<Fit> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    if !(*first > 0.0 && first < last && last.is_finite()) {
        return Vec::new();
    }
    let mut fits: Vec<Fit> = Family::ALL
        .into_iter()
        .filter_map(|family| likeliest(family, &sorted))
        .map(|distribution| {
            let likelihood: f64 = sorted.iter().map(|x| distribution.ln_density(*x)).sum();
            Fit { distribution, aic: 4.0 - 2.0 * likelihood, distance: distance(&distribution, &sorted) }
        })
        .collect();
    fits.sort_by(|a, b| a.aic.total_cmp(&b.aic));
    fits
}

/// The most likely member of a family; for a normal, of the whole one.
fn likeliest(family: Family, sorted: &[f64]) -> Option<Distribution> {
    let n = sorted.len() as f64;
    let of = |value: fn(f64) -> f64| {
        let mean = sorted.iter().map(|x| value(*x)).sum::<f64>() / n;
        let variance = sorted.iter().map(|x| (value(*x) - mean) * (value(*x) - mean)).sum::<f64>() / n;
        (mean, variance.sqrt())
    };
    let (mean, sd) = of(|x| x);
    let (a, b) = match family {
        Family::Constant => return None,
        Family::Uniform => (sorted[0], sorted[sorted.len() - 1]),
        Family::Normal => (mean, sd),
        Family::Lognormal => of(libm::log),
        Family::Exponential => (sorted[0], mean - sorted[0]),
        Family::Gamma => {
            // ln k − ψ(k) = ln mean − mean ln, whose left side falls from ∞ to 0 as the shape k grows.
            let wanted = libm::log(mean) - of(libm::log).0;
            let (mut few, mut many) = (1e-3f64, 1e9f64);
            for _ in 0..100 {
                let middle = (few * many).sqrt();
                if libm::log(middle) - middle.digamma() > wanted { few = middle } else { many = middle }
            }
            (few, mean / few)
        }
    };
    Some(Distribution::of_parameters(family, a, b))
}

fn distance(of: &Distribution, sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let at = |(index, x): (usize, &f64)| {
        let below = of.below(*x);
        (below - index as f64 / n).abs().max(((index + 1) as f64 / n - below).abs())
    };
    sorted.iter().enumerate().map(at).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers spread evenly between 0 and 1: multiples of the golden ratio.
    fn uniform(index: u64) -> f64 {
        ((index as f64 + 0.5) * 0.618_033_988_749_894_9).fract()
    }

    #[test]
    fn the_family_that_was_drawn_from_is_found() {
        for family in [Family::Uniform, Family::Lognormal, Family::Exponential, Family::Gamma, Family::Normal] {
            let of = Distribution::of_moments(family, 1.2, 0.4).expect("a member");
            let sample: Vec<f64> = (0..5_000).map(|index| of.quantile(uniform(index))).collect();
            let fits = fit(&sample);
            assert_eq!(fits.len(), 5);
            assert!(fits.windows(2).all(|pair| pair[0].aic <= pair[1].aic));
            let best = fits[0];
            assert_eq!(best.distribution.family(), family, "{fits:?}");
            // Of 5,000 draws one in a thousand samples is farther than 1.95/√5000 = 0.028 from its own distribution.
            assert!(best.distance < 0.028, "{best:?}");
            // Four standard errors of the mean: 4 · 0.4/√5000.
            assert!((best.distribution.mean() / of.mean() - 1.0).abs() < 0.023, "{best:?}");
        }
    }

    #[test]
    fn distance_by_hand() {
        // Steps at 0.2 and 0.6 of a uniform from 0 to 1: farthest just before 0.6, where half is below, and
        // after it, 0.4.
        let square = Distribution::of_parameters(Family::Uniform, 0.0, 1.0);
        assert!((distance(&square, &[0.2, 0.6]) - 0.4).abs() < 1e-12);
    }

    #[test]
    fn constant_samples_have_no_fit() {
        assert!(fit(&[]).is_empty() && fit(&[1.0, 1.0]).is_empty() && fit(&[0.0, 1.0]).is_empty());
    }
}
