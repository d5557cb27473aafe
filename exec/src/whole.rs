//! The whole model of ranks that each hold a part of it: cut for them at the start, put together on rank 0 at the end.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{AxisLayout, AxisSet, Job, Model, Op, Program, Sharding};
use lockstep_topology::Rank;

use crate::device::cpu::Threads;
use crate::device::{Cpus, DeviceError};
use crate::error::ExecError;
use crate::pool::Arenas;
use crate::replica::{Making, Replica};
use crate::state::mean;
use crate::transport::{Transport, control};

/// Kind of the messages that carry a rank's parameters and momentum.
const PART: u32 = 7;

/// The part of `rank` of values that the whole model's parameters have; zero where its rows are padding.
pub(crate) fn part(program: &Program, sharding: &Sharding, rank: u32, whole: &[f32]) -> Vec<f32> {
    let mut own = vec![0.0; program.model.parameter_elements() as usize];
    for (range, start) in sharding.parameters(&program.model, program.part(sharding, rank)) {
        let values = &whole[range.start as usize..range.end as usize];
        own[start as usize..start as usize + values.len()].copy_from_slice(values);
    }
    own
}

/// Puts a rank's own values into their places in the whole; pieces are ranges of the whole, each with where it begins in `own`.
fn put(pieces: &[(Range<u64>, u64)], own: &[f32], whole: &mut [f32]) {
    for (range, start) in pieces {
        let (range, start) = (range.start as usize..range.end as usize, *start as usize);
        whole[range.clone()].copy_from_slice(&own[start..start + range.len()]);
    }
}

/// Puts the whole model and the optimizer's state together on rank 0, from what every worker has; nothing on the others, and
/// nothing where every rank has both itself. Running statistics are rank 0's, or those of a new model where ranks have parts of them.
///
/// # Errors
/// When the job is over.
pub(crate) fn assemble(
    end: &mut dyn Transport,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
) -> Result<Option<Replica>, ExecError> {
    let Some(sharding) = &program.sharding else { return assemble_state(end, program, replica, seed) };
    let mut values = replica.parameters()?;
    let elements = values.len();
    values.extend_from_slice(&replica.velocity()?);
    // The ranks that have all parts between them; rank 0 has them all where weights are not split.
    let axes = if sharding.splits_weights() { AxisSet::of(&[sharding.axis]) } else { AxisSet::default() };
    let parts = program.mesh.group_of(axes, 0);
    if end.rank().0 != 0 {
        if parts.contains(end.rank().0) {
            control::send_elements(end, Rank(0), PART, values)?;
        }
        return Ok(None);
    }
    let all = sharding.whole.parameter_elements() as usize;
    let (mut parameters, mut velocity) = (vec![0.0; all], vec![0.0; all]);
    for rank in parts.iter() {
        if rank > 0 {
            values = control::receive_elements(end, Rank(rank), PART, 2 * elements)?;
        }
        let (own, own_velocity) = values.split_at(elements);
        let pieces = sharding.parameters(&program.model, program.part(sharding, rank));
        put(&pieces, own, &mut parameters);
        put(&pieces, own_velocity, &mut velocity);
    }
    one_rank(&sharding.whole, program, replica, seed, (parameters, velocity)).map(Some)
}

/// The same where all ranks have the whole model, and each the optimizer's state of the parameters that it updates.
fn assemble_state(
    end: &mut dyn Transport,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
) -> Result<Option<Replica>, ExecError> {
    let role = &program.roles[0];
    let shared = role.tasks.iter().find_map(|task| match task.op {
        Op::Update { shared, .. } if shared != AxisSet::default() => Some(shared),
        _ => None,
    });
    let Some(shared) = shared else { return Ok(None) };
    let (rank, sharing) = (end.rank().0, program.mesh.group_of(shared, 0));
    let mut velocity = replica.velocity()?;
    let ranges = |rank| program.updated(role, rank).into_iter().map(|range| range.start as usize..range.end as usize);
    if rank != 0 {
        if sharing.contains(rank) {
            let own = ranges(rank).flat_map(|range| velocity[range].to_vec()).collect();
            control::send_elements(end, Rank(0), PART, own)?;
        }
        return Ok(None);
    }
    for other in sharing.iter().filter(|other| *other != 0) {
        let mut own = control::receive_elements(end, Rank(other), PART, ranges(other).map(|range| range.len()).sum())?;
        for range in ranges(other) {
            let rest = own.split_off(range.len());
            velocity[range].copy_from_slice(&own);
            own = rest;
        }
    }
    let parameters = replica.parameters()?;
    one_rank(&program.model, program, replica, seed, (parameters, velocity)).map(Some)
}

/// A replica of the whole model on one rank, with the running statistics of `replica` where that has all of them.
fn one_rank(
    model: &Arc<Model>,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
    (parameters, velocity): (Vec<f32>, Vec<f32>),
) -> Result<Replica, ExecError> {
    let alone = Job::new(Arc::clone(model), 1, program.batch_per_rank).program()?;
    let (arenas, threads) = (&Arenas::default(), &Threads::one());
    let making = Making { devices: &Cpus, rank: 0, arenas, declared: Vec::new(), seed, threads };
    let mut whole = Replica::with_parameters(&alone, &alone.roles[0], parameters, making)?;
    whole.set_velocity(&velocity)?;
    if program.sharding.is_none() {
        whole.set_statistics(&replica.statistics()?)?;
    }
    Ok(whole)
}

/// Running statistics of the whole model: of each element the mean over the workers that have it; `all` are the workers' own.
pub(crate) fn mean_statistics(program: &Program, all: &[&[f32]]) -> Vec<f32> {
    let Some(sharding) = &program.sharding else { return mean(all.iter().copied()) };
    let mut whole = vec![0.0; sharding.whole.statistics_elements() as usize];
    for part in std::iter::once(None).chain((0..sharding.ranks).map(Some)) {
        let has = |rank: &usize| part.is_none_or(|part| program.part(sharding, *rank as u32) == part);
        let of_part: Vec<&[f32]> = (0..all.len()).filter(has).map(|rank| all[rank]).collect();
        put(&sharding.statistics(&program.model, part), &mean(of_part.into_iter()), &mut whole);
    }
    whole
}

/// The parameters that every rank must have alike: those of the layers that are not split.
///
/// # Errors
/// The device's.
pub(crate) fn common(program: &Program, sharding: &Sharding, replica: &mut Replica) -> Result<Vec<f32>, DeviceError> {
    let values = replica.parameters()?;
    let kept = program.model.iter().filter(|(id, _)| sharding.weights(*id) == AxisLayout::Replicated);
    let ranges = kept.flat_map(|(_, node)| &node.parameters).map(|parameter| parameter.range.clone());
    Ok(ranges.flat_map(|range| values[range.start as usize..range.end as usize].to_vec()).collect())
}
