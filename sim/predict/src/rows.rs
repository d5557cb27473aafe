//! Predicts the rows of an experiment: simulates each of its configurations on a site.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lockstep_models::Job;
use lockstep_models::profile::Profile;
use lockstep_sim::Costs;
use lockstep_topology::{Bytes, Cluster, ErrorPlace};

use crate::anchor::{Scaled, fit};
use crate::cost::TrainingCost;
use crate::explain::explain;
use crate::largest_batch::{LargestBatch, largest_batch};
use crate::predicted::{Predicted, failure, predict};
use crate::scenario::{Block, blocks};
use crate::setup::Setup;
use crate::shipped;
use crate::site::Site;
use crate::trials::{Spread, spread};
use crate::tune::tune;
use crate::typical_error::{error_notes, not_known, typical_error};
use lockstep_experiment::{Configuration, Experiment};
use lockstep_report::failure::Failure;
use lockstep_report::log::timed;
use lockstep_report::notes::Notes;
use lockstep_report::progress::Estimate;
use lockstep_report::{PredictedRow, scaling_efficiencies};

/// What is known so far, shared by all callers.
#[derive(Debug, Default)]
pub struct Known(Mutex<FinishedRows>);

/// Finished rows, the notes below them, and the reference that rows are compared with.
#[derive(Debug, Default)]
struct FinishedRows {
    rows: Vec<PredictedRow>,
    notes: Notes,
    keys: Vec<(u64, u32, f64)>,
    configurations: usize,
    /// How many sets of rows, each compared within itself, there have been.
    sets: u64,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, FinishedRows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `use_them` with the finished rows and their comparisons, the notes, and the final number of rows. Nothing
    /// is added while it runs.
    pub fn with<T>(&self, use_them: impl FnOnce(Vec<PredictedRow>, Vec<String>, usize) -> T) -> T {
        let found = self.lock();
        let mut rows = found.rows.clone();
        for (row, efficiency) in rows.iter_mut().zip(scaling_efficiencies(&found.keys)) {
            row.scaling_efficiency = efficiency;
        }
        let mut notes = found.notes.lines(rows.len());
        notes.extend(error_notes(&rows));
        use_them(rows, notes, found.configurations)
    }

    /// Adds a note about all rows.
    pub fn note(&self, note: &str) {
        self.lock().notes.add(note);
    }
}

/// The rows of an experiment, and the notes below them; `each` gets every prediction with its configuration.
///
/// # Errors
/// As [`predict`]; an anchor that cannot be reached.
pub fn rows(
    experiment: &Experiment,
    site: &Site,
    setup: &Setup,
    each: impl FnMut(&Configuration, &Predicted),
) -> Result<(Vec<PredictedRow>, Vec<String>), Failure> {
    let known = Known::default();
    find(experiment, experiment.configurations()?, site, setup, &known, &Estimate::silent(), each)?;
    Ok(known.with(|rows, notes, _| (rows, notes)))
}

/// Which algorithm the rows have where none is named and the cluster's GPUs have a library, of gradients and of
/// activations.
fn default_notes(experiment: &Experiment, configurations: &[Configuration]) -> Vec<String> {
    let jobs = || configurations.iter().map(|configuration| &configuration.job);
    let of_axes = ErrorPlace::Flag("axis_algorithms");
    let of_activations = jobs().find_map(Job::default_of_activations).map(|library| {
        format!(
            "activations along tensor are exchanged by {library}, the library that frameworks use between these GPUs, or direct where it \
             lacks a collective ({of_axes} names another)"
        )
    });
    of_gradients(experiment, jobs().find(|job| job.workers > 1)).into_iter().chain(of_activations).collect()
}

fn of_gradients(experiment: &Experiment, job: Option<&Job>) -> Option<String> {
    let (library, job) = (experiment.library.as_ref().filter(|_| experiment.algorithms.is_empty())?, job?);
    let flag = ErrorPlace::Flag("algorithm");
    Some(if job.algorithm == *library {
        lockstep_experiment::default_note(library, &flag)
    } else {
        format!(
            "no algorithm is named: {}, since {library}, the library that frameworks use between these GPUs, serves neither \
             several learners on a GPU, nor a chunk or several exchanges at once that are stated",
            job.algorithm
        )
    })
}

/// As [`rows`], for `configurations` of the experiment, row by row into `known`, behind those that it has, with an estimate
/// of the time left.
///
/// # Errors
/// As there.
pub fn find(
    experiment: &Experiment,
    mut configurations: Vec<Configuration>,
    site: &Site,
    setup: &Setup,
    known: &Known,
    estimate: &Estimate,
    mut each: impl FnMut(&Configuration, &Predicted),
) -> Result<(), Failure> {
    let blocks = blocks(experiment, &configurations, site, setup)?;
    let sets = {
        let mut known = known.lock();
        known.configurations += blocks.len() * configurations.len();
        known.sets += blocks.len() as u64;
        known.sets - blocks.len() as u64
    };
    note_sources(experiment, &configurations, site, known);
    let factor = scale(experiment, site, setup, known)?;
    let most = configurations.iter().map(|configuration| configuration.job.workers).max().unwrap_or(1);
    setup.conditions.noise.notes(most).iter().for_each(|note| known.note(note));
    let price = experiment.price_of(0, 1)?;
    price.iter().for_each(|price| known.note(&format!("cost: at {price} for an hour of each device that has ranks")));
    let costs = Scaled::new(site.costs.as_ref(), factor);
    let all = (blocks.len() * configurations.len()) as f64;
    let search = Search { experiment, costs: &costs, price, known, estimate, all };
    let each_block = configurations.len();
    let mut undisturbed: Vec<(f64, u64)> = Vec::with_capacity(each_block);
    let untuned = experiment.tunes.then(|| configurations.clone());
    for (number, block) in blocks.iter().enumerate() {
        for (index, configuration) in configurations.iter_mut().enumerate() {
            if let Some(untuned) = &untuned {
                configuration.clone_from(&untuned[index]);
            }
            configuration.scenario.clone_from(&block.scenario);
            let label = configuration.label();
            let (mut row, predicted) = search.row(configuration, block, (number * each_block + index, &label))?;
            let time_s = row.step_time_mean_s.unwrap_or(row.step_time_s);
            let samples = configuration.job.global_batch();
            if number == 0 {
                undisturbed.push((time_s, samples));
            }
            let (before_s, samples_before) = undisturbed[index];
            // With other numbers of learners a step has other numbers of samples.
            let per_sample = samples_before as f64 / samples as f64;
            row.scenario_factor = block.scenario.as_ref().map(|_| time_s / before_s * per_sample);
            let mut found = known.lock();
            let row_number = found.rows.len();
            let unknown = not_known(&predicted);
            let by_data_sheet = site.profile.is_none() && experiment.anchor.is_none();
            let timed = by_data_sheet.then(|| shipped::note(&site.cluster, &predicted.program, &costs)).flatten();
            let timed = timed.as_deref();
            for note in predicted.prediction.notes.iter().map(String::as_str).chain(unknown).chain(timed) {
                found.notes.add_of_row(note, row_number, &label);
            }
            // Only rows of one scenario are compared with each other.
            let key = configuration.batch_key | (sets + number as u64) << 48;
            found.keys.push((key, configuration.job.workers, row.images_per_s));
            found.rows.push(row);
            drop(found);
            each(configuration, &predicted);
        }
    }
    estimate.end();
    if let Some(published) = &experiment.published {
        known.note(&format!("published figures: {}", published.source));
    }
    Ok(())
}

/// Notes where the figures behind all rows come from.
fn note_sources(experiment: &Experiment, configurations: &[Configuration], site: &Site, known: &Known) {
    let first = configurations.first();
    known.note(&site.basis);
    site.profile.iter().filter_map(Profile::disturbed_note).for_each(|note| known.note(&note));
    site.cluster.notes().for_each(|note| known.note(&note));
    first.iter().flat_map(|first| first.job.model.notes()).for_each(|note| known.note(note));
    experiment.input.iter().for_each(|input| known.note(&input.account()));
    default_notes(experiment, configurations).iter().for_each(|note| known.note(note));
    experiment.account_of_names().iter().for_each(|note| known.note(note));
}

/// The factor on computation with which the anchor's prediction is what was measured; 1 without an anchor.
///
/// # Errors
/// An anchor that cannot be reached.
fn scale(experiment: &Experiment, site: &Site, setup: &Setup, known: &Known) -> Result<f64, Failure> {
    let Some(anchor) = &experiment.anchor else { return Ok(1.0) };
    let factor = fit(anchor, experiment, site, setup)?;
    known.note(&format!("computation is scaled by {factor:.4} to the anchor"));
    Ok(factor)
}

/// The predictions of all rows of an experiment.
struct Search<'a> {
    experiment: &'a Experiment,
    costs: &'a dyn Costs,
    /// Of a device for an hour.
    price: Option<f64>,
    known: &'a Known,
    estimate: &'a Estimate,
    /// Rows in all.
    all: f64,
}

impl Search<'_> {
    /// The row of a configuration, tuned if it is to be, in a scenario, and its prediction; `before` rows precede it.
    ///
    /// # Errors
    /// As [`predict`].
    fn row(
        &self,
        configuration: &mut Configuration,
        Block { site, setup, .. }: &Block,
        (before, label): (usize, &str),
    ) -> Result<(PredictedRow, Predicted), Failure> {
        let Search { experiment, costs, .. } = *self;
        let share = |of_this: f64| (before as f64 + of_this) / self.all;
        let mut progress = |of_this: f64| self.estimate.show(share(of_this), label);
        progress(0.0);
        if experiment.tunes {
            let (tuned, how) = tune(configuration, experiment, &site.cluster, costs, setup)?;
            *configuration = tuned;
            self.known.note(&how);
        }
        let predicted = predict(configuration, experiment, &site.cluster, costs, setup)?;
        let of_trials = match setup.trials {
            0 => None,
            trials => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let platform = predicted.platform(&site.cluster, costs, setup);
                let what = || format!("{label}: {trials} simulations with noise");
                let found = timed(what, || spread(cores, &platform, setup, trials, &predicted, &mut progress));
                Some(found.map_err(|error| failure(error, experiment))?)
            }
        };
        let mut row = row(configuration, experiment, site, setup, &predicted, of_trials);
        let cost = TrainingCost::of(experiment, configuration, self.price, &predicted.placement, row.images_per_s);
        row.cost_per_million_samples = cost.map(|cost| cost.per_million_samples);
        row.cost_per_epoch = cost.and_then(|cost| cost.per_epoch);
        if predicted.memory.fits() == Some(false) {
            self.known.note(&out_of_memory(configuration, experiment, &site.cluster, &predicted));
        }
        if setup.explain {
            let answer = timed(
                || format!("{label}: explanation"),
                || explain(configuration, experiment, site, costs, setup, &predicted, &mut progress),
            )?;
            row.error_bar_pct = answer.error_bar.relative_pct;
            row.explanation = Some(answer);
        }
        Ok((row, predicted))
    }
}

fn row(
    configuration: &Configuration,
    experiment: &Experiment,
    site: &Site,
    setup: &Setup,
    predicted: &Predicted,
    spread: Option<Spread>,
) -> PredictedRow {
    let published = experiment.published_for(configuration);
    let step_time_s = spread.map_or(predicted.step_time_s, |spread| spread.quantiles_s[1]);
    let images_per_s = predicted.program.images_per_s(step_time_s, predicted.shuffle_s);
    let quantile = |which: usize| spread.map(|spread| spread.quantiles_s[which]);
    PredictedRow {
        setting: configuration.setting(),
        cluster: site.cluster.whole_name(),
        network: setup.network.name().to_owned(),
        scenario: configuration.scenario.as_deref().map(str::to_owned),
        step_time_s,
        trials: spread.map(|spread| spread.trials),
        step_time_mean_s: spread.map(|spread| spread.mean_s),
        step_time_se_s: spread.and_then(|spread| spread.standard_error_s),
        step_time_p05_s: quantile(0),
        step_time_p50_s: quantile(1),
        step_time_p95_s: quantile(2),
        step_time_p99_s: quantile(3),
        shuffle_s: predicted.shuffle_s,
        straggling_s: spread.and_then(|spread| spread.straggling_s),
        images_per_s,
        tokens_per_s: configuration.job.model.positions().map(|positions| images_per_s * f64::from(positions)),
        typical_error_pct: typical_error(experiment, site, setup, predicted).map(|error| 100.0 * error),
        precision: predicted.program.precision.to_string(),
        exposed_comm_s: predicted.exposed_comm_s,
        exposed_input_s: predicted.exposed_input_s,
        bound: predicted.bound.by.clone(),
        bound_utilisation: predicted.bound.share,
        memory_bytes: predicted.memory.memory.total(),
        fits_memory: predicted.memory.fits(),
        published_images_per_s: published,
        error_pct: published.map(|figure| (images_per_s / figure - 1.0) * 100.0),
        ..PredictedRow::default()
    }
}

/// `lenet, 2 ranks x 512: out of memory: …`, with what would fit.
fn out_of_memory(
    configuration: &Configuration,
    experiment: &Experiment,
    cluster: &Cluster,
    predicted: &Predicted,
) -> String {
    let memory = &predicted.memory;
    let cure = match largest_batch(configuration, experiment, cluster, predicted) {
        Some(LargestBatch { samples: 0, fewest }) if fewest > 1 => {
            format!("not even {fewest} samples per rank fit, the fewest that divide")
        }
        Some(LargestBatch { samples: 0, .. }) | None => "not even one sample per rank fits".to_owned(),
        Some(LargestBatch { samples, .. }) => format!("{samples} samples per rank fit"),
    };
    // Ranks of a device need equally much.
    let each = memory.memory.total() / u64::from(memory.ranks.max(1));
    let cure = match memory.capacity.unwrap_or_default().0 / each.max(1) {
        0 => cure,
        ranks => format!("{cure}, or {ranks} of the {} ranks there", memory.ranks),
    };
    format!(
        "{}: out of memory: {} of {} on {}; {cure}",
        configuration.label(),
        Bytes(memory.memory.total()),
        memory.capacity.unwrap_or_default(),
        memory.device
    )
}
