//! Compares distributions with closed forms: moments, quantiles, the largest of several draws.

use super::*;
use proptest::prelude::*;

const VARYING: [Family; 5] = [Family::Uniform, Family::Normal, Family::Lognormal, Family::Exponential, Family::Gamma];

/// Mean and standard deviation by the midpoint rule over quantiles.
fn moments(of: &Distribution) -> (f64, f64) {
    let draws: Vec<f64> = (0..200_000).map(|i| of.quantile((f64::from(i) + 0.5) / 200_000.0)).collect();
    let mean = draws.iter().sum::<f64>() / draws.len() as f64;
    let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
    (mean, variance.sqrt())
}

#[test]
fn mean_and_variation_are_reproduced() {
    for family in VARYING {
        let of = Distribution::of_moments(family, 3.0, 0.2).expect("a member");
        let (mean, sd) = moments(&of);
        assert!((mean - 3.0).abs() < 1e-3 && (sd - 0.6).abs() < 3e-3, "{family}: {mean} {sd}");
        assert!((of.mean() - mean).abs() < 1e-3, "{family}: {} {mean}", of.mean());
    }
    assert_eq!(Distribution::of_moments(Family::Gamma, 2.0, 0.0).expect("no variation").quantile(0.3), 2.0);
}

#[test]
fn a_normal_is_cut_at_zero() {
    // Mean and deviation 1: the share Φ(−1) = 0.1587 is cut off, which lifts the mean by φ(1)/Φ(1) = 0.2876.
    let of = Distribution::of_moments(Family::Normal, 1.0, 1.0).expect("a member");
    assert!(of.quantile(1e-12) >= 0.0);
    assert!((of.mean() - 1.2876).abs() < 1e-4 && (moments(&of).0 - 1.2876).abs() < 1e-3, "{}", of.mean());
}

#[test]
fn the_largest_of_several() {
    let unit = Distribution::of_moments(Family::Exponential, 1.0, 1.0).expect("no least value");
    let square = Distribution::of_moments(Family::Uniform, 0.5, 1.0 / 3f64.sqrt()).expect("from 0 to 1");
    for k in [1, 2, 7, 64, 1000] {
        let harmonic: f64 = (1..=k).map(|i| 1.0 / f64::from(i)).sum();
        assert!((unit.expected_maximum(k) / harmonic - 1.0).abs() < 1e-4, "{k} {}", unit.expected_maximum(k));
        let exact = f64::from(k) / f64::from(k + 1);
        assert!((square.expected_maximum(k) / exact - 1.0).abs() < 1e-4, "{k} {}", square.expected_maximum(k));
    }
    // Of two normals: mean + deviation/√π (David, Nagaraja 2003, §3.2), cut off far below.
    let normal = Distribution::of_moments(Family::Normal, 10.0, 0.1).expect("a member");
    assert!((normal.expected_maximum(2) - (10.0 + 1.0 / std::f64::consts::PI.sqrt())).abs() < 1e-3);
}

#[test]
fn impossible_moments_and_quantiles_are_refused() {
    for (wrong, word) in [
        (Distribution::of_moments(Family::Uniform, 1.0, 0.6), "0.577"),
        (Distribution::of_moments(Family::Normal, f64::NAN, 0.1), "mean = NaN"),
        (Distribution::of_moments(Family::Gamma, -1.0, 0.1), "mean = -1"),
        (Distribution::of_moments(Family::Gamma, 1.0, f64::INFINITY), "cv = inf"),
        (Distribution::of_moments(Family::Constant, 1.0, 0.1), "leave cv out"),
        (Distribution::of_quantiles(Family::Gamma, (0.5, 2.0), (0.99, 1.0)), "larger value"),
        (Distribution::of_quantiles(Family::Gamma, (0.5, 1.0), (0.99, 1e30)), "no gamma"),
        (Distribution::of_quantiles(Family::Uniform, (0.5, 1.0), (0.99, 9.0)), "lower end"),
        (Distribution::of_quantiles(Family::Constant, (0.5, 1.0), (0.99, 9.0)), "its mean"),
    ] {
        assert!(wrong.as_ref().is_err_and(|message| message.contains(word)), "{wrong:?}");
    }
    assert!("gausian".parse::<Family>().is_err_and(|message| message.contains("normal")));
}

proptest! {
    #[test]
    fn stated_quantiles_are_reproduced(family in 0usize..5, x in 0.5f64..2.0, more in 0.01f64..0.8) {
        let (family, y) = (VARYING[family], x * (1.0 + more));
        let of = Distribution::of_quantiles(family, (0.5, x), (0.95, y));
        if let Ok(of) = of {
            let cut = if family == Family::Normal { 0.05 } else { 1e-6 };
            prop_assert!((of.quantile(0.5) / x - 1.0).abs() < cut && (of.quantile(0.95) / y - 1.0).abs() < cut, "{of}");
        } else {
            prop_assert!(family == Family::Uniform, "{:?}", of);
        }
    }

    #[test]
    fn quantile_and_share_are_inverse(family in 0usize..5, mean in 0.1f64..10.0, cv in 0.01f64..0.5, u in 0.001f64..0.999) {
        let of = Distribution::of_moments(VARYING[family], mean, cv).expect("a member");
        prop_assert!((of.below(of.quantile(u)) - u).abs() < 1e-6, "{of} {u}");
    }
}
