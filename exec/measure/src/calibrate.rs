//! Calibrates this host: times single layers, updates, loads and messages, with confidence intervals. Never a training
//! step.
//!
//! The figures go into a profile that the simulator's measured table reads; predictions are made from it before
//! anything is trained. A profile keeps what it knows of other models: layers are identified by their shapes, in
//! whatever model they occur.

mod bench;
mod input;
mod interval;
mod kept;
mod layers;
mod messages;
mod moves;
mod needs;
mod paths;
mod roof;
mod row;
mod samples;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_models::profile::{CONTENTION, NoiseTrace, PROFILE_VERSION, Point, Profile, THREAD_MESSAGES};
use lockstep_models::{Bucket, Job, Model, Program};
use lockstep_report::failure::Failure;
use lockstep_topology::InputError;

use crate::host::HostInfo;
use crate::launch::Launch;
use crate::quiet::Quiet;

pub use input::add_input;
pub(crate) use interval::interval;
pub use kept::{Kept, difference, lay_over, save};
pub use messages::MeasuredMessages;
pub use moves::add_moves;
pub use needs::{CalibrationSubject, check_memory, disturbed, missing};
pub use paths::{MeasuredPath, paths};
pub(crate) use row::of_layers;
pub use row::{CalibrationRow, rows};
use samples::Evaluation;

/// Attempts to time disturbed messages.
const TRIALS: usize = 3;
/// Bytes of decoded samples for timing loads.
const LOADED_BYTES: u64 = 256 << 20;
/// Repetitions of each operation in a pass.
const REPETITIONS: usize = 4;
/// Messages of each kind.
const MESSAGES: usize = 240;
/// Most slices of a core's noise trace that a profile keeps: the latest ten seconds of work.
const MOST_NOISE: usize = 40_000;

/// This host's description, peak rates and message times, without any layer; `note` is called with what is being
/// measured.
///
/// # Errors
/// A measurement that fails.
pub fn of_host(command: &str, quiet: &mut Quiet, mut note: impl FnMut(&str)) -> Result<Profile, Failure> {
    let host = HostInfo::find();
    let cores = *quiet.cores();
    note("peak FLOP/s and memory bandwidth of this host");
    let (flops_per_core_s, memory_bandwidth) = (roof::flops_per_core_s(), roof::memory_bandwidth(quiet));
    note("messages between ranks of one process");
    let MeasuredMessages { entry: memory, disturbed } = quiet
        .measure_marked(TRIALS, || messages::messages(&cores, MESSAGES))
        .map_err(|error| Failure::Run(error.to_string()))?
        .0;
    Ok(Profile {
        version: PROFILE_VERSION,
        host: host.name,
        cpu: host.cpu,
        cores: cores.count() as u32,
        date: host.date,
        command: command.to_owned(),
        kernels: lockstep_exec::kernels(),
        side_by_side: lockstep_exec::side_by_side() as u32,
        pulse_s: quiet.pulse_s(),
        flops_per_core_s,
        memory_bandwidth,
        compute: Vec::new(),
        update: Vec::new(),
        formulas: Vec::new(),
        load: Vec::new(),
        decode: Vec::new(),
        moves: Vec::new(),
        storage: None,
        memory,
        mpi: None,
        gpus: Vec::new(),
        noise: None,
        disturbed: disturbed.then(|| THREAD_MESSAGES.to_owned()).into_iter().collect(),
    })
}

/// Times messages between two processes of the job on this host, if there are two. Every process calls it; rank 0's
/// process gets the result.
///
/// # Errors
/// A measurement that fails.
pub fn of_processes(launch: &mut Launch) -> Result<Option<MeasuredMessages>, Failure> {
    messages::between_processes(launch, MESSAGES)
}

/// Times the tasks of `subjects` and adds the figures to a profile of this host, replacing older ones of the same
/// operations. `command` is recorded, `note` is called with what is being measured, and `quiet` discards disturbed
/// measurements.
pub fn add(
    profile: &mut Profile,
    subjects: &[CalibrationSubject],
    command: &str,
    quiet: &mut Quiet,
    mut note: impl FnMut(&str),
) {
    if subjects.is_empty() {
        return;
    }
    note(&account(subjects));
    let turns: Vec<_> = subjects.iter().map(|subject| layers::turns(subject, REPETITIONS)).collect();
    let measured = bench::measure(&turns, bench::Effort::USUAL, quiet);
    let mut fresh = Profile {
        date: HostInfo::find().date,
        command: command.to_owned(),
        compute: Vec::new(),
        update: Vec::new(),
        formulas: Vec::new(),
        load: Vec::new(),
        noise: None,
        disturbed: Vec::new(),
        ..profile.clone()
    };
    // Hardware threads of one core may add nothing; cores that add nothing were taken by something else.
    let mut contradicted = false;
    let alone = quiet.cores().count() > 1 && !quiet.cores().pins(quiet.cores().count()).share_a_core();
    for (subject, Evaluation { figures, noise, no_faster }) in subjects.iter().zip(measured) {
        let layers = layers::read(subject, figures);
        for (name, is_disturbed) in layers.disturbed {
            fresh.set_disturbed(&name, is_disturbed);
        }
        contradicted |= alone && no_faster;
        for entry in layers.compute {
            if !fresh.compute.iter().any(|known| kept::same(known, &entry)) {
                fresh.compute.push(entry);
            }
        }
        merge(&mut fresh.update, layers.update);
        kept::merge_formulas(&mut fresh.formulas, layers.formulas);
        merge(&mut fresh.load, layers.load);
        append(&mut fresh.noise, noise);
    }
    fresh.set_disturbed(CONTENTION, contradicted);
    lay_over(profile, fresh);
}

/// `layers of lenet at 16 and 64 samples, in parts of 2 ranks`: describes the measured layers.
fn account(subjects: &[CalibrationSubject]) -> String {
    let mut whose: Vec<String> = Vec::new();
    for CalibrationSubject { program, .. } in subjects {
        let parts = match program.weight_parts() {
            1 => String::new(),
            ranks => format!(" (parts of {ranks} ranks)"),
        };
        let own = format!("{}{parts} at a batch of {}", program.whole_model().name(), program.batch_per_rank);
        if !whose.contains(&own) {
            whose.push(own);
        }
    }
    format!("layers of {}", whose.join(", "))
}

/// The programs of a single worker for each of `models` and `batches` on `data`. Data matter since the speed of kernels
/// depends on which zeros a ReLU leaves.
///
/// # Errors
/// Batches of zero, data that cannot be loaded.
pub fn alone(models: &[Arc<Model>], batches: &[u32], data: &str) -> Result<Vec<(Program, Arc<Dataset>)>, InputError> {
    let mut programs = Vec::new();
    for model in models {
        let data = dataset(data, model)?;
        for batch in batches {
            programs.push((one_worker(model, *batch)?, data.clone()));
        }
    }
    Ok(programs)
}

/// The programs of all `configurations` of an experiment, with the data for timing their loads.
///
/// # Errors
/// Data that cannot be loaded.
pub fn of_experiment(
    experiment: &Experiment,
    configurations: &[Configuration],
) -> Result<Vec<(Program, Arc<Dataset>)>, InputError> {
    let Some(first) = configurations.first() else { return Ok(Vec::new()) };
    let data = dataset(&experiment.data, &first.job.model).map_err(|error| experiment.locate(error))?;
    configurations.iter().map(|configuration| Ok((configuration.program()?, data.clone()))).collect()
}

/// The samples for timing loads. Images larger than the model's input are accepted.
///
/// # Errors
/// Data that cannot be loaded.
fn dataset(data: &str, model: &Model) -> Result<Arc<Dataset>, InputError> {
    // Where threads decode, a load only copies.
    Ok(Arc::new(Dataset::load_of_any_size(data, model)?.0.in_memory(LOADED_BYTES)?))
}

/// One worker's program: each of its tasks once, one update of all parameters.
pub(crate) fn one_worker(model: &Arc<Model>, batch: u32) -> Result<Program, InputError> {
    Job { bucket: Bucket::Whole, ..Job::new(model.clone(), 1, batch) }.program()
}

/// Appends `more` to the trace recorded before, up to the length that a profile keeps.
fn append(noise: &mut Option<NoiseTrace>, more: NoiseTrace) {
    let Some(known) = noise else {
        *noise = Some(more);
        return;
    };
    let latest = |slices: &mut Vec<f32>| drop(slices.drain(..slices.len().saturating_sub(MOST_NOISE)));
    known.alone.extend(more.alone);
    known.together.iter_mut().zip(more.together).for_each(|(known, more)| known.extend(more));
    std::iter::once(&mut known.alone).chain(&mut known.together).for_each(latest);
}

/// Keeps one point per size: the first.
pub(crate) fn merge(points: &mut Vec<Point>, new: Vec<Point>) {
    for point in new {
        if points.iter().all(|known| known.elements != point.elements) {
            points.push(point);
        }
    }
    points.sort_by_key(|point| point.elements);
}
