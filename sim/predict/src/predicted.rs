//! `Predicted`: simulates one configuration on a cluster, and derives figures from its timeline.

use lockstep_models::{Periodic, Program};
use lockstep_sim::answer::{Bound, DeviceMemory, bound, fullest_device};
use lockstep_sim::{Costs, Platform, Prediction, SimError, simulate};
use lockstep_topology::{Cluster, Hosting, Placement};

use crate::periodic::periodic;
use crate::setup::Setup;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_report::failure::Failure;
use lockstep_report::log::timed;

/// The prediction of one configuration.
pub struct Predicted {
    /// What was simulated.
    pub program: Program,
    /// The work between steps, as far as it was predicted; its tasks are in the timeline.
    pub periodic: Vec<(Periodic, Program)>,
    /// The device of each rank.
    pub placement: Placement,
    /// The process of each rank.
    pub hosting: Hosting,
    /// Timeline, traffic and utilisation.
    pub prediction: Prediction,
    /// Median seconds per step.
    pub step_time_s: f64,
    /// Seconds of a shuffle, where ranks hold parts of the samples and redistribute them.
    pub shuffle_s: Option<f64>,
    /// Samples per second over all ranks, shuffles counted.
    pub images_per_s: f64,
    /// Seconds per step in which no computation runs.
    pub exposed_comm_s: f64,
    /// Seconds per step of waiting for a batch, where input is tasks.
    pub exposed_input_s: Option<f64>,
    /// What bounds the step.
    pub bound: Bound,
    /// The device whose memory is fullest.
    pub memory: DeviceMemory,
}

impl Predicted {
    /// The platform of the simulation.
    pub(crate) fn platform<'a>(&'a self, cluster: &'a Cluster, costs: &'a dyn Costs, setup: &'a Setup) -> Platform<'a> {
        setup.on(Platform::new(cluster, &self.placement, &self.hosting, costs))
    }
}

/// Simulates one configuration, placing its ranks on `cluster`.
///
/// # Errors
/// More ranks than places, an algorithm that cannot serve the group; a program that deadlocks.
pub fn predict(
    configuration: &mut Configuration,
    experiment: &Experiment,
    cluster: &Cluster,
    costs: &dyn Costs,
    setup: &Setup,
) -> Result<Predicted, Failure> {
    let input = |error| Failure::Input(experiment.locate(error));
    let (placement, hosting) = configuration.place(cluster, experiment).map_err(input)?;
    let program = timed(|| format!("{}: program", configuration.label()), || configuration.program()).map_err(input)?;
    let platform = setup.on(Platform::new(cluster, &placement, &hosting, costs));
    let mut driver = setup.options.driver();
    if let Some(claims) = experiment.replay.as_deref().filter(|_| program.claims()) {
        driver = driver.replaying(&program, claims).map_err(input)?;
    }
    let simulated = timed(
        || format!("{}: simulation", configuration.label()),
        || simulate(&program, &platform, driver, &setup.options),
    );
    let mut prediction = simulated.map_err(|error| failure(error, experiment))?;
    let step_time_s = prediction.timeline.step_time_s();
    let of = (&program, &platform);
    let periodic = periodic(configuration, experiment, of, setup, &mut prediction.timeline)
        .map_err(|error| failure(error, experiment))?;
    let shuffle_s = prediction.timeline.periodic_time_s(Periodic::Shuffle);
    let bound = bound(&program, &platform, &setup.options, &prediction);
    let memory = fullest_device(&program, cluster, &placement, optimizer_elements(experiment)).map_err(input)?;
    Ok(Predicted {
        step_time_s,
        images_per_s: program.images_per_s(step_time_s, shuffle_s),
        shuffle_s,
        periodic,
        exposed_comm_s: bound.exposed_s,
        exposed_input_s: bound.input_s,
        bound,
        memory,
        program,
        placement,
        hosting,
        prediction,
    })
}

/// Reports a simulation's error at the line of the experiment that it is about.
pub(crate) fn failure(error: SimError, experiment: &Experiment) -> Failure {
    match error {
        SimError::Input(error) => Failure::Input(experiment.locate(error)),
        other => Failure::Run(other.to_string()),
    }
}

/// The elements that the optimizer keeps for each parameter; learners have none of their own.
pub(crate) fn optimizer_elements(experiment: &Experiment) -> u64 {
    if experiment.strategy.trains_apart() { 0 } else { experiment.optimizer.kept_elements() }
}
