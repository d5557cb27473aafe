//! Runs the auto-tuner on predictions: each number of learners is simulated separately.

use lockstep_models::Tuner;
use lockstep_sim::Costs;
use lockstep_topology::Cluster;

use crate::predicted::predict;
use crate::setup::Setup;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_report::failure::Failure;

/// The configuration with as many learners on each device as predictions of its throughput advise, and how that was
/// found. All devices are assumed equal, so one represents all (Koliousis et al. 2019, §4.4).
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
    let alone = predict(&mut configuration.clone(), experiment, cluster, costs, setup)?;
    let each = alone.memory.memory.total() / u64::from(alone.memory.ranks.max(1));
    let by_memory = alone.memory.capacity.map_or(u64::from(Tuner::MOST), |capacity| capacity.0 / each.max(1));
    let takes = |learners: &u32| {
        let placed = experiment.with_learners(configuration, *learners).map(|mut one| one.place(cluster, experiment));
        matches!(placed, Ok(Ok(_)))
    };
    let most = (1..=Tuner::MOST.min(by_memory as u32)).take_while(takes).last().unwrap_or(1);
    let devices = f64::from(configuration.job.workers);
    let mut tuner = Tuner::new(&[most], true, experiment.tuner_threshold);
    let mut images_per_s = alone.images_per_s;
    while !tuner.converged() {
        let learners = tuner.observe(&[images_per_s / devices])[0];
        if !tuner.converged() {
            let mut next = experiment.with_learners(configuration, learners).map_err(input)?;
            images_per_s = predict(&mut next, experiment, cluster, costs, setup)?.images_per_s;
        }
    }
    let chosen = experiment.with_learners(configuration, tuner.learners()[0]).map_err(input)?;
    let label = configuration.label();
    Ok((chosen, format!("{label}: {}", tuner.trail())))
}
