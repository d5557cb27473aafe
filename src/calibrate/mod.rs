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

use lockstep_exec::data::Dataset;
use lockstep_models::{Bucket, Job, Model, Program};
use lockstep_sim::{PROFILE_VERSION, Point, Profile};
use lockstep_topology::InputError;

use crate::compare::QUIET;
use crate::failure::Failure;
use crate::host::{Host, Load};

pub use row::{CalibrationRow, rows};

/// Repetitions of each measurement in a pass.
const REPETITIONS: usize = 30;

/// Measures this host for `models` at `batches`; `note` is told what is being measured. A calibration in which other
/// processes took more than [`QUIET`] of the machine is repeated once, and the least disturbed one counts.
///
/// # Errors
/// Batches of zero, or a measurement that fails.
pub fn calibrate(
    models: &[Arc<Model>],
    batches: &[u32],
    command: &str,
    mut note: impl FnMut(&str),
) -> Result<Profile, Failure> {
    let load = Load::now();
    let first = once(models, batches, command, &mut note)?;
    let disturbed = load.others_since().unwrap_or(0.0);
    if disturbed <= QUIET {
        return Ok(first);
    }
    note(&format!("all once more: other processes took {:.0} % of the machine meanwhile", disturbed * 100.0));
    let load = Load::now();
    let second = once(models, batches, command, &mut note)?;
    Ok(if load.others_since().unwrap_or(0.0) < disturbed { second } else { first })
}

/// One calibration, whatever else runs.
fn once(
    models: &[Arc<Model>],
    batches: &[u32],
    command: &str,
    note: &mut impl FnMut(&str),
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
        memory_bandwidth: roof::memory_bandwidth(cores),
        compute: Vec::new(),
        update: Vec::new(),
        load: Vec::new(),
        memory: {
            note("messages between ranks of one process");
            messages::messages(cores, 8 * REPETITIONS).map_err(|error| Failure::Run(error.to_string()))?
        },
        mpi: None,
    };
    let mut seen = BTreeSet::new();
    for model in models {
        for batch in batches {
            note(&format!("layers of {} at batch {batch}", model.name()));
            let program = program(model, *batch)?;
            let (data, _) = Dataset::load("synthetic", model)?;
            let layers = layers::layers(&program, &data, cores, REPETITIONS);
            let fresh = |entry: &lockstep_sim::ComputeEntry| {
                seen.insert((entry.chain.clone(), entry.phase.clone(), entry.samples))
            };
            profile.compute.extend(layers.compute.into_iter().filter(fresh));
            merge(&mut profile.update, layers.update);
            merge(&mut profile.load, layers.load);
        }
    }
    Ok(profile)
}

/// One worker's program: each of its tasks once, one update of everything.
fn program(model: &Arc<Model>, batch: u32) -> Result<Program, InputError> {
    Job { bucket: Bucket::Whole, ..Job::new(model.clone(), 1, batch) }.program()
}

/// Keeps one point per size: the first.
fn merge(points: &mut Vec<Point>, new: Vec<Point>) {
    for point in new {
        if points.iter().all(|known| known.elements != point.elements) {
            points.push(point);
        }
    }
    points.sort_by_key(|point| point.elements);
}
