//! Runs the auto-tuner on predictions: each number of learners is simulated separately.

use std::collections::BTreeMap;

use lockstep_models::{DeviceRates, Tuner};
use lockstep_sim::Costs;
use lockstep_sim::answer::{device_capacity, fullest_device};
use lockstep_topology::{Cluster, InputError, Rank};

use crate::predicted::{Predicted, optimizer_elements, predict};
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
    let placed = (1..=Tuner::MOST).take_while(takes).last().unwrap_or(1);
    let most = fitting(configuration, experiment, cluster, &now, placed).map_err(input)?;
    if most.contains(&0) {
        let how = format!("{}: one learner on each device: not even that fits in memory", configuration.label());
        return Ok((experiment.with_learners(configuration, 1).map_err(input)?, how));
    }
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

/// How many learners, up to `limit`, fit in the memory of each device, by the memory plan of that many on each; `alone` is
/// the prediction of one on each.
///
/// # Errors
/// As [`fullest_device`].
fn fitting(
    configuration: &Configuration,
    experiment: &Experiment,
    cluster: &Cluster,
    alone: &Predicted,
    limit: u32,
) -> Result<Vec<u32>, InputError> {
    let mut known = BTreeMap::from([(1, alone.memory.memory.total())]);
    let mut bytes = |learners: u32| -> Result<u64, InputError> {
        if let Some(bytes) = known.get(&learners) {
            return Ok(*bytes);
        }
        let mut more = experiment.with_learners(configuration, learners)?;
        let (placement, _) = more.place(cluster, experiment)?;
        let memory = fullest_device(&more.program()?, cluster, &placement, optimizer_elements(experiment))?.memory;
        known.insert(learners, memory.total());
        Ok(memory.total())
    };
    let mut fit = |rank: u32| {
        let capacity = device_capacity(&cluster.devices()[alone.placement.device(Rank(rank)).0 as usize]);
        let Some(capacity) = capacity else { return Ok(limit) };
        // More learners need more memory.
        let (mut fits, mut most) = (0, limit);
        while fits < most {
            let middle = fits + (most - fits).div_ceil(2);
            if bytes(middle)? <= capacity.0 { fits = middle } else { most = middle - 1 }
        }
        Ok(fits)
    };
    (0..configuration.devices()).map(&mut fit).collect()
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
