//! Runs trials: simulates one configuration many times under different noise, on all cores, and summarises
//! the step times.
//!
//! Draws are seeded by the number of the trial, and results are put in the order of these numbers, so the figures do
//! not depend on the number of cores.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use lockstep_models::{quantile, straggling_s};
use lockstep_sim::{Conditions, Platform, SimError, simulate};

use crate::predicted::Predicted;
use crate::setup::Setup;

/// How the step times of all trials spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// Runs, each with its own draws.
    pub(crate) trials: u32,
    /// Mean seconds per step.
    pub(crate) mean_s: f64,
    /// Standard error of that mean, from the means of the trials; `None` of one trial.
    pub(crate) standard_error_s: Option<f64>,
    /// Seconds below which 5, 50, 95 and 99 % of the steps are.
    pub(crate) quantiles_s: [f64; 4],
    /// Mean seconds by which a step's slowest rank computes longer than ranks do on average.
    pub(crate) straggling_s: Option<f64>,
}

/// The result of one trial: its steps' seconds, and its stragglers'.
type Trial = (Vec<f64>, Option<f64>);

impl Spread {
    /// The spread of these trials, all of which have steps.
    fn of(trials: &[Trial]) -> Spread {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let mut steps: Vec<f64> = trials.iter().flat_map(|(steps, _)| steps).copied().collect();
        let mean_s = mean(&steps);
        steps.sort_by(f64::total_cmp);
        let means: Vec<f64> = trials.iter().map(|(steps, _)| mean(steps)).collect();
        let squares: f64 = means.iter().map(|of_trial| (of_trial - mean(&means)).powi(2)).sum();
        let n = trials.len() as f64;
        let straggling: Option<Vec<f64>> = trials.iter().map(|(_, straggling)| *straggling).collect();
        Spread {
            trials: trials.len() as u32,
            mean_s,
            standard_error_s: (trials.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt()),
            quantiles_s: [0.05, 0.5, 0.95, 0.99].map(|share| quantile(&steps, share)),
            straggling_s: straggling.map(|of_trials| mean(&of_trials)),
        }
    }
}

/// The spread of `trials` runs on `cores` threads, of which `first` is the first; `progress` gets the share
/// that is done.
///
/// # Errors
/// As [`simulate`], from the lowest trial that fails.
pub(crate) fn spread(
    cores: usize,
    platform: &Platform<'_>,
    setup: &Setup,
    trials: u32,
    first: &Predicted,
    progress: &mut dyn FnMut(f64),
) -> Result<Spread, SimError> {
    let program = &first.program;
    let said = |timeline: &lockstep_models::Timeline| (timeline.step_times_s(), straggling_s(program, timeline));
    let run = |trial: u32| {
        let conditions = Conditions { trial, ..platform.conditions.clone() };
        let platform = Platform { conditions: &conditions, ..*platform };
        simulate(program, &platform, setup.options.driver(), &setup.options).map(|found| said(&found.timeline))
    };
    let mut found: Vec<Option<Result<Trial, SimError>>> = vec![None; trials.max(1) as usize];
    found[0] = Some(Ok(said(&first.prediction.timeline)));
    let next = AtomicU32::new(1);
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..cores.clamp(1, trials.max(1) as usize) {
            let (send, next, run) = (send.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let trial = next.fetch_add(1, Ordering::Relaxed);
                    if trial >= trials || send.send((trial, run(trial))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for (done, (trial, result)) in receive.iter().enumerate() {
            found[trial as usize] = Some(result);
            progress((done + 2) as f64 / f64::from(trials));
        }
    });
    let all: Result<Vec<Trial>, SimError> = found.into_iter().flatten().collect();
    all.map(|all| Spread::of(&all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predicted::predict;
    use crate::site::Site;
    use lockstep_experiment::Experiment;

    #[test]
    fn figures_by_hand() {
        // Means 2 and 4: mean 3, deviation √2, standard error √2/√2 = 1. Steps 1, 3, 4, 4.
        let spread = Spread::of(&[(vec![1.0, 3.0], Some(0.5)), (vec![4.0, 4.0], Some(0.0))]);
        assert_eq!((spread.trials, spread.mean_s, spread.straggling_s), (2, 3.0, Some(0.25)));
        assert!((spread.standard_error_s.expect("two trials") - 1.0).abs() < 1e-12);
        assert_eq!(spread.quantiles_s[1], 3.5);
        assert!((spread.quantiles_s[0] - 1.3).abs() < 1e-12, "{:?}", spread.quantiles_s);
        let one = Spread::of(&[(vec![2.0], None)]);
        assert_eq!((one.standard_error_s, one.straggling_s), (None, None));
    }

    #[test]
    fn any_number_of_cores_gives_the_same_bytes() {
        let text = "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\nranks = 4\n\
                    [noise]\ntrials = 7\nkernel = { family = \"gamma\", cv = 0.3 }\n";
        let experiment = Experiment::parse("e.toml", text).expect("an experiment");
        let site = Site::open(&experiment, None).expect("a cluster");
        let setup = Setup::of(&experiment, &site, Default::default()).expect("a setup");
        let mut configuration = experiment.configurations().expect("one").remove(0);
        let first =
            predict(&mut configuration, &experiment, &site.cluster, site.costs.as_ref(), &setup).expect("a prediction");
        let platform = first.platform(&site.cluster, site.costs.as_ref(), &setup);
        let on = |cores| spread(cores, &platform, &setup, 7, &first, &mut |_| ()).expect("trials");
        let one = on(1);
        assert_eq!((one, one.trials), (on(5), 7));
        assert!(one.standard_error_s.expect("seven trials") > 0.0 && one.quantiles_s.is_sorted());
        assert!(one.straggling_s.expect("spans are kept") > 0.0);
    }
}
