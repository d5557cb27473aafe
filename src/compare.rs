//! Compares predictions with measurements: predicts every configuration of an experiment, then measures it.
//!
//! Predictions come first and are written to a file before anything is trained. Measurements cycle through the
//! configurations several times, so that a disturbance of the machine affects all of them, and a configuration's figure
//! is the median over all its steps. Equal seeds must give equal weights each time, unless timing decides which learner
//! trains on which batch.

mod explain;
mod ground;
mod predictions;
mod rounds;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::Path;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_experiment::alike::{self, Here};
use lockstep_experiment::{Configuration, Experiment};
use lockstep_measure::calibrate::{Kept, disturbed};
use lockstep_measure::host::Cores;
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::{Operation, STALL_LIMIT};
use lockstep_measure::quiet::Quiet;
use lockstep_measure::rows::lay_out;
use lockstep_measure::run_failure::run_failure;
use lockstep_models::{Periodic, Timeline, median};
use lockstep_predict::PROFILE_PATH;
use lockstep_report::failure::Failure;
use lockstep_report::output::make_place;
use lockstep_report::scaling_efficiencies;
use lockstep_sim::Prediction;

use predictions::{Basis, Predictions, predict_first, predictions_path};
use rounds::{Rounds, run_of, span};

pub use row::CompareRow;

/// Rounds of training that are counted.
pub const ROUNDS: u32 = 5;

/// A configuration with both timelines.
pub struct Compared {
    /// What was compared.
    pub configuration: Configuration,
    /// The program of both sides.
    pub program: lockstep_models::Program,
    /// The programs of the work between steps.
    pub periodic: Vec<(Periodic, lockstep_models::Program)>,
    /// The simulator's side.
    pub prediction: Prediction,
    /// The executor's side, a timeline per round.
    pub measured: Vec<Timeline>,
}

impl Compared {
    /// Median seconds per step and worker of each kind of task over the steps of all rounds, as in the columns.
    fn measured_by_kind(&self) -> BTreeMap<&'static str, f64> {
        medians(self.measured.iter().flat_map(|timeline| timeline.kinds_by_step(&self.program)))
    }

    /// The same for the prediction.
    fn predicted_by_kind(&self) -> BTreeMap<&'static str, f64> {
        medians(self.prediction.timeline.kinds_by_step(&self.program).into_iter())
    }

    /// Median seconds per step and worker of each task that computes, measured.
    fn measured_by_task(&self) -> BTreeMap<&str, f64> {
        medians(self.measured.iter().flat_map(|timeline| timeline.tasks_by_step(&self.program)))
    }

    /// The same for the prediction.
    fn predicted_by_task(&self) -> BTreeMap<&str, f64> {
        medians(self.prediction.timeline.tasks_by_step(&self.program).into_iter())
    }
}

/// For each name the median over steps; in a step without tasks of the name its time is zero.
fn medians<'a>(steps: impl Iterator<Item = BTreeMap<&'a str, f64>>) -> BTreeMap<&'a str, f64> {
    let steps: Vec<_> = steps.collect();
    let names: BTreeSet<&str> = steps.iter().flat_map(|step| step.keys().copied()).collect();
    let of = |name: &str| median(steps.iter().map(|step| step.get(name).copied().unwrap_or(0.0)).collect());
    names.into_iter().map(|name| (name, of(name))).collect()
}

/// The result of a comparison.
pub struct Comparison {
    /// A row per configuration.
    pub rows: Vec<CompareRow>,
    /// The sources of the figures.
    pub notes: Vec<String>,
    /// Both timelines of each configuration.
    pub compared: Vec<Compared>,
}

impl Comparison {
    /// Which kinds of tasks and which tasks make most of the difference, line by line; `again` is the command that
    /// measures the profile again.
    pub fn explain(&self, again: &str) -> String {
        explain::text(&self.compared, again)
    }
}

/// Mean and worst absolute error in percent.
pub fn errors(rows: &[CompareRow]) -> (f64, f64) {
    let all: Vec<f64> = rows.iter().map(|row| row.error_pct.abs()).collect();
    (all.iter().sum::<f64>() / all.len().max(1) as f64, all.into_iter().fold(0.0, f64::max))
}

/// Options of a comparison beside its experiment.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The profile for predictions; without one this machine is measured, except for what is already known.
    pub profile: Option<&'a Path>,
    /// The command, recorded with measurements.
    pub command: &'a str,
    /// Whether an asynchronous device reports when each task ran.
    pub timed: bool,
    /// Total time that a calibration, and then the training, waits for a quiet machine and repeats what was disturbed.
    pub patience: Duration,
}

/// Measures what predictions need, predicts, saves the predictions, then trains. Runs that were slowed down by a
/// disturbance of the machine are repeated.
///
/// # Errors
/// Bad input, settings that only one side would follow, a run that fails, or two runs of one seed with different
/// weights.
pub fn compare(
    experiment: &Experiment,
    asked: &Asked<'_>,
    mut note: impl FnMut(&str),
) -> Result<Option<Comparison>, Failure> {
    experiment.refuse_tuning("a comparison")?;
    let operation = &Operation { timed: asked.timed, ..Operation::default() };
    let mut launch = Launch::new(experiment, STALL_LIMIT)?;
    let cores = if matches!(launch, Launch::Threads) { Cores::find() } else { Cores::of_host() };
    let experiment = &launch.experiment(experiment);
    let mut hosts = launch.hosts();
    hosts.sort_unstable();
    hosts.dedup();
    let here = Here { hosts: hosts.len() as u32, cores: cores.count() as u32 };
    // The kind of samples decides how both sides treat them.
    let model = experiment.load_model(&experiment.model)?;
    let loaded = launch.all(Dataset::load_augmented(&experiment.data, &model, experiment.augmentation))?;
    let (train, held_out) = Dataset::decoded_by(loaded, experiment.decode_threads);
    let loaded = Some(Dataset::sizes((&train, &held_out)));
    let experiment = &Experiment { loaded, cores: Some(launch.cores()), ..experiment.clone() };
    let unlike = launch.all(alike::check(experiment, here))?;
    let mut configurations = experiment.configurations()?;
    launch.all(launch.check(experiment, &configurations))?;
    let calibrates = launch.prints() && ground::calibrates(experiment, asked);
    let place = if launch.prints() { make_place("out", &predictions_path(experiment)) } else { Ok(()) };
    let profile = Path::new(PROFILE_PATH);
    launch.all(place.and_then(|()| if calibrates { make_place("profile", profile) } else { Ok(()) }))?;
    let mut quiet = Quiet::new(cores, asked.patience);
    let kept = calibrates.then(|| Kept::open(profile, &mut quiet));
    let mpi = ground::messages(experiment, kept.as_ref(), &mut launch, &mut note)?;
    let predicted = launch.first(|| {
        let basis = Basis { cores, kept, mpi, train: &train, unlike };
        predict_first(experiment, &configurations, asked, basis, &mut quiet, &mut note)
    })?;
    let Predictions { rows: predicted, mut notes, mut compared, pulse_s, profile } = predicted.unwrap_or_default();
    let mut quiet = match pulse_s {
        Some(pulse_s) => quiet.since(pulse_s),
        None => quiet.renewed(),
    };

    lay_out(experiment, &mut configurations)?;
    let runs: Vec<Experiment> = (0..configurations.len())
        .map(|index| run_of(experiment, predicted.get(index), |own| launch.maximum(own)))
        .collect();
    let rounds = Rounds { configurations: &configurations, runs: &runs, train: &train, operation, hosts: here.hosts };
    let mut trained = rounds.train(&mut launch, &mut quiet, &mut note)?;
    if !launch.prints() {
        return Ok(None);
    }
    compared.iter_mut().zip(take(&mut trained.timelines)).for_each(|(one, measured)| one.measured = measured);
    notes.extend(notes_on_quiet(&quiet, trained.farthest));
    let mut rows = Vec::new();
    for (index, (of, predicted)) in compared.iter().zip(&predicted).enumerate() {
        // The median of the steps is undisturbed if most rounds are.
        let training = (2 * trained.disturbed[index] > ROUNDS).then(|| "training".to_owned());
        let figures = profile.iter().flat_map(|profile| disturbed(&of.program, profile));
        let disturbed: Vec<String> = training.into_iter().chain(figures).collect();
        let first = &mut trained.first[index];
        let evaluation = first.run.evaluate(&held_out).map_err(run_failure)?;
        rows.push(CompareRow::of(experiment, of, predicted, (first, &evaluation), &disturbed));
    }
    let keys = configurations.iter().zip(&rows).map(|(c, row)| (c.batch_key, c.job.workers, row.images_per_s));
    let efficiencies = scaling_efficiencies(&keys.collect::<Vec<_>>());
    rows.iter_mut().zip(efficiencies).for_each(|(row, efficiency)| row.scaling_efficiency = efficiency);
    notes.extend(notes_on_errors(&rows, trained.repeated, held_out.len(), experiment.seed));
    Ok(Some(Comparison { rows, notes, compared }))
}

/// The errors of all rows, and what was measured for them.
fn notes_on_errors(rows: &[CompareRow], repeated: usize, held_out: usize, seed: u64) -> [String; 2] {
    let (mean, worst) = errors(rows);
    [
        format!("mean absolute error {mean:.1} %, worst {worst:.1} %, over {} configurations", rows.len()),
        format!(
            "measured: median of {} steps, {ROUNDS} runs of {}, {repeated} repeated after a disturbance; accuracy on {held_out} \
             held-out samples after them; seed {seed}",
            span(rows.iter().map(|row| ROUNDS * row.steps)),
            span(rows.iter().map(|row| row.steps)),
        ),
    ]
}

/// How the machine's speed while training differed from that while calibrating, where it did.
fn notes_on_quiet(quiet: &Quiet, farthest: f64) -> Vec<String> {
    let drift = quiet.drift().map(|drift| {
        let (change, how) = (100.0 * (drift - 1.0).abs(), if drift < 1.0 { "less" } else { "more" });
        format!("a reference benchmark took {change:.0} % {how} time while training than while calibrating")
    });
    let disturbed = Quiet::disturbed(farthest).then(|| {
        format!(
            "training was disturbed: a reference benchmark beside it took up to {farthest:.1} times as long as while calibrating; \
             quiet this machine and compare again"
        )
    });
    drift.into_iter().chain(disturbed).collect()
}
