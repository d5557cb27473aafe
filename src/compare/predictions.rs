//! Predicts every configuration of a comparison before anything is trained, and writes the predictions to a file.

use std::path::{Path, PathBuf};

use lockstep_data::Dataset;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_measure::calibrate::{Kept, MeasuredMessages};
use lockstep_measure::host::Cores;
use lockstep_measure::quiet::Quiet;
use lockstep_models::profile::Profile;
use lockstep_predict::{Setup, rows as predict};
use lockstep_report::failure::Failure;
use lockstep_report::output::{make_place, write_atomically};
use lockstep_report::{PredictedRow, Report};
use lockstep_topology::InputError;

use super::ground::{self, Ground};
use super::{Asked, Compared};

/// Calibrations until the machine keeps the speed that it had meanwhile.
const CALIBRATIONS: usize = 3;

/// The file of an experiment's predictions.
pub(super) fn predictions_path(experiment: &Experiment) -> PathBuf {
    Path::new("out").join(format!("{}-predicted.json", experiment.name))
}

/// The predictions, in the process that prints.
#[derive(Default)]
pub(super) struct Predictions {
    pub(super) rows: Vec<PredictedRow>,
    pub(super) notes: Vec<String>,
    pub(super) compared: Vec<Compared>,
    /// The reference pulse of an earlier measurement on which predictions rest, if there is one.
    pub(super) pulse_s: Option<f64>,
    /// The profile that they rest on.
    pub(super) profile: Option<Profile>,
}

/// What predictions begin with.
pub(super) struct Basis<'a> {
    /// The machine's cores, on which calibrations wait for quiet.
    pub(super) cores: Cores,
    /// What an earlier calibration has measured; `None` where this machine is not calibrated.
    pub(super) kept: Option<Kept>,
    /// The messages between processes, as just measured.
    pub(super) mpi: Option<MeasuredMessages>,
    /// The samples to train on.
    pub(super) train: &'a Dataset,
    /// How the experiment differs from the machine, for display.
    pub(super) unlike: Vec<String>,
}

/// Measures what predictions need, again if the machine changes its speed meanwhile, predicts, and saves the
/// predictions.
///
/// # Errors
/// Bad input, a calibration that fails.
pub(super) fn predict_first(
    experiment: &Experiment,
    configurations: &[Configuration],
    asked: &Asked<'_>,
    basis: Basis<'_>,
    quiet: &mut Quiet,
    note: &mut impl FnMut(&str),
) -> Result<Predictions, Failure> {
    let Basis { cores, kept, mpi, train, unlike } = basis;
    let mut known = match ground::of_first_batch(experiment, kept.as_ref()) {
        Some(first) => Some(first_predictions(&first, train, asked, (kept, mpi.clone()), quiet, note)?),
        None => kept,
    };
    let mut calibrations = 0;
    let found = loop {
        calibrations += 1;
        let basis = (known, mpi.clone());
        let found = ground::ground((experiment, configurations, train), asked, basis, quiet, note)?;
        let pulse_s = found.site.profile.as_ref().and_then(|profile| profile.pulse_s).filter(|_| found.measured);
        if calibrations == CALIBRATIONS
            || pulse_s.is_none_or(|pulse_s| Quiet::new(cores, asked.patience).keeps(pulse_s))
        {
            break found;
        }
        note("this machine runs at another speed now than while it was measured: measured again");
        (known, *quiet) = (Some(Kept { profile: None, why: None }), Quiet::new(cores, asked.patience));
    };
    let predicted = predict_all(experiment, &found, unlike)?;
    let path = predictions_path(experiment);
    save(&path, &Report::new(predicted.rows.clone(), predicted.notes.clone()))?;
    note(&format!("{} predictions written to {}", predicted.rows.len(), path.display()));
    Ok(predicted)
}

/// Measures what the first batch needs and shows its predictions, so that a first figure is there early; returns what is
/// known by then.
fn first_predictions(
    experiment: &Experiment,
    train: &Dataset,
    asked: &Asked<'_>,
    basis: (Option<Kept>, Option<MeasuredMessages>),
    quiet: &mut Quiet,
    note: &mut impl FnMut(&str),
) -> Result<Kept, Failure> {
    let configurations = experiment.configurations()?;
    let found = ground::ground((experiment, &configurations, train), asked, basis, quiet, note)?;
    for row in predict_all(experiment, &found, Vec::new())?.rows {
        let (setting, step_ms, rate) = (&row.setting, row.step_time_s * 1e3, row.images_per_s);
        let (ranks, batch, algorithm) = (setting.ranks, setting.batch_per_rank, &setting.algorithm);
        note(&format!("predicted: {ranks} ranks x {batch}, {algorithm}: {step_ms:.2} ms per step, {rate:.0} images/s"));
    }
    Ok(Kept { profile: found.site.profile, why: None })
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

/// Writes a report as JSON, creating the folder if needed.
fn save<R: lockstep_report::Row>(path: &Path, report: &Report<R>) -> Result<(), InputError> {
    make_place("out", path)?;
    let text = report.render(lockstep_report::Format::Json);
    write_atomically("out", path, |file| file.write_all(text.as_bytes()))
}
