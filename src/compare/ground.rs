//! Chooses the basis of a comparison's predictions: a cluster's data sheets, a given profile, or this machine, measured
//! as far as it is not known yet.

use std::path::Path;

use lockstep_data::Dataset;
use lockstep_measure::calibrate::{
    Kept, MeasuredMessages, add, add_input, add_moves, check_memory, difference, missing, of_experiment, of_host,
    of_processes, save,
};
use lockstep_measure::host::HostInfo;
use lockstep_measure::launch::Launch;
use lockstep_measure::quiet::Quiet;
use lockstep_models::profile::PROCESS_MESSAGES;
use lockstep_predict::{PROFILE_PATH, Site};
use lockstep_report::failure::Failure;

use super::Asked;
use lockstep_experiment::{Configuration, DeviceChoice, Experiment, TransportKind};

/// The machines for which predictions are made, with notes on their source.
pub(super) struct Ground {
    pub(super) site: Site,
    pub(super) notes: Vec<String>,
    /// Whether this machine was measured now.
    pub(super) measured: bool,
}

/// Whether this machine is measured for an experiment.
pub(super) fn calibrates(experiment: &Experiment, asked: &Asked<'_>) -> bool {
    experiment.on_this_machine() && asked.profile.is_none() && experiment.device == DeviceChoice::Cpu
}

/// Times messages between processes, if the experiment uses them and no valid profile has them. Every process calls it;
/// rank 0's process gets the result.
///
/// # Errors
/// A measurement that fails.
/// The experiment of its first batch alone, where nothing of this machine is known and it has several.
pub(super) fn of_first_batch(experiment: &Experiment, kept: Option<&Kept>) -> Option<Experiment> {
    let batch = experiment.batch.first();
    let unknown = kept.is_some_and(|kept| kept.profile.is_none());
    (unknown && batch != experiment.batch).then(|| Experiment { batch, ..experiment.clone() })
}

pub(super) fn messages(
    experiment: &Experiment,
    kept: Option<&Kept>,
    launch: &mut Launch,
    note: &mut impl FnMut(&str),
) -> Result<Option<MeasuredMessages>, Failure> {
    if experiment.transport != TransportKind::Mpi {
        return Ok(None);
    }
    // Only rank 0's process has looked for a profile.
    let unknown = kept.is_some_and(|kept| {
        kept.profile.as_ref().is_none_or(|profile| {
            profile.mpi.is_none() || profile.disturbed.iter().any(|name| name == PROCESS_MESSAGES)
        })
    });
    if launch.maximum(u32::from(unknown)) == 0 {
        return Ok(None);
    }
    if launch.prints() {
        note("measuring messages between processes");
    }
    of_processes(launch)
}

/// The basis for `experiment`; `kept` is the earlier profile where this machine is measured, and `mpi` the measurement
/// between processes.
///
/// # Errors
/// An unknown cluster, a broken profile, data that cannot be loaded, a measurement that fails.
pub(super) fn ground(
    (experiment, configurations, train): (&Experiment, &[Configuration], &Dataset),
    asked: &Asked<'_>,
    (kept, mpi): (Option<Kept>, Option<MeasuredMessages>),
    quiet: &mut Quiet,
    note: &mut impl FnMut(&str),
) -> Result<Ground, Failure> {
    let Some(Kept { profile: kept, why }) = kept else {
        let site = Site::open(experiment, asked.profile)?;
        let of_another = |profile| difference(profile, &HostInfo::find(), quiet.cores().count());
        let at_home = site.profile.as_ref().filter(|profile| experiment.on_this_machine() && profile.gpus.is_empty());
        let notes = at_home.and_then(of_another).map(|why| format!("the profile may not hold here: {why}"));
        return Ok(Ground { site, notes: notes.into_iter().collect(), measured: false });
    };
    if let Some(why) = why {
        note(&format!("{why}: measured again"));
    }
    let subjects = missing(of_experiment(experiment, configurations)?, kept.as_ref());
    check_memory(&subjects, quiet.cores().count()).map_err(|error| experiment.locate(error))?;
    let mut measured = kept.is_none() || !subjects.is_empty() || mpi.is_some();
    let mut note_measuring = |what: &str| note(&format!("measuring {what}"));
    let mut profile = match kept {
        Some(kept) => kept,
        None => of_host(asked.command, quiet, &mut note_measuring)?,
    };
    add(&mut profile, &subjects, asked.command, quiet, &mut note_measuring);
    if experiment.prepared().is_some() {
        measured |= add_input(&mut profile, train, quiet, &mut note_measuring)?;
    }
    if experiment.sampling.shuffles() {
        measured |= add_moves(&mut profile, train, quiet, &mut note_measuring)?;
    }
    if let Some(MeasuredMessages { entry, disturbed }) = mpi {
        profile.mpi = Some(entry);
        profile.set_disturbed(PROCESS_MESSAGES, disturbed);
    }
    if measured {
        save(&profile, Path::new(PROFILE_PATH))?;
    } else {
        note(&format!("{PROFILE_PATH} has all layers, updates and messages of this experiment"));
    }
    Ok(Ground { site: Site::of_profile(&profile, experiment)?, notes: Vec::new(), measured })
}
