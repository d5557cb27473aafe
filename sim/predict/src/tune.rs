//! Runs the auto-tuner on predictions: each number of learners is simulated separately.

use lockstep_models::{DeviceRates, Tuner};
use lockstep_sim::Costs;
use lockstep_sim::answer::device_capacity;
use lockstep_topology::{Cluster, Rank};

use crate::predicted::{Predicted, predict};
use crate::setup::Setup;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_report::failure::Failure;

/// The configuration with as many learners on each device as predictions of its throughput advise, and how that was
/// found. Devices of one kind under equal conditions are equal, so one figure represents all; others are tuned
/// separately (Koliousis et al. 2019, §4.4).
///
/// # Errors
/// As [`predict`].
pub fn tune(
    configuration: &Configuration,
    experiment: &Experiment,
    cluster: &Cluster,
    costs: &dyn Costs,
    setup: &Setup,
) -> Result<(Configuration, String), Failure> {
    let input = |error| Failure::Input(experiment.locate(error));
    let mut now = predict(&mut configuration.clone(), experiment, cluster, costs, setup)?;
    let takes = |learners: &u32| {
        let placed = experiment.with_learners(configuration, *learners).map(|mut one| one.place(cluster, experiment));
        matches!(placed, Ok(Ok(_)))
    };
    let fit = fitting(&now, configuration.devices(), cluster);
    let most = (1..=fit.iter().copied().max().unwrap_or(1)).take_while(takes).last().unwrap_or(1);
    let most: Vec<u32> = fit.iter().map(|fit| most.min(*fit)).collect();
    let mut tuner = Tuner::new(&most, experiment.tuner_threshold);
    loop {
        let figures = match rates(&now, &tuner, experiment, cluster, costs, setup) {
            Some(rates) => rates,
            None => vec![now.images_per_s / f64::from(configuration.devices())],
        };
        let learners = tuner.observe(&figures);
        let chosen = experiment.with_learners_of(configuration, &learners).map_err(input)?;
        if tuner.converged() {
            return Ok((chosen, format!("{}: {}", configuration.label(), tuner.trail())));
        }
        now = predict(&mut chosen.clone(), experiment, cluster, costs, setup)?;
    }
}

/// How many learners fit in the memory of each device, given the prediction of one on each.
fn fitting(alone: &Predicted, devices: u32, cluster: &Cluster) -> Vec<u32> {
    let each = alone.memory.memory.total() / u64::from(alone.memory.ranks.max(1));
    let fit = |rank: u32| {
        let capacity = device_capacity(&cluster.devices()[alone.placement.device(Rank(rank)).0 as usize]);
        let fit = capacity.map_or(u64::from(Tuner::MOST), |capacity| capacity.0 / each.max(1));
        fit.min(u64::from(Tuner::MOST)) as u32
    };
    (0..devices).map(fit).collect()
}

/// Images per second of each device, where devices differ: in kind, or in what noise and slow ranks make of them.
/// `None` where a single figure decides.
fn rates(
    now: &Predicted,
    tuner: &Tuner,
    experiment: &Experiment,
    cluster: &Cluster,
    costs: &dyn Costs,
    setup: &Setup,
) -> Option<Vec<f64>> {
    if !experiment.tunes_devices_apart() || tuner.together() == Some(true) {
        return None;
    }
    let kind = |rank: u32| &cluster.devices()[now.placement.device(Rank(rank)).0 as usize].kind;
    let one_kind = (1..now.program.workers()).all(|rank| kind(rank) == kind(0));
    if one_kind && costs.alike() && setup.conditions.alike() {
        return None;
    }
    let rates = DeviceRates::of(&now.program, &now.prediction.timeline, experiment.tuner_threshold);
    match (rates, tuner.together()) {
        (Some(rates), Some(false)) => Some(rates.images_per_s),
        (Some(rates), _) => (!one_kind || rates.differ).then_some(rates.images_per_s),
        // With too many tasks to tell, no device takes another learner.
        (None, Some(false)) => Some(vec![0.0; tuner.learners().len()]),
        (None, _) => None,
    }
}
