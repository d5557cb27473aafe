//! Predictions: each configuration of an experiment simulated on a site, a row each.

use lockstep_models::Program;
use lockstep_sim::{Costs, NetworkModel, Options, Platform, Prediction, SimError, simulate};
use lockstep_topology::Cluster;

use crate::anchor::{Scaled, fit};
use crate::experiment::{Configuration, Experiment};
use crate::failure::Failure;
use crate::report::{PredictedRow, scaling_efficiencies};
use crate::site::Site;

/// How predictions are made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    /// How transfers share links.
    pub network: NetworkModel,
    /// Iterations and threads.
    pub options: Options,
}

impl Setup {
    /// The setup for an experiment: its threads per rank, everything else as usual.
    pub fn of(experiment: &Experiment, network: NetworkModel) -> Setup {
        let options = Options { threads_per_rank: experiment.threads_per_rank, ..Options::default() };
        Setup { network, options }
    }

    /// The network's name as `--network` takes it.
    pub fn network_name(&self) -> &'static str {
        match self.network {
            NetworkModel::AlphaBeta => "alpha-beta",
            NetworkModel::MaxMin => "max-min",
        }
    }
}

/// What is predicted of one configuration.
pub struct Predicted {
    /// What was simulated.
    pub program: Program,
    /// Timeline, traffic and utilisation.
    pub prediction: Prediction,
    /// Median seconds per step.
    pub step_time_s: f64,
    /// Samples per second over all ranks.
    pub images_per_s: f64,
    /// Seconds per step in which computation stands still.
    pub exposed_comm_s: f64,
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
    let program = configuration.program().map_err(input)?;
    let platform = Platform { cluster, placement: &placement, hosting: &hosting, costs, network: setup.network };
    let driver = setup.options.driver();
    let prediction = simulate(&program, &platform, driver, &setup.options).map_err(|error| match error {
        SimError::Input(error) => input(error),
        other => Failure::Run(other.to_string()),
    })?;
    let step_time_s = prediction.timeline.step_time_s();
    Ok(Predicted {
        step_time_s,
        images_per_s: program.global_batch() as f64 / step_time_s,
        exposed_comm_s: prediction.timeline.exposed_comm_s(&program),
        program,
        prediction,
    })
}

/// The rows of an experiment, and the notes below them; `each` sees every prediction with its configuration.
///
/// # Errors
/// As [`predict`]; an anchor that cannot be reached.
pub fn rows(
    experiment: &Experiment,
    site: &Site,
    setup: &Setup,
    mut each: impl FnMut(&Configuration, &Predicted),
) -> Result<(Vec<PredictedRow>, Vec<String>), Failure> {
    let mut configurations = experiment.configurations()?;
    let mut notes = vec![site.basis.clone()];
    let factor = match &experiment.anchor {
        None => 1.0,
        Some(anchor) => {
            let factor = fit(anchor, experiment, site, setup)?;
            notes.push(format!("computation is scaled by {factor:.4} to the anchor"));
            factor
        }
    };
    let costs = Scaled::new(site.costs.as_ref(), factor);
    let mut rows = Vec::with_capacity(configurations.len());
    for configuration in &mut configurations {
        let predicted = predict(configuration, experiment, &site.cluster, &costs, setup)?;
        let bound = predicted.prediction.bound();
        let published = experiment.published_for(configuration);
        rows.push(PredictedRow {
            setting: configuration.setting(),
            cluster: site.cluster.name().to_owned(),
            network: setup.network_name().to_owned(),
            step_time_s: predicted.step_time_s,
            images_per_s: predicted.images_per_s,
            scaling_efficiency: None,
            exposed_comm_s: predicted.exposed_comm_s,
            bound: bound.map_or_else(|| "waiting".to_owned(), |bound| bound.resource.clone()),
            bound_utilisation: bound.map_or(0.0, |bound| bound.share),
            published_images_per_s: published,
            error_pct: published.map(|figure| (predicted.images_per_s / figure - 1.0) * 100.0),
        });
        for note in &predicted.prediction.notes {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        each(configuration, &predicted);
    }
    if let Some(published) = &experiment.published {
        notes.push(format!("published figures: {}", published.source));
    }
    let keys = configurations.iter().zip(&rows).map(|(c, row)| (c.batch_key, c.job.workers, row.images_per_s));
    let efficiencies = scaling_efficiencies(&keys.collect::<Vec<_>>());
    for (row, efficiency) in rows.iter_mut().zip(efficiencies) {
        row.scaling_efficiency = efficiency;
    }
    Ok((rows, notes))
}
