//! Tests stated noise in a run: constants by hand, and the cost for ranks that wait for each other against
//! closed forms.

use super::*;
use lockstep_models::{Distribution, Family, Jitter};

use crate::Conditions;

fn of(family: Family, mean: f64, cv: f64) -> Option<Distribution> {
    Some(Distribution::of_moments(family, mean, cv).expect("a member"))
}

fn under(noise: Jitter) -> Conditions {
    Conditions { noise, ..Conditions::default() }
}

/// Seconds of `steps` steps of `ranks` ranks on a core each, messages costing nothing.
fn steps(ranks: u32, steps: u32, conditions: &Conditions) -> Vec<f64> {
    let world = World::host(ranks, ranks);
    // Nothing comes after the exchange, so ranks begin each step together.
    let costs = Flat { forward: 1e-3, backward: 2e-3, ..Flat::default() };
    let platform = Platform { conditions, ..world.platform(&costs, NetworkModel::MaxMin) };
    let options = SimOptions { counted: steps, ..SimOptions::default() };
    simulate(&program(&mlp(ranks)), &platform, options.driver(), &options).expect("runs").timeline.step_times_s()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn constants_multiply() {
    let alone = mean(&steps(1, 3, Conditions::none()));
    let two = of(Family::Constant, 2.0, 0.0);
    for noise in [
        Jitter { kernel: two, ..Jitter::default() },
        Jitter { step: two, ..Jitter::default() },
        Jitter { rank: two, ..Jitter::default() },
    ] {
        assert_close(mean(&steps(1, 3, &under(noise))), 2.0 * alone, "twice as long");
    }
    let all = Jitter { kernel: two, step: two, rank: two, ..Jitter::default() };
    assert_close(mean(&steps(4, 3, &under(all))), 8.0 * alone, "all three multiply");
}

#[test]
fn noise_differs_between_seeds_and_trials_and_repeats_for_equal_ones() {
    let noise = |seed| Jitter { seed, kernel: of(Family::Gamma, 1.0, 0.3), ..Jitter::default() };
    let first = steps(4, 5, &under(noise(1)));
    assert_eq!(first, steps(4, 5, &under(noise(1))));
    assert_ne!(first, steps(4, 5, &under(noise(2))));
    assert_ne!(first, steps(4, 5, &Conditions { trial: 1, ..under(noise(1)) }));
}

#[test]
fn a_step_ends_with_the_slowest_rank() {
    // Every rank's step has its own factor, so a step takes the largest of k: of exponentials H_k on average, of
    // uniforms from 0 to 1 k/(k + 1). The largest of eight has a variance of Σ 1/i² = 1.53 and of 8/(81·10) = 0.0099.
    let (k, n) = (8, 500);
    let alone = mean(&steps(1, 3, Conditions::none()));
    let harmonic: f64 = (1..=k).map(|i| 1.0 / f64::from(i)).sum();
    for (family, middle, cv, expected, variance) in [
        (Family::Exponential, 1.0, 1.0, harmonic, 1.53),
        (Family::Uniform, 0.5, 1.0 / 3f64.sqrt(), f64::from(k) / f64::from(k + 1), 0.0099),
    ] {
        let noise = Jitter { seed: 5, step: of(family, middle, cv), ..Jitter::default() };
        let factor = mean(&steps(k, n, &under(noise))) / alone;
        let standard_error = (variance / f64::from(n)).sqrt();
        assert!((factor - expected).abs() < 3.0 * standard_error, "{family}: {factor} instead of {expected}");
    }
}

#[test]
fn a_slow_rank_stays_slow() {
    let noise = Jitter { seed: 3, rank: of(Family::Lognormal, 1.0, 0.2), ..Jitter::default() };
    let all = steps(4, 6, &under(noise));
    all.iter().for_each(|step| assert_close(*step, all[0], "every step alike"));
}

/// Seconds of a ring's allreduce of 4 MB among four hosts.
fn ring(conditions: &Conditions, network: NetworkModel) -> f64 {
    let world = World::star(4);
    let run = CollectiveRun {
        collective: Collective::AllReduce,
        algorithm: Algorithm::ring(),
        group: Group::flat(4),
        elements: 1_000_000,
        dtype: Dtype::F32,
        chunk: 1_000_000,
        window: 0,
        fold: FoldRule::Exact,
        padded: false,
        long_way: false,
    };
    let flat = Flat::default();
    let platform = Platform { conditions, ..world.platform(&flat, network) };
    simulate_collective(&run, &platform).expect("a collective that works").time.as_secs_f64()
}

#[test]
fn noise_delays_and_slows_messages() {
    // Six rounds of 1 MB at 1 GB/s over 10 us.
    for network in [NetworkModel::MaxMin, NetworkModel::AlphaBeta] {
        assert_close(ring(Conditions::none(), network), 6.0 * (10e-6 + 1e-3), "undisturbed");
        let late = Jitter { latency: of(Family::Constant, 5e-6, 0.0), ..Jitter::default() };
        assert_close(ring(&under(late), network), 6.0 * (15e-6 + 1e-3), "5 us later each");
        let more = Jitter { bandwidth: of(Family::Constant, 1.5, 0.0), ..Jitter::default() };
        assert_close(ring(&under(more), network), 6.0 * (10e-6 + 1.5e-3), "half as much again");
    }
}

#[test]
fn runs_with_noise_are_not_folded() {
    let world = World::star(4);
    let flat = Flat { forward: 1e-3, ..Flat::default() };
    let noise = under(Jitter { kernel: of(Family::Constant, 1.0, 0.0), ..Jitter::default() });
    let options = SimOptions::default();
    let predict = |conditions| {
        let platform = Platform { conditions, ..world.platform(&flat, NetworkModel::MaxMin) };
        simulate(&program(&mlp(4)), &platform, options.driver(), &options).expect("runs")
    };
    let (still, noisy) = (predict(Conditions::none()), predict(&noise));
    assert_eq!(still.timeline, noisy.timeline, "factors of one change nothing");
    assert!(noisy.folding.to_string().contains("noise differs between ranks"), "{}", noisy.folding);
}
