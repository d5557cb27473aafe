//! Compares predictions with measurements: predicts every configuration of an experiment, then measures it.
//!
//! Predictions come first and are written to a file before anything is trained. Measurements cycle through the
//! configurations several times, so that a disturbance of the machine affects all of them, and a configuration's figure
//! is the median over all its steps. Equal seeds must give equal weights each time, unless timing decides which learner
//! trains on which batch.

mod explain;
mod ground;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_exec::data::Dataset;
use lockstep_measure::calibrate::{Kept, disturbed};
use lockstep_measure::host::Cores;
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::{Operation, STALL_LIMIT};
use lockstep_measure::quiet::Quiet;
use lockstep_measure::rows::lay_out;
use lockstep_measure::run_failure::run_failure;
use lockstep_measure::training::{MeasuredTraining, Training};
use lockstep_models::profile::Profile;
use lockstep_models::{Assignment, INPUT_WAIT, Periodic, Timeline, WAIT, median, quantile};
use lockstep_predict::{PROFILE_PATH, Setup, rows as predict};
use lockstep_report::failure::Failure;
use lockstep_report::output::{make_place, write_atomically};
use lockstep_report::{PredictedRow, Report, scaling_efficiencies};
use lockstep_sim::Prediction;
use lockstep_topology::InputError;

use ground::Ground;
use lockstep_experiment::alike::{self, Here};
use lockstep_experiment::{Configuration, Experiment};

pub use row::CompareRow;

/// Rounds of training that are counted.
pub const ROUNDS: u32 = 5;
/// Attempts at a run of a configuration in a round until one is undisturbed.
const TRIALS: usize = 3;
/// Calibrations until the machine keeps the speed that it had meanwhile.
const CALIBRATIONS: usize = 3;

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

/// The file of an experiment's predictions.
pub fn predictions_path(experiment: &Experiment) -> PathBuf {
    Path::new("out").join(format!("{}-predicted.json", experiment.name))
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

/// The predictions, in the process that prints.
#[derive(Default)]
struct Predictions {
    rows: Vec<PredictedRow>,
    notes: Vec<String>,
    compared: Vec<Compared>,
    /// The reference pulse of an earlier measurement on which predictions rest, if there is one.
    pulse_s: Option<f64>,
    /// The profile that they rest on.
    profile: Option<Profile>,
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
        let mut known = kept;
        let mut calibrations = 0;
        let found = loop {
            calibrations += 1;
            let basis = (known, mpi.clone());
            let found = ground::ground((experiment, &configurations, &train), asked, basis, &mut quiet, &mut note)?;
            let pulse_s = found.site.profile.as_ref().and_then(|profile| profile.pulse_s).filter(|_| found.measured);
            if calibrations == CALIBRATIONS
                || pulse_s.is_none_or(|pulse_s| Quiet::new(cores, asked.patience).keeps(pulse_s))
            {
                break found;
            }
            note("this machine runs at another speed now than while it was measured: measured again");
            (known, quiet) = (Some(Kept { profile: None, why: None }), Quiet::new(cores, asked.patience));
        };
        let predicted = predict_all(experiment, &found, unlike)?;
        let path = predictions_path(experiment);
        save(&path, &Report::new(predicted.rows.clone(), predicted.notes.clone()))?;
        note(&format!("{} predictions written to {}", predicted.rows.len(), path.display()));
        Ok(predicted)
    })?;
    let Predictions { rows: predicted, mut notes, mut compared, pulse_s, profile } = predicted.unwrap_or_default();
    let mut quiet = match pulse_s {
        Some(pulse_s) => quiet.since(pulse_s),
        None => quiet.renewed(),
    };

    lay_out(experiment, &mut configurations)?;
    let timed: Vec<bool> = configurations.iter().map(first_come).collect::<Result<_, _>>()?;
    let mut last: Vec<MeasuredTraining> = Vec::new();
    let (mut trials, mut farthest) = (0, 1.0f64);
    let mut disturbed_rounds = vec![0; configurations.len()];
    for round in 1..=ROUNDS {
        if launch.prints() {
            note(&format!("training, round {round} of {ROUNDS}"));
        }
        for (index, configuration) in configurations.iter().enumerate() {
            let mut train_once = |launch: &mut Launch| {
                trials += 1;
                Training { experiment, configuration, seed: experiment.seed, data: &train, held_out: None, operation }
                    .run(launch)
            };
            // The pace of one host says nothing about the others.
            let (measured, off) = match here.hosts {
                1 => quiet.measure_together(TRIALS, &mut launch, train_once)?,
                _ => (train_once(&mut launch)?, 1.0),
            };
            farthest = farthest.max(off);
            disturbed_rounds[index] += u32::from(Quiet::disturbed(off));
            let changed = |of: &MeasuredTraining| round > 1 && last[index].run.weights_sha256 != of.run.weights_sha256;
            // The process that has the weights tells the others.
            launch.all(if !timed[index] && measured.as_ref().is_some_and(changed) {
                let (label, seed) = (configuration.label(), experiment.seed);
                Err(Failure::Run(format!("{label}: two runs of seed {seed} ended with different weights")))
            } else {
                Ok(())
            })?;
            let Some(mut measured) = measured else { continue };
            compared[index].measured.push(take(&mut measured.run.timeline));
            if round == 1 {
                last.push(measured);
            }
        }
    }
    if !launch.prints() {
        return Ok(None);
    }
    if let Some(drift) = quiet.drift() {
        let (change, how) = (100.0 * (drift - 1.0).abs(), if drift < 1.0 { "less" } else { "more" });
        notes
            .push(format!("a reference benchmark took {change:.0} % {how} time while training than while calibrating"));
    }
    let repeated = trials - ROUNDS as usize * configurations.len();
    if Quiet::disturbed(farthest) {
        notes.push(format!(
            "training was disturbed: a reference benchmark beside it took up to {farthest:.1} times as long as while calibrating; \
             quiet this machine and compare again"
        ));
    }

    let mut rows = Vec::new();
    for (((of, predicted), measured), disturbed_rounds) in
        compared.iter().zip(&predicted).zip(&mut last).zip(disturbed_rounds)
    {
        // The median of the steps is undisturbed if most rounds are.
        let training = (2 * disturbed_rounds > ROUNDS).then(|| "training".to_owned());
        let figures = profile.iter().flat_map(|profile| disturbed(&of.program, profile));
        let disturbed: Vec<String> = training.into_iter().chain(figures).collect();
        let mut times: Vec<f64> = of.measured.iter().flat_map(Timeline::step_times_s).collect();
        times.sort_by(f64::total_cmp);
        let step_time_s = quantile(&times, 0.5);
        let shuffles = of.measured.iter().flat_map(|timeline| timeline.periodic_times_s(Periodic::Shuffle));
        let shuffles: Vec<f64> = shuffles.collect();
        let shuffle_s = (!shuffles.is_empty()).then(|| median(shuffles));
        let measured_by_kind = of.measured_by_kind();
        let exposed = measured_by_kind.get(WAIT).copied().unwrap_or(0.0);
        let evaluation = measured.run.evaluate(&held_out).map_err(run_failure)?;
        rows.push(CompareRow {
            setting: of.configuration.setting(),
            data: experiment.data.clone(),
            transport: experiment.transport.to_string(),
            seed: experiment.seed,
            steps: measured.run.losses.len() as u32,
            predicted_step_time_s: predicted.step_time_s,
            step_time_s,
            error_pct: (predicted.step_time_s / step_time_s - 1.0) * 100.0,
            step_time_p10_s: quantile(&times, 0.1),
            step_time_p90_s: quantile(&times, 0.9),
            predicted_shuffle_s: predicted.shuffle_s,
            shuffle_s,
            shuffle_error_pct: predicted.shuffle_s.zip(shuffle_s).map(|(p, m)| (p / m - 1.0) * 100.0),
            predicted_images_per_s: predicted.images_per_s,
            images_per_s: of.program.images_per_s(step_time_s, shuffle_s),
            predicted_scaling_efficiency: predicted.scaling_efficiency,
            scaling_efficiency: None,
            predicted_exposed_comm_s: predicted.exposed_comm_s,
            exposed_comm_s: exposed,
            predicted_exposed_input_s: predicted.exposed_input_s,
            exposed_input_s: measured_by_kind.get(INPUT_WAIT).copied(),
            disturbed: (!disturbed.is_empty()).then(|| disturbed.join("; ")),
            bound: predicted.bound.clone(),
            accuracy: evaluation.accuracy(),
            weights_sha256: measured.run.weights_sha256.clone(),
        });
    }
    let keys = configurations.iter().zip(&rows).map(|(c, row)| (c.batch_key, c.job.workers, row.images_per_s));
    let efficiencies = scaling_efficiencies(&keys.collect::<Vec<_>>());
    rows.iter_mut().zip(efficiencies).for_each(|(row, efficiency)| row.scaling_efficiency = efficiency);
    let (mean, worst) = errors(&rows);
    notes.push(format!("mean absolute error {mean:.1} %, worst {worst:.1} %, over {} configurations", rows.len()));
    notes.push(format!(
        "measured: median of {} steps, {ROUNDS} runs of {}, {repeated} repeated after a disturbance; accuracy on {} held-out samples after them; seed {}",
        ROUNDS * experiment_steps(&rows),
        experiment_steps(&rows),
        held_out.len(),
        experiment.seed
    ));
    Ok(Some(Comparison { rows, notes, compared }))
}

/// The predictions of all configurations, for undisturbed runs as they are measured.
fn predict_all(experiment: &Experiment, ground: &Ground, unlike: Vec<String>) -> Result<Predictions, Failure> {
    let Ground { site, notes: of_ground, .. } = ground;
    site.check_device(experiment)?;
    let setup = Setup::of(experiment, site, Default::default())?;
    let mut compared: Vec<Compared> = Vec::new();
    let undisturbed = Experiment { scenarios: Vec::new(), ..experiment.clone() };
    let (rows, mut notes) = predict::rows(&undisturbed, site, &setup, |configuration, predicted| {
        compared.push(Compared {
            configuration: configuration.clone(),
            program: predicted.program.clone(),
            periodic: predicted.periodic.clone(),
            prediction: predicted.prediction.clone(),
            measured: Vec::new(),
        });
    })?;
    notes.extend(of_ground.iter().cloned().chain(unlike));
    if experiment.prepared().is_some() && setup.conditions.input.is_none() {
        notes.push("reading and preparing samples takes no time here: no profile has measured it".to_owned());
    }
    for job in compared.iter().map(|one| &one.configuration.job).filter(|job| job.workers > 1) {
        for note in job.algorithm.executed(job.workers) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let pulse_s = site.profile.as_ref().and_then(|profile| profile.pulse_s).filter(|_| !ground.measured);
    Ok(Predictions { rows, notes, compared, pulse_s, profile: site.profile.clone() })
}

/// Whether timing decides which learner trains on which batch, so that equal seeds give other weights.
fn first_come(configuration: &Configuration) -> Result<bool, InputError> {
    let averaging = configuration.program()?.averaging;
    Ok(averaging.is_some_and(|averaging| averaging.assignment == Assignment::FirstCome))
}

fn experiment_steps(rows: &[CompareRow]) -> u32 {
    rows.first().map_or(0, |row| row.steps)
}

/// Writes a report as JSON, creating the folder if needed.
fn save<R: lockstep_report::Row>(path: &Path, report: &Report<R>) -> Result<(), InputError> {
    make_place("out", path)?;
    let text = report.render(lockstep_report::Format::Json);
    write_atomically("out", path, |file| file.write_all(text.as_bytes()))
}
