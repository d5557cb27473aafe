//! Calibration: what one layer, one update, one load and one message take on this host, with intervals. Never a step.
//!
//! The figures go into a profile that the simulator's measured table reads; predictions are made from it before anything is
//! trained.

mod bench;
mod interval;
mod layers;
mod messages;
mod roof;
mod row;

use std::collections::BTreeSet;
use std::sync::Arc;

use lockstep_exec::data::{Augmentation, Dataset};
use lockstep_models::{Bucket, Job, Model, Program};
use lockstep_sim::{NoiseTrace, PROFILE_VERSION, Point, Profile};
use lockstep_topology::InputError;

use crate::failure::Failure;
use crate::host::Host;
use crate::quiet::Quiet;

pub(crate) use interval::interval;
pub use row::{CalibrationRow, rows};

/// Times that disturbed messages are timed.
const TRIALS: usize = 3;
/// Repetitions of each operation in a pass.
const REPETITIONS: usize = 4;
/// Messages of each kind.
const MESSAGES: usize = 240;

/// Measures this host, for `models` if there are any at `batches` of `data` (which zeros a ReLU leaves decides how fast kernels are); `note` is told what is being measured, and `quiet` which of it counts.
///
/// # Errors
/// Batches of zero, or a measurement that fails.
pub fn calibrate(
    models: &[Arc<Model>],
    batches: &[u32],
    data: &str,
    command: &str,
    quiet: &mut Quiet,
    mut note: impl FnMut(&str),
) -> Result<Profile, Failure> {
    let host = Host::find();
    let cores = host.cores;
    note("the roofs of this host");
    let mut profile = Profile {
        version: PROFILE_VERSION,
        host: host.name,
        cpu: host.cpu,
        cores: cores as u32,
        date: host.date,
        command: command.to_owned(),
        flops_per_core_s: roof::flops_per_core_s(),
        memory_bandwidth: roof::memory_bandwidth(cores, quiet),
        compute: Vec::new(),
        update: Vec::new(),
        load: Vec::new(),
        memory: {
            note("messages between ranks of one process");
            quiet
                .measure(TRIALS, || messages::messages(cores, MESSAGES))
                .map_err(|error| Failure::Run(error.to_string()))?
                .0
        },
        mpi: None,
        gpus: Vec::new(),
        noise: None,
    };
    if models.is_empty() {
        return Ok(profile);
    }
    let mut programs = Vec::new();
    for model in models {
        // Images that are larger than the model's serve as well.
        let patch = Augmentation { patch: true, ..Augmentation::default() };
        let (data, _) = Dataset::load_augmented(data, model, patch)?;
        let data = Arc::new(data);
        for batch in batches {
            programs.push((one_worker(model, *batch)?, data.clone()));
        }
    }
    let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
    let sizes: Vec<String> = batches.iter().map(u32::to_string).collect();
    note(&format!("layers of {} at batches of {}", names.join(", "), sizes.join(", ")));
    let turns: Vec<_> = programs.iter().map(|(program, data)| layers::turns(program, data, REPETITIONS)).collect();
    let measured = bench::measure(&turns, cores, quiet);
    let mut seen = BTreeSet::new();
    for ((program, _), (figures, noise)) in programs.iter().zip(measured) {
        let layers = layers::read(program, figures);
        let fresh =
            |entry: &lockstep_sim::ComputeEntry| seen.insert((entry.chain.clone(), entry.phase.clone(), entry.samples));
        profile.compute.extend(layers.compute.into_iter().filter(fresh));
        merge(&mut profile.update, layers.update);
        merge(&mut profile.load, layers.load);
        append(&mut profile.noise, noise);
    }
    Ok(profile)
}

/// One worker's program: each of its tasks once, one update of everything.
pub(crate) fn one_worker(model: &Arc<Model>, batch: u32) -> Result<Program, InputError> {
    Job { bucket: Bucket::Whole, ..Job::new(model.clone(), 1, batch) }.program()
}

/// Plays `more` after what was recorded before.
fn append(noise: &mut Option<NoiseTrace>, more: NoiseTrace) {
    let Some(known) = noise else {
        *noise = Some(more);
        return;
    };
    known.alone.extend(more.alone);
    known.together.iter_mut().zip(more.together).for_each(|(known, more)| known.extend(more));
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
